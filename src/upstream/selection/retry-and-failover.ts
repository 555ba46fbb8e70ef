/**
 * Retry and failover: which errors of an upstream are retried there with back-off, which send the call to the next upstream at once, and
 * when all have failed.
 */
import { Failure, overLimit } from '../../domain/errors.ts'
import { isTracing, keepCurrent, startSpan, type Span, type SpanOptions } from '../../telemetry/tracing.ts'
import { AttemptError, type AnswerSink, type AnswerSource } from '../http/answer.ts'
import { Attempt, type AttemptOutcome } from '../http/attempt.ts'
import type { Connections } from '../http/connection-pool.ts'
import type { Upstream } from '../http/upstream.ts'
import type { Candidate } from './load-balancing.ts'
import type { StreamRewriter, UpstreamCall, WireName } from '../wires/wire.ts'

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
  /** Epoch milliseconds. */
  now: () => number
  /** In [0, 1). */
  random: () => number
  /** Before the second attempt; doubled for each further one. */
  backOffMs: number
  emit: (event: UpstreamEvent) => void
  /** Nothing is sent any more. */
  isClosed: () => boolean
}

/** A back-off or `Retry-After` up to this is waited for; a longer one fails over at once. */
const MAX_BACK_OFF_MS = 2000
/** Bounds of the client's `Retry-After` when all upstreams failed. */
const RETRY_AFTER_SECONDS = { min: 2, max: 30 }
/** Statuses that fail over to the next upstream without a retry: another attempt cannot fix our key, its balance, our path or model. */
const FAILOVER_STATUSES = [401, 402, 403, 404, 405, 410]

/** What is told of a call. */
export type CallSink = AnswerSink & AttemptOutcome

/** Sends a call to the candidates in order, until one answers. */
export class FailoverCall implements AnswerSource {
  /** Empty once one has answered: they hold the whole request. */
  #candidates: Candidate[]
  readonly #sink: CallSink
  readonly #context: FailoverContext
  readonly #log: UpstreamLog
  #position = 0
  /** Attempts at the candidate. */
  #tries = 0
  /** It is sent with the reasoning of each turn. */
  #hasReasoning = false
  #attempt: Attempt | null = null
  /** While an attempt is underway that the breaker let pass and that has no outcome. */
  #startedAt: number | null = null
  readonly #within = keepCurrent()
  #span: Span | null = null
  #backOff: NodeJS.Timeout | null = null
  #isAborted = false
  readonly #errors: Error[] = []

  /** The sink is called as described at `Upstreams.send`, perhaps before `start` returns. */
  constructor(candidates: Candidate[], sink: CallSink, context: FailoverContext, log: UpstreamLog) {
    this.#candidates = candidates
    this.#sink = sink
    this.#context = context
    this.#log = log
  }

