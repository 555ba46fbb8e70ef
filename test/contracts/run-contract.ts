/** How a contract suite runs: its keys are the promises of a backend, its values prove them over one adapter, each in a place of its own. */
import type { Test } from 'tap'

export type Promises<Place> = Record<string, (t: Test, place: Place) => Promise<void>>

/** Proves every promise. An adapter may be `excused` from one by its words, with a reason; excusing what nobody promised throws. */
export async function runContract<Place>(
  t: Test,
  promises: Promises<Place>,
  makePlace: (t: Test) => Place | Promise<Place>,
  excused: Record<string, string> = {},
): Promise<void> {
  const unknown = Object.keys(excused).find((promise) => !Object.hasOwn(promises, promise))
  if (unknown !== undefined) throw new Error(`nobody promises that ${unknown}`)
  for (const [promise, proof] of Object.entries(promises)) {
    const reason = excused[promise]
    if (reason === undefined) await t.test(promise, async (t) => proof(t, await makePlace(t)))
    else t.comment(`excused from "${promise}": ${reason}`)
  }
}
