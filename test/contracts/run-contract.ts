/** Runner of contract suites: each key is a promise of a backend, each value tests it over one adapter, in a fresh place. */
import type { Test } from 'tap'

export type Promises<Place> = Record<string, (t: Test, place: Place) => Promise<void>>

/** Tests every promise. `excused` exempts an adapter from a promise by its text, with a reason; an unknown promise throws. */
export async function runContract<Place>(
  t: Test,
  promises: Promises<Place>,
  makePlace: (t: Test) => Place | Promise<Place>,
  excused: Record<string, string> = {},
): Promise<void> {
  const unknown = Object.keys(excused).find((promise) => !Object.hasOwn(promises, promise))
  if (unknown !== undefined) throw new Error(`there is no promise "${unknown}" to be excused from`)
  for (const [promise, test] of Object.entries(promises)) {
    const reason = excused[promise]
    if (reason === undefined) await t.test(promise, async (t) => test(t, await makePlace(t)))
    else t.comment(`excused from "${promise}": ${reason}`)
  }
}
