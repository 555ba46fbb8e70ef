/** Heartbeat of this gateway, by which the sweep of orphaned reservations detects a dead gateway. */
import type { Store } from '../../src/backends/store/store.ts'

const HEARTBEAT_MS = 10_000

/**
 * Writes the first heartbeat, then one every 10 s; a later one that fails is logged. Resolves with the timer, which the caller clears. Rejects when the
 * first cannot be written.
 */
export async function startHeartbeat(
  store: Store,
  instance: string,
  log: { warn(facts: object, message: string): void },
): Promise<NodeJS.Timeout> {
  let count = 0
  const beat = () => store.heartbeat(instance, ++count)
  await beat()
  return setInterval(
    () => void beat().catch((err: unknown) => log.warn({ event: 'gateway_heartbeat_failed', err }, 'gateway heartbeat failed')),
    HEARTBEAT_MS,
  )
}
