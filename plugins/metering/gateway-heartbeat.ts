/** Heartbeat of this gateway, by which `orphaned-reservations.ts` detects a dead one. */
import type { Store } from '../../src/backends/store/store.ts'
import { periodicTask, type PeriodicTask } from '../../src/concurrency/periodic-task.ts'

const HEARTBEAT_MS = 10_000
/** A gateway whose heartbeat did not change for this long is dead. */
export const DEAD_MS = 45_000

/** `start` writes the first heartbeat, and rejects when that cannot be written; then one is written every 10 s, and a failure is logged. */
export function openHeartbeat(store: Store, instance: string, log: { warn(facts: object, message: string): void }): PeriodicTask {
  let count = 0
  const beat = () => store.heartbeat(instance, ++count)
  const task = periodicTask(HEARTBEAT_MS, beat, (err) => log.warn({ event: 'gateway_heartbeat_failed', err }, 'gateway heartbeat failed'))
  return {
    async start() {
      await beat()
      await task.start()
    },
    stop: task.stop,
  }
}
