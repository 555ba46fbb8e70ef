/** Readiness checks: whether each backend answers, for `/readyz` and the metric `tollgate_check_ok`. */
import type { FastifyInstance } from 'fastify'
import { withTimeout } from '../../src/concurrency/batching.ts'
import { serves } from '../../src/config/needed-backends.ts'
import type { Check } from './ops-listener.ts'

/** A backend that does not answer within this time counts as unavailable. */
const TIMEOUT_MS = 2_000
/** Name and owner of a lease that is written to prove that the store accepts writes. */
const PROBE_LEASE = 'readiness'
/** Id of a file that never exists: a stat of it proves that the backend answers. */
const PROBE_FILE = 'readiness'

/**
 * One check per backend of the role. A store that takes no writes makes the process not ready, and so does one that is away, except for a gateway that it has
 * answered before: without ready gateways a Service refuses connections, and clients get no 503 with Retry-After. The other backends degrade the process.
 */
export function backendChecks(app: FastifyInstance): (() => Promise<Check> | Check)[] {
  let hasAnswered = false
  const checks: (() => Promise<Check> | Check)[] = [
    async () => {
      const failure = await failureOf(app.store.clock())
      if (failure !== null && hasAnswered && serves(app.config.ROLE))
        return { name: 'store', ok: true, degraded: true, detail: `${failure}; requests get 503 with Retry-After` }
      if (failure !== null) return { name: 'store', ok: false, detail: failure }
      hasAnswered = true
      // A full disk can still be read. All processes write the same lease; nothing depends on its owner.
      const unwritten = await failureOf(app.store.takeLease(PROBE_LEASE, PROBE_LEASE, app.clock(), app.clock()))
      return unwritten === null
        ? { name: 'store', ok: true, detail: 'it answers' }
        : { name: 'store', ok: false, detail: `it can be read, and not written: ${unwritten}` }
    },
  ]
  if (app.hasDecorator('broker')) {
    checks.push(() => {
      const { ok, detail } = app.broker.health()
      return ok
        ? { name: 'broker', ok, detail }
        : { name: 'broker', ok: true, degraded: true, detail: `${detail}; work is found a moment later without it` }
    })
  }
  if (app.hasDecorator('files')) {
    checks.push(async () => {
      const failure = await failureOf(app.files.stat(PROBE_FILE))
      return failure === null
        ? { name: 'files', ok: true, detail: 'they answer' }
        : { name: 'files', ok: true, degraded: true, detail: failure }
    })
  }
  return checks
}

/** Why a backend does not answer, for the operator; null when it answers. */
function failureOf(answer: Promise<unknown>): Promise<string | null> {
  return withTimeout('backend', TIMEOUT_MS, answer).then(
    () => null,
    (error: Error) => (error.cause instanceof Error ? error.cause.message : error.message),
  )
}
