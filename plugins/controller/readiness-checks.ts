/** When a controller counts as ready: it has read the resources, and has passed over all of them once. */
import type { FastifyInstance } from 'fastify'
import type { Queue } from './work-queue.ts'

/** Readiness waits that long for the first pass over all resources. */
const FIRST_PASS_WAIT_MS = 5_000

export type Readiness = {
  /** The queues hold all resources. */
  synced(): void
  /** A queue may be empty now: the first pass is complete once both are for the first time. */
  passEnded(): void
}

/** Adds the checks `resources` and `controller` to those of the app. `phase` is that of the controller (controller.ts). */
export function addReadinessChecks(
  app: FastifyInstance,
  { plans, keys, phase }: { plans: Queue; keys: Queue; phase: () => string },
): Readiness {
  const { resources, clock } = app
  let syncedAt: number | null = null
  let wasRead = false
  let isFirstPassDone = false
  // Ready once the source was read. While it is unavailable later, requests are served from the store.
  app.checks.push(() => {
    const { ok, detail } = resources.health()
    wasRead ||= ok && phase() !== 'starting'
    return { name: 'resources', ok: wasRead, detail }
  })
  // Ready after the first pass over all resources, so that the keys of a fresh start exist. A long backlog does not hold back keys that work already.
  app.checks.push(() => {
    if (phase() === 'standby') return { name: 'controller', ok: true, detail: 'this process is not the leader' }
    const isWithinWait = syncedAt === null || clock() - syncedAt < FIRST_PASS_WAIT_MS
    const queued = `${plans.depth()} plans and ${keys.depth()} keys queued`
    return {
      name: 'controller',
      ok: isFirstPassDone || !isWithinWait,
      detail: isFirstPassDone ? queued : `the first pass is not complete: ${queued}`,
    }
  })
  return {
    synced: () => void (syncedAt ??= clock()),
    passEnded: () => void (isFirstPassDone ||= plans.isIdle() && keys.isIdle()),
  }
}
