/**
 * The controller lease: of several controllers that read manifests from folders and share a store, one is active. Two active ones would give every resource two
 * identities, and each would revoke the keys of the other.
 */
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Unavailable } from '../domain/errors.ts'
import type { Store } from '../backends/store/store.ts'

const NAME = 'controller'
const TIMES = { leaseMs: 15_000, renewMs: 2_500 }

/**
 * Acquires the lease and renews it until `close`, which releases it. Throws `Unavailable` while another controller holds it. `lost` is called once when a renewal
 * fails for too long: the process must end at once. Times are those of the store's clock, which all processes share. A restart on the same data folder, which is
 * locked, keeps the owner and therefore the lease.
 */
export async function holdControllerLease(
  store: Pick<Store, 'clock' | 'takeLease' | 'releaseLease'>,
  dataDir: string,
  lost: (error: Error) => void,
  { leaseMs, renewMs } = TIMES,
): Promise<{ close(): Promise<void> }> {
  const owner = await ownerOf(join(dataDir, 'controller.id'))
  const take = async (): Promise<boolean> => {
    const now = await store.clock()
    return store.takeLease(NAME, owner, now + leaseMs, now)
  }
  let renewedAt = performance.now()
  if (!(await take())) throw new Unavailable('controller lease', new Error('another controller holds it'))
  let renewing: Promise<void> | null = null
  let isLost = false

  function end(): void {
    if (isLost) return
    isLost = true
    clearInterval(timer)
    lost(new Error('controller lease lost: it could not be renewed in time'))
  }

  async function renew(): Promise<void> {
    const since = performance.now()
    const outcome = await take().then(
      (isOurs) => (isOurs ? 'kept' : 'lost'),
      () => 'unknown' as const,
    )
    if (outcome === 'kept') renewedAt = since
    if (outcome === 'lost') end()
  }

  const timer = setInterval(() => {
    // It would expire before the next check. A renewal that hangs in the store must not hide that.
    if (performance.now() - renewedAt > leaseMs - 2 * renewMs) end()
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
