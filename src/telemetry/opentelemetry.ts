/** Traces by the SDK of OpenTelemetry, exported by OTLP over HTTP. Loaded only where an endpoint is set. */
import { AsyncLocalStorage } from 'node:async_hooks'
import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  diag,
  DiagLogLevel,
  trace,
  TraceFlags,
  type Span as ApiSpan,
  type SpanContext,
} from '@opentelemetry/api'
import { parseTraceParent, TraceState } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type BatchSpanProcessorOptions,
  type Sampler,
} from '@opentelemetry/sdk-trace'
import type { Attributes, Span, Tracer } from './tracing.ts'

const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT, producer: SpanKind.PRODUCER, consumer: SpanKind.CONSUMER } as const

/** A longer `tracestate` need not be kept (W3C Trace Context, section 3.3.1.5). */
const STATE_LENGTH = 512
const VALUE_LENGTH = 1024
/** Problems of the exporter are logged at most this often. */
const WARNING_MS = 60_000
/** What is not sent within this time after the program stopped is lost. */
const SHUTDOWN_MS = 3_000

export type TracerSettings = {
  /** As in `OTEL_TRACES_SAMPLER`, with `parentbased_` or without. */
  sampler: string
  ratio: number
  batch: Omit<BatchSpanProcessorOptions, 'exporter'>
}

export type OpenTracer = Tracer & { close(): Promise<void> }

/** Opens the exporter, which reads its own settings (`OTEL_EXPORTER_OTLP_*`), and a tracer. `warn` gets problems of the exporter. */
export function openTracer(settings: TracerSettings, resource: Attributes, warn: (problem: string) => void): OpenTracer {
  diag.setLogger(rareWarnings(warn), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true })
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(resourceFromAttributes(resource as Record<string, string>))
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: samplerOf(settings),
    spanLimits: { attributeValueLengthLimit: VALUE_LENGTH },
    spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter(), ...settings.batch })],
  })
  const tracer = provider.getTracer('tollgate')
  const current = new AsyncLocalStorage<Recorded | null>()

  function wrap(span: ApiSpan): Recorded {
    const context = span.spanContext()
    const wrapped: Recorded = {
      context,
      set: (attributes) => void span.setAttributes(attributes),
      fail: (error) => void span.setAttribute('error.type', errorType(error)).setStatus({ code: SpanStatusCode.ERROR }),
      end: (atMs) => span.end(atMs),
      run: (work) => current.run(wrapped, work),
      get traceparent() {
        return textOf(context)
      },
    }
    return wrapped
  }

  return {
    start(name, { kind, attributes, parent, state, link }) {
      const outer = parent === undefined ? current.getStore() : null
      // All samplers decide for a whole trace, so what is below an unsampled span costs nothing.
      if (outer && !isSampled(outer.context)) return unsampled(outer)
      const above = outer ? outer.context : contextOf(parent, state)
      const related = contextOf(link)
      const context = above ? trace.setSpanContext(ROOT_CONTEXT, above) : ROOT_CONTEXT
      return wrap(
        tracer.startSpan(
          name,
          {
            kind: kind ? KINDS[kind] : SpanKind.INTERNAL,
            ...(attributes ? { attributes } : {}),
            ...(related ? { links: [{ context: related }] } : {}),
          },
          context,
        ),
      )
    },
    current: () => current.getStore() ?? null,
    detached: (work) => current.run(null, work),
    close: () =>
      Promise.race([provider.shutdown().catch(() => {}), new Promise<void>((resolve) => setTimeout(resolve, SHUTDOWN_MS).unref())]),
  }
}

type Recorded = Span & { context: SpanContext }

const isSampled = ({ traceFlags }: SpanContext) => (traceFlags & TraceFlags.SAMPLED) !== 0

function textOf(context: SpanContext): string {
  return `00-${context.traceId}-${context.spanId}-0${isSampled(context) ? 1 : 0}`
}

/** A span below one that is not sampled: its context is that of the other. */
function unsampled({ context }: Recorded): Span {
  return {
    set() {},
    fail() {},
    end() {},
    run: (work) => work(),
    get traceparent() {
      return textOf(context)
    },
  }
}

function samplerOf({ sampler, ratio }: TracerSettings): Sampler {
  const roots: Record<string, () => Sampler> = {
    always_on: () => new AlwaysOnSampler(),
    always_off: () => new AlwaysOffSampler(),
    traceidratio: () => new TraceIdRatioBasedSampler(ratio),
  }
  const root = (roots[sampler.replace('parentbased_', '')] ?? roots['always_on'])?.() ?? new AlwaysOnSampler()
  return sampler.startsWith('parentbased_') ? new ParentBasedSampler({ root }) : root
}

/** A `traceparent` of another process; null for a malformed one. */
function contextOf(traceparent: string | null | undefined, state?: string): SpanContext | null {
  const parsed = traceparent ? parseTraceParent(traceparent) : null
  if (!parsed) return null
  return { ...parsed, isRemote: true, ...(state && state.length <= STATE_LENGTH ? { traceState: new TraceState(state) } : {}) }
}

/** The class or code of an error. Its message may quote what a client sent. */
function errorType(error: unknown): string {
  if (typeof error === 'string') return error
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown }
  return typeof code === 'string' ? code : typeof name === 'string' ? name : '_OTHER'
}

function rareWarnings(warn: (problem: string) => void) {
  let lastMs = -Infinity
  const report = (message: string, ...rest: unknown[]) => {
    if (performance.now() - lastMs < WARNING_MS) return
    lastMs = performance.now()
    warn([message, ...rest.map((part) => (part instanceof Error ? part.message : String(part)))].join(' ').slice(0, 500))
  }
  return { error: report, warn: report, info() {}, debug() {}, verbose() {} }
}
