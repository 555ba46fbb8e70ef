/**
 * Retry and failover: which errors of an upstream are retried there with back-off, which send the call to the next upstream at once, and
 * when all have failed.
 */
import { Failure } from '../../domain/errors.ts'
import { traced, type SpanOptions } from '../../tracing/tracing.ts'
import { attempt } from '../http/attempt.ts'
import type { Upstream } from '../http/connection-pool.ts'
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
 * when the request is at fault, or with the signal's reason once it is aborted.
 */
export async function callWithFailover(
  candidates: Candidate[],
  signal: AbortSignal,
  context: FailoverContext,
): Promise<UpstreamAnswer> {
  const errors: Error[] = []
  for (const { upstream, call } of candidates) {
    const result = await attemptWithRetries(upstream, call, signal, context)
    if (!(result instanceof Error)) return result
    errors.push(result)
  }
  const waits = candidates.map(({ upstream: { breaker } }) => Math.ceil(breaker.waitMs(context.now()) / 1000))
  const retryAfterSeconds = Math.min(
    RETRY_AFTER_SECONDS.max,
    Math.max(RETRY_AFTER_SECONDS.min, waits.length > 0 ? Math.min(...waits) : 0),
  )
  throw new Failure('server_overloaded', { retryAfterSeconds, cause: new AggregateError(errors, 'all upstreams failed') })
}

/** All attempts at one upstream. Returns the last error when the call is to fail over to the next upstream. */
async function attemptWithRetries(
  upstream: Upstream,
  call: UpstreamCall,
  signal: AbortSignal,
  context: FailoverContext,
): Promise<UpstreamAnswer | Error> {
  const { name, retry } = upstream.settings
  for (let n = 1; ; n++) {
    if (!upstream.breaker.admit(context.now())) return new Error(`the circuit breaker of ${name} is open`)
    try {
      return await attemptOnConnection(upstream, call, signal, context)
    } catch (error) {
      if (signal.aborted || error instanceof Failure) throw error
      const failed = error as AttemptError
      const backOffMs = Math.max(failed.retryAfterMs ?? 0, context.backOffMs * 2 ** (n - 1) * (0.5 + context.random() / 2))
      if (n >= retry.attempts || FAILOVER_STATUSES.includes(failed.status) || backOffMs > MAX_BACK_OFF_MS) return failed
      context.emit({ event: 'retry', upstream: name, wire: call.wire })
      await delay(backOffMs, signal)
      signal.throwIfAborted()
    }
  }
}

/** One attempt. When an idle connection breaks under the request, it is sent again at once on a new one, as the same attempt. */
async function attemptOnConnection(upstream: Upstream, call: UpstreamCall, signal: AbortSignal, context: FailoverContext): Promise<UpstreamAnswer> {
  try {
    return await attemptOnce(upstream, 'pool', call, signal, context)
  } catch (error) {
    if (!(error instanceof AttemptError && error.onUsedConnection) || signal.aborted) throw error
    return attemptOnce(upstream, 'unpooled', call, signal, context)
  }
}

/** One request, reported to the breaker, the log and the metrics. */
async function attemptOnce(
  { settings, path, headers, target, breaker, ...upstream }: Upstream,
  connections: 'pool' | 'unpooled',
  call: UpstreamCall,
  signal: AbortSignal,
  context: FailoverContext,
): Promise<UpstreamAnswer> {
  const { name, timeouts } = settings
  const startedAt = context.now()
  const report = (outcome: Outcome) =>
    context.emit({ event: 'attempt', upstream: name, wire: call.wire, outcome, durationMs: context.now() - startedAt })
  // A JSON answer arrives whole: its first byte takes as long as all of it.
  const firstByteMs = call.stream ? timeouts.firstByteMs : Math.max(timeouts.firstByteMs, timeouts.idleMs)
  try {
    const pieces = call.pieces(target)
    const body = pieces ? await pieces : call.body(target)
    signal.throwIfAborted()
    const request = { path: path(call.wire), headers: { ...headers, accept: call.stream ? 'text/event-stream' : 'application/json' }, body }
    const answer = await traced('upstream attempt', () => attemptSpan(settings, call), () => attempt(upstream[connections], request, { firstByteMs, idleMs: timeouts.idleMs }, upstream.templates, call, signal))
    breaker.succeeded()
    report('answered')
    return answer
  } catch (error) {
    if (signal.aborted) {
      breaker.cancelled()
      report('abandoned')
    } else if (error instanceof Failure) {
      breaker.succeeded()
      report('refused')
    } else if (connections === 'pool' && error instanceof AttemptError && error.onUsedConnection) {
      context.emit({ event: 'retry', upstream: name, wire: call.wire })
    } else {
      breaker.failed(context.now())
      report('failed')
      context.log.warn(
        { event: 'upstream_attempt_failed', upstream: name, wire: call.wire, err: error, breaker: breaker.state(context.now()) },
        'upstream attempt failed',
      )
    }
    throw error
  }
}

/** By the semantic conventions for GenAI: the call of a model, up to the first bytes of its answer. */
function attemptSpan({ name, model, baseUrl }: Upstream['settings'], call: UpstreamCall): SpanOptions {
  const { hostname, port } = URL.parse(baseUrl) ?? {}
  return {
    kind: 'client',
    within: true,
    attributes: { 'gen_ai.operation.name': 'chat', 'gen_ai.provider.name': 'openai', 'gen_ai.request.model': model, 'tollgate.upstream': name, 'tollgate.wire': call.wire, 'tollgate.stream': call.stream, 'server.address': hostname, 'server.port': port ? Number(port) : undefined },
  }
}

/** Resolves after `ms`, or at once when the signal is aborted. */
function delay(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  const onAbort = () => resolve()
  signal.addEventListener('abort', onAbort)
  return promise.finally(() => {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  })
}
