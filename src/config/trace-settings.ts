/** Settings of traces, by OpenTelemetry's own names. Those of the exporter (`OTEL_EXPORTER_OTLP_*`) it reads itself, except what must be refused here. */
import { ConfigError } from './setting-types.ts'

const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

export type TraceSettings = {
  sampler: (typeof SAMPLERS)[number]
  /** Share of traces of the samplers by ratio, from 0 to 1. */
  ratio: number
  batch: { scheduledDelayMillis: number; maxQueueSize: number; maxExportBatchSize: number; exportTimeoutMillis: number }
}

/** Reads them from the environment; null: traces are off, because no endpoint is set. Throws a `ConfigError`. */
export function readTraceSettings(environment: Record<string, string | undefined>): TraceSettings | null {
  const given = (...names: string[]): { name: string; text: string } => {
    const name = names.find((one) => environment[one]) ?? names[0] ?? ''
    return { name, text: environment[name] ?? '' }
  }
  const oneOf = <T extends string>(values: readonly T[], fallback: T, ...names: string[]): T => {
    const { name, text } = given(...names)
    const found = values.find((value) => value === (text || fallback))
    if (found === undefined) throw new ConfigError(name, text, values.join(', '))
    return found
  }
  const whole = (name: string, fallback: number): number => {
    const { text } = given(name)
    if (!/^\d{0,9}$/.test(text) || text === '0') throw new ConfigError(name, text, 'a whole number from 1')
    return text === '' ? fallback : Number(text)
  }
  const endpoint = given('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT')
  if (endpoint.text === '' || given('OTEL_SDK_DISABLED').text.toLowerCase() === 'true') return null
  if (oneOf(['otlp', 'none'], 'otlp', 'OTEL_TRACES_EXPORTER') === 'none') return null
  if (!['http:', 'https:'].includes(URL.parse(endpoint.text)?.protocol ?? ''))
    throw new ConfigError(endpoint.name, endpoint.text, 'an http or https address')
  oneOf(['http/protobuf'], 'http/protobuf', 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL')
  const ratio = given('OTEL_TRACES_SAMPLER_ARG')
  if (!/^(\d*\.?\d+)?$/.test(ratio.text) || Number(ratio.text) > 1) throw new ConfigError(ratio.name, ratio.text, 'a number from 0 to 1')
  return {
    sampler: oneOf(SAMPLERS, 'parentbased_always_on', 'OTEL_TRACES_SAMPLER'),
    ratio: ratio.text === '' ? 1 : Number(ratio.text),
    batch: {
      scheduledDelayMillis: whole('OTEL_BSP_SCHEDULE_DELAY', 5_000),
      maxQueueSize: whole('OTEL_BSP_MAX_QUEUE_SIZE', 2_048),
      maxExportBatchSize: whole('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512),
      exportTimeoutMillis: whole('OTEL_BSP_EXPORT_TIMEOUT', 30_000),
    },
  }
}