  /** The next attempt: at this candidate, or at the next one whose breaker lets it pass. */
  start(): void {
    for (; this.#position < this.#candidates.length; this.#position++, this.#tries = 0) {
      const candidate = this.#candidates[this.#position] as Candidate
      if (candidate.upstream.breaker.admit(this.#context.now())) {
        this.#tries++
        this.#startedAt = this.#context.now()
        this.#hasReasoning = candidate.upstream.target.needsReasoning === true
        return this.#send(candidate, 'pool')
      }
      this.#errors.push(new Error(`the circuit breaker of ${candidate.upstream.settings.name} is open`))
    }
    this.#sink.failed(allFailed(this.#candidates, this.#errors, this.#context.now()))
  }

  pause(): void {
    this.#attempt?.pause()
  }

  resume(): void {
    this.#attempt?.resume()
  }

  abort(): void {
    this.#isAborted = true
    if (this.#backOff) clearTimeout(this.#backOff)
    this.#attempt?.abort()
    const candidate = this.#candidates[this.#position]
    if (this.#startedAt === null || !candidate) return
    candidate.upstream.breaker.cancelled()
    this.#report(candidate, 'abandoned')
  }

  #send(candidate: Candidate, connections: Connections): void {
    try {
      const { call, upstream } = candidate
      const target = this.#hasReasoning ? { ...upstream.target, needsReasoning: true } : upstream.target
      const pieces = call.pieces(target)
      if (pieces === null) return this.#dispatch(candidate, connections, call.body(target))
      pieces
        .then((body) => this.#dispatch(candidate, connections, body))
        .catch((error: Error) => this.#failed(candidate, connections, error))
    } catch (error) {
      this.#failed(candidate, connections, error as Error)
    }
  }

  #dispatch(candidate: Candidate, connections: Connections, body: string | Buffer[]): void {
    if (this.#isAborted) return
    if (this.#context.isClosed()) {
      const failure = allFailed(this.#candidates, [...this.#errors, new Error('the upstreams are closed')], this.#context.now())
      this.abort()
      return this.#sink.failed(failure)
    }
    const attempt = new Attempt(candidate.upstream, candidate.call, this.#hasReasoning, this.#sink, {
      answered: (answer) => this.#answered(candidate, answer),
      failed: (error) => this.#failed(candidate, connections, error),
    })
    this.#attempt = attempt
    if (!isTracing()) return attempt.send(connections, body)
    this.#within(() => {
      this.#span = startSpan('upstream attempt', attemptSpan(candidate.upstream.settings, candidate.call))
      this.#span.run(() => attempt.send(connections, body))
    })
  }

  #answered(candidate: Candidate, answer: StreamRewriter): void {
    const { breaker, settings, target } = candidate.upstream
    breaker.succeeded()
    if (this.#hasReasoning && !target.needsReasoning) {
      target.needsReasoning = true
      this.#log.info({ event: 'upstream_needs_reasoning', upstream: settings.name }, 'upstream gets the reasoning of each turn from now on')
    }
    this.#report(candidate, 'answered')
    this.#candidates = []
    this.#sink.answered(answer)
  }

  /** As the same attempt it is sent again at once, on a new connection if an idle one broke under it. */
  #failed(candidate: Candidate, connections: Connections, error: Error): void {
    if (this.#isAborted) return
    const { name, retry } = candidate.upstream.settings
    const { emit, random, backOffMs: firstMs } = this.#context
    const { status = 0, retryAfterMs = null, again = null } = error instanceof AttemptError ? error : {}
    if (again === 'with reasoning' || (again === 'at once' && connections === 'pool')) {
      this.#endSpan(error)
      emit({ event: 'retry', upstream: name, wire: candidate.call.wire })
      if (again === 'with reasoning') this.#hasReasoning = true
      return this.#send(candidate, again === 'at once' ? 'unpooled' : connections)
    }
    this.#report(candidate, failedOutcome(error, candidate, this.#context.now, this.#log), error)
    if (error instanceof Failure) return this.#sink.failed(error)
    if (again === 'never') return this.#sink.failed(allFailed(this.#candidates, [...this.#errors, error], this.#context.now(), NOT_AGAIN))
    const backOffMs = Math.max(retryAfterMs ?? 0, firstMs * 2 ** (this.#tries - 1) * (0.5 + random() / 2))
    if (this.#tries >= retry.attempts || FAILOVER_STATUSES.includes(status) || backOffMs > MAX_BACK_OFF_MS) {
      this.#errors.push(error)
      this.#position++
      this.#tries = 0
      return this.start()
    }
    emit({ event: 'retry', upstream: name, wire: candidate.call.wire })
    this.#backOff = setTimeout(() => this.start(), backOffMs)
  }

  /** The outcome of the attempt that is underway. */
  #report({ upstream, call }: Candidate, outcome: Outcome, error?: Error): void {
    const durationMs = this.#context.now() - (this.#startedAt ?? 0)
    this.#startedAt = null
    this.#endSpan(error ?? (outcome === 'abandoned' ? outcome : null))
    this.#context.emit({ event: 'attempt', upstream: upstream.settings.name, wire: call.wire, outcome, durationMs })
  }

  #endSpan(error: unknown): void {
    if (error !== null) this.#span?.fail(error)
    this.#span?.end()
    this.#span = null
  }
}

/** What SDKs of OpenAI and Anthropic read, which would send the request again by themselves. */
const NOT_AGAIN = { 'x-should-retry': 'false' }

function allFailed(candidates: Candidate[], errors: Error[], now: number, headers: Record<string, string> = {}): Failure {
  const waits = candidates.map(({ upstream: { breaker } }) => Math.ceil(breaker.waitMs(now) / 1000))
  const retryAfterSeconds = Math.min(RETRY_AFTER_SECONDS.max, Math.max(RETRY_AFTER_SECONDS.min, waits.length > 0 ? Math.min(...waits) : 0))
  return overLimit('upstreams', { retryAfterSeconds, headers, cause: new AggregateError(errors, 'all upstreams failed') })
}

/** The outcome of an attempt that gave no answer, which counts for the breaker unless it says nothing about the upstream. */
function failedOutcome(error: unknown, { upstream: { settings, breaker }, call }: Candidate, now: () => number, log: UpstreamLog): Outcome {
  if (error instanceof Failure) {
    breaker.succeeded()
    log.info(
      { event: 'upstream_request_refused', upstream: settings.name, wire: call.wire, code: error.code, err: error.cause },
      'upstream refused a request',
    )
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
