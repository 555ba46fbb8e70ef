/**
 * The controller's turn: of several that read manifests from folders and share a store, one is at work. Two at once would give every resource two identities, and each
 * would revoke the keys of the other.
 */
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Unavailable } from '../errors.ts'
import type { Store } from '../store/store.ts'

const NAME = 'controller'
const LEASE_MS = 15_000
const RENEW_MS = 2_500

/**
 * Takes the turn, and keeps it until `close`, which gives it to whoever waits. Throws `Unavailable` while another has it. `lost` is called once when it could not be
 * kept: whoever held it must end at once. By the store's clock, which is the same for all. Whoever starts again on the same data folder, which is locked, has the turn
 * of the one before it.
 */
export async function takeTurn(store: Pick<Store, 'clock' | 'takeLease'>, dataDir: string, lost: (error: Error) => void): Promise<{ close(): Promise<void> }> {
  const owner = await ownerOf(join(dataDir, 'controller.id'))
  const take = async (ms: number): Promise<boolean> => {
    const now = await store.clock()
    return store.takeLease(NAME, owner, now + ms, now)
  }
  if (!(await take(LEASE_MS))) throw new Unavailable('turn', new Error('another controller is at work'))
  let keptAt = performance.now()
  let renewing: Promise<void> = Promise.resolve()

  async function renew(): Promise<void> {
    const since = performance.now()
    const outcome = await take(LEASE_MS).then((isOurs) => (isOurs ? 'kept' : 'lost'), () => 'unknown' as const)
    if (outcome === 'kept') keptAt = since
    // Until the next look it may have run out.
    const isLost = outcome === 'lost' || performance.now() - keptAt > LEASE_MS - 2 * RENEW_MS
    if (!isLost) return
    clearInterval(timer)
    lost(new Error('another controller may be at work: this one could not renew its lease in time'))
  }

  const timer = setInterval(() => {
    renewing = renewing.then(renew)
  }, RENEW_MS)

  return {
    async close() {
      clearInterval(timer)
      await renewing
      await take(0).catch(() => false)
    },
  }
}

async function ownerOf(file: string): Promise<string> {
  const kept = await readFile(file, 'utf8').catch(() => '')
  if (kept !== '') return kept
  const made = randomUUID()
  await writeFile(file, made, { mode: 0o600 })
  return made
}
