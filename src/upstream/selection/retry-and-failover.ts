/**
 * Retry and failover: which errors of an upstream are retried there with back-off, which send the call to the next upstream at once, and
 * when all have failed.
 */
import { Failure, overLimit } from '../../domain/errors.ts'
import { traced, type SpanOptions } from '../../tracing/tracing.ts'
import type { Cancellation } from '../cancellation.ts'
import { attempt } from '../http/attempt.ts'
import type { Connections, Upstream } from '../http/connection-pool.ts'
import type { Candidate } from './load-balancing.ts'
import { AttemptError, type UpstreamAnswer } from '../http/upstream-answer.ts'
import type { UpstreamCall, WireName } from '../wires/wire.ts'

export type UpstreamLog = {
  info(facts: object, message: string): void
  warn(facts: object, message: string): void
  error(facts: object, message: string): void
}

/** `refused`: the request is at fault. `failed`: the upstream is. `abandoned`: the client disconnected. */
export type Outcome = 'answered' | 'refused' | 'failed' | 'abandoned'

/** For metrics. */
export type UpstreamEvent =
  | { event: 'attempt'; upstream: string; wire: WireName; outcome: Outcome; durationMs: number }
  | { event: 'retry'; upstream: string; wire: WireName }

export type FailoverContext = {
  log: UpstreamLog
  /** Epoch milliseconds. */
  now: () => number
  /** In [0, 1). */
  random: () => number
  /** Before the second attempt; doubled for each further one. */
  backOffMs: number
  emit: (event: UpstreamEvent) => void
}

/** A back-off or `Retry-After` up to this is waited for; a longer one fails over at once. */
const MAX_BACK_OFF_MS = 2000
/** Bounds of the client's `Retry-After` when all upstreams failed. */
const RETRY_AFTER_SECONDS = { min: 2, max: 30 }
/** Statuses that fail over to the next upstream without a retry: another attempt cannot fix our key, its balance, our path or model. */
const FAILOVER_STATUSES = [401, 402, 403, 404, 405, 410]

/**
 * Tries the candidates in order and resolves with the first answer. Rejects with `server_overloaded` when all failed, with a 4xx failure
 * when the request is at fault, or with the reason of the cancellation.
 */
export async function callWithFailover(
  candidates: Candidate[],
  cancellation: Cancellation,
  context: FailoverContext,
): Promise<UpstreamAnswer> {
  const errors: Error[] = []
  for (const candidate of candidates) {
    const { name, retry } = candidate.upstream.settings
    for (let n = 1; ; n++) {
      if (!candidate.upstream.breaker.admit(context.now())) {
        errors.push(new Error(`the circuit breaker of ${name} is open`))
        break
      }
      try {
        return await attemptOnce(candidate, cancellation, context)
      } catch (error) {
        if (cancellation.reason || error instanceof Failure) throw error
        const failed = error as AttemptError
        const backOffMs = Math.max(failed.retryAfterMs ?? 0, context.backOffMs * 2 ** (n - 1) * (0.5 + context.random() / 2))
        if (n >= retry.attempts || FAILOVER_STATUSES.includes(failed.status) || backOffMs > MAX_BACK_OFF_MS) {
          errors.push(failed)
          break
        }
        context.emit({ event: 'retry', upstream: name, wire: candidate.call.wire })
        await delay(backOffMs, cancellation)
      }
    }
  }
  throw allFailed(candidates, errors, context.now())
}

function allFailed(candidates: Candidate[], errors: Error[], now: number): Failure {
  const waits = candidates.map(({ upstream: { breaker } }) => Math.ceil(breaker.waitMs(now) / 1000))
  const retryAfterSeconds = Math.min(RETRY_AFTER_SECONDS.max, Math.max(RETRY_AFTER_SECONDS.min, waits.length > 0 ? Math.min(...waits) : 0))
  return overLimit('upstreams', { retryAfterSeconds, cause: new AggregateError(errors, 'all upstreams failed') })
}

/**
 * One attempt, reported to the breaker, the log and the metrics. When an idle connection breaks under the request, it is sent again at once on a new one, as the same attempt.
 */
async function attemptOnce(candidate: Candidate, cancellation: Cancellation, context: FailoverContext): Promise<UpstreamAnswer> {
  const { upstream, call } = candidate
  const startedAt = context.now()
  const report = (outcome: Outcome) =>
    context.emit({ event: 'attempt', upstream: upstream.settings.name, wire: call.wire, outcome, durationMs: context.now() - startedAt })
  for (let connections: Connections = 'pool'; ; connections = 'unpooled') {
    try {
      const pieces = call.pieces(upstream.target)
      const body = pieces ? await pieces : call.body(upstream.target)
      if (cancellation.reason) throw cancellation.reason
      const answer = await traced(
        'upstream attempt',
        () => attemptSpan(upstream.settings, call),
        () => attempt(upstream, connections, call, body, cancellation),
      )
      upstream.breaker.succeeded()
      report('answered')
      return answer
    } catch (error) {
      if (connections === 'pool' && !cancellation.reason && error instanceof AttemptError && error.onIdleConnection) {
        context.emit({ event: 'retry', upstream: upstream.settings.name, wire: call.wire })
        continue
      }
      report(failedOutcome(error, candidate, cancellation, context))
      throw error
    }
  }
}

/** The outcome of an attempt that gave no answer, which counts for the breaker unless it says nothing about the upstream. */
function failedOutcome(
  error: unknown,
  { upstream: { settings, breaker }, call }: Candidate,
  cancellation: Cancellation,
  { now, log }: FailoverContext,
): Outcome {
  if (cancellation.reason) {
    breaker.cancelled()
    return 'abandoned'
  }
  if (error instanceof Failure) {
    breaker.succeeded()
    return 'refused'
  }
  breaker.failed(now())
  log.warn(
    { event: 'upstream_attempt_failed', upstream: settings.name, wire: call.wire, err: error, breaker: breaker.state(now()) },
    'upstream attempt failed',
  )
  return 'failed'
}

/** By the semantic conventions for GenAI: the call of a model, up to the first bytes of its answer. */
function attemptSpan({ name, model, baseUrl }: Upstream['settings'], call: UpstreamCall): SpanOptions {
  const { hostname, port } = URL.parse(baseUrl) ?? {}
  return {
    kind: 'client',
    within: true,
    attributes: {
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': model,
      'tollgate.upstream': name,
      'tollgate.wire': call.wire,
      'tollgate.stream': call.stream,
      'server.address': hostname,
      'server.port': port ? Number(port) : undefined,
    },
  }
}

/** Resolves after `ms`; rejects with its reason when the call is cancelled. */
function delay(ms: number, cancellation: Cancellation): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  cancellation.listener = reject
  return promise.finally(() => {
    clearTimeout(timer)
    cancellation.listener = null
  })
}
