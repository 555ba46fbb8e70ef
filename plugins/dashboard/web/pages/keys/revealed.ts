/** The secrets that the person has revealed: in memory of this page only, and only while their key is active. */
import { signal } from '@preact/signals'
import { shownTenant } from '../../api/client.ts'
import { revealKey, type Key } from '../../api/keys.ts'

type Revealed = { secret: string; revision: number }

export const revealed = signal<ReadonlyMap<string, Revealed>>(new Map())

/** How often all were hidden. */
let hidden = 0

/** Asks the server for a key's secret, and drops what comes after the page was left or its tenant switched. Throws a `Problem`. */
export async function reveal({ name, rotation_revision: revision }: Key): Promise<void> {
  const [before, tenant] = [hidden, shownTenant.peek()]
  const secret = await revealKey(name)
  if (hidden === before && shownTenant.peek() === tenant) revealed.value = new Map(revealed.value).set(name, { secret, revision })
}

/** Hides a key again. */
export function forget(name: string): void {
  revealed.value = new Map([...revealed.value].filter(([each]) => each !== name))
}

/** Hides all keys again. */
export function forgetAll(): void {
  hidden++
  revealed.value = new Map()
}

/** Keeps the secrets of keys that are active and were not rotated since. */
export function forgetAllBut(keys: Key[]): void {
  const holds = (name: string, { revision }: Revealed) =>
    keys.some((key) => key.name === name && key.state === 'Active' && key.rotation_revision === revision)
  const kept = [...revealed.value].filter((entry) => holds(...entry))
  if (kept.length < revealed.value.size) revealed.value = new Map(kept)
}
