/**
 * The controller's turn: of several that read manifests from folders and share a store, one is at work. Two at once would give every resource two identities, and each
 * would revoke the keys of the other.
 */
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Unavailable } from '../domain/errors.ts'
import type { Store } from '../backends/store/store.ts'

const NAME = 'controller'
const TIMES = { leaseMs: 15_000, renewMs: 2_500 }

/**
 * Takes the turn, and keeps it until `close`, which gives it to whoever waits. Throws `Unavailable` while another has it. `lost` is called once when it could not be
 * kept: whoever held it must end at once. By the store's clock, which is the same for all. Whoever starts again on the same data folder, which is locked, has the turn
 * of the one before it.
 */
export async function holdControllerLease(store: Pick<Store, 'clock' | 'takeLease' | 'releaseLease'>, dataDir: string, lost: (error: Error) => void, { leaseMs, renewMs } = TIMES): Promise<{ close(): Promise<void> }> {
  const owner = await ownerOf(join(dataDir, 'controller.id'))
  const take = async (): Promise<boolean> => {
    const now = await store.clock()
    return store.takeLease(NAME, owner, now + leaseMs, now)
  }
  let keptAt = performance.now()
  if (!(await take())) throw new Unavailable('turn', new Error('another controller is at work'))
  let renewing: Promise<void> | null = null
  let isOver = false

  function end(): void {
    if (isOver) return
    isOver = true
    clearInterval(timer)
    lost(new Error('another controller may be at work: this one could not renew its lease in time'))
  }

  async function renew(): Promise<void> {
    const since = performance.now()
    const outcome = await take().then((isOurs) => (isOurs ? 'kept' : 'lost'), () => 'unknown' as const)
    if (outcome === 'kept') keptAt = since
    if (outcome === 'lost') end()
  }

  const timer = setInterval(() => {
    // Until the next look it may have run out. A store that hangs keeps a renewal for longer than that.
    if (performance.now() - keptAt > leaseMs - 2 * renewMs) end()
    else renewing ??= renew().finally(() => (renewing = null))
  }, renewMs)

  return {
    async close() {
      clearInterval(timer)
      await renewing
      await store.releaseLease(NAME, owner).catch(() => {})
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
