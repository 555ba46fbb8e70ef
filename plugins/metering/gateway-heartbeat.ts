/** Heartbeat of this gateway, by which the sweep of orphaned reservations detects a dead gateway. */
import type { Store } from '../../src/backends/store/store.ts'
import { periodicTask, type PeriodicTask } from '../../src/concurrency/periodic-task.ts'

const HEARTBEAT_MS = 10_000

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
