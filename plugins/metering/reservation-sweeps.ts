/** The schedule of what one gateway sweeps: its own admissions of unknown outcome, and, in one gateway at a time, the reservations of dead gateways. */
import type { FastifyInstance } from 'fastify'
import { periodicTask, type PeriodicTask } from '../../src/concurrency/periodic-task.ts'
import type { MeteringMetrics } from './metering-metrics.ts'
import { reservationSweep } from './orphaned-reservations.ts'
import type { UnknownAdmissions } from './unknown-admissions.ts'

const SWEEP_MS = 1_000
const LEASE_MS = 5_000

/**
 * `isAlone`: nobody else writes the store, so that the reservations that this program left when it was killed are expired at `start`, or later if the store gives no answer, and nobody else dies.
 * `stop` releases what is left of our own.
 */
export function openReservationSweeps(
  { store, clock, log }: FastifyInstance,
  { instance, isAlone, unknown, metrics }: { instance: string; isAlone: boolean; unknown: UnknownAdmissions; metrics: MeteringMetrics },
  failed: (subscription: string, err: unknown) => void,
): PeriodicTask {
  const orphaned = reservationSweep(store, instance, failed)
  const sweep = async (isLast: boolean): Promise<void> => {
    const now = clock()
    const released = await unknown.release(now, isLast)
    const isLeader = !isAlone && !isLast && (await store.takeLease('reservations', instance, now + LEASE_MS, now))
    const expired = isAlone ? await orphaned.expireOthers(now) : isLeader ? await orphaned.expireDead(now) : 0
    metrics.swept({ expired, released })
    if (expired + released > 0) log.warn({ event: 'orphaned_reservations_expired', expired, released }, 'expired orphaned reservations')
  }
  const sweepFailed = (err: unknown) => log.warn({ event: 'reservation_sweep_failed', err }, 'sweep of orphaned reservations failed')
  const task = periodicTask(SWEEP_MS, () => sweep(false), sweepFailed)
  return {
    async start() {
      if (isAlone) metrics.swept({ expired: await orphaned.expireOthers(clock()), released: 0 })
      await task.start()
    },
    async stop() {
      await task.cancel()
      await sweep(true).catch(sweepFailed)
    },
  }
}
