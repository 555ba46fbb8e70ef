/**
 * Traces: the one interface by which the program makes spans, at a few places and by hand. Off by default, and then every call is a plain call of its work.
 * `opentelemetry.ts` is the implementation; nothing else imports OpenTelemetry (`docs/tracing.md`).
 */
import { AsyncLocalStorage } from 'node:async_hooks'

/** By the semantic conventions of OpenTelemetry. Undefined members are left out. Never a prompt, a key or an address that a tenant gave. */
export type Attributes = Record<string, string | number | boolean | undefined>

export type SpanOptions = {
  kind?: 'server' | 'client' | 'producer' | 'consumer'
  attributes?: Attributes
  /** The parent as a `traceparent` (W3C Trace Context); null starts a trace, absent is the current span. */
  parent?: string | null
  /** The `tracestate` of that parent. */
  state?: string | undefined
  /** A related span of another trace, as a `traceparent`. */
  link?: string | undefined
  /** Makes no span where none is current. */
  within?: true
}

export type Span = {
  set(attributes: Attributes): void
  /** Marks the span as failed, with an error or its type. */
  fail(error: unknown): void
  /** Ends it, now or at a time in epoch milliseconds. */
  end(atMs?: number): void
  /** Runs `work` with this span as the current one. */
  run<T>(work: () => T): T
  /** As a `traceparent` for other processes; null when traces are off. */
  readonly traceparent: string | null
}

export type Tracer = {
  start(name: string, options: SpanOptions): Span
  current(): Span | null
  detached<T>(work: () => T): T
}

const NO_SPAN: Span = { set() {}, fail() {}, end() {}, run: (work) => work(), traceparent: null }

let tracer: Tracer | null = null

/** Turns traces on, or off with null. One process has one tracer, like the log. */
export function useTracer(next: Tracer | null): void {
  tracer = next
}

/** Whether spans are recorded in this process. */
export function isTracing(): boolean {
  return tracer !== null
}

/** Runs `work` with no current span: what outlives a request must not grow its trace. */
export function detached<T>(work: () => T): T {
  return tracer === null ? work() : tracer.detached(work)
}

/** Starts a span, to be ended by the caller. */
export function startSpan(name: string, options: SpanOptions = {}): Span {
  if (tracer === null || (options.within && tracer.current() === null)) return NO_SPAN
  return tracer.start(name, options)
}

/** Runs `work` in a span of its own, which ends with it, and fails with it. A function of `options` is called only while traces are on. */
export function traced<T>(name: string, options: SpanOptions | (() => SpanOptions), work: (span: Span) => Promise<T>): Promise<T> {
  // No promise of its own: this runs several times in each request.
  return tracer === null ? work(NO_SPAN) : tracedBy(tracer, name, typeof options === 'function' ? options() : options, work)
}

async function tracedBy<T>(by: Tracer, name: string, options: SpanOptions, work: (span: Span) => Promise<T>): Promise<T> {
  if (options.within && by.current() === null) return work(NO_SPAN)
  const span = by.start(name, options)
  try {
    return await span.run(() => work(span))
  } catch (error) {
    span.fail(error)
    throw error
  } finally {
    span.end()
  }
}

const plainly = <T>(work: () => T): T => work()

/** Returns what runs later work with the span that is current now, for callbacks of what other requests share, such as connections. */
export function keepCurrent(): <T>(work: () => T) => T {
  return tracer === null ? plainly : AsyncLocalStorage.snapshot()
}

/** The current span as a `traceparent`; null when there is none. */
export function currentTraceparent(): string | null {
  return tracer?.current()?.traceparent ?? null
}

/** The current trace for a log line; empty when there is none. Names as in OpenTelemetry's log data model. */
export function logFields(traceparent = currentTraceparent()): { trace_id?: string; span_id?: string } {
  const [, traceId, spanId] = traceparent?.split('-') ?? []
  return traceId !== undefined && spanId !== undefined ? { trace_id: traceId, span_id: spanId } : {}
}

/** The id of the trace of a `traceparent`; null when the trace is not sampled, so that nobody can find it. */
export function sampledTraceId(traceparent: string | null): string | null {
  const [, traceId = null, , flags = ''] = traceparent?.split('-') ?? []
  return parseInt(flags, 16) & 1 ? traceId : null
}
