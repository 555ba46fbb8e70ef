/** Turns traces on where an OTLP endpoint is set. Without one nothing of OpenTelemetry is loaded. */
import type { FastifyBaseLogger } from 'fastify'
import type { Config } from '../config/config.ts'
import { readTraceSettings } from '../config/trace-settings.ts'
import { useTracer } from '../telemetry/tracing.ts'

/** Throws a `ConfigError`. `close` sends what is left, for a few seconds at most. */
export async function openTracing(config: Config, log: FastifyBaseLogger): Promise<{ close(): Promise<void> }> {
  const settings = readTraceSettings(config.environment)
  if (settings === null) return { async close() {} }
  const { openTracer } = await import('../telemetry/opentelemetry.ts')
  const warn = (problem: string) => log.warn({ event: 'trace_export_failed', problem }, 'trace export failed, spans are dropped')
  const tracer = openTracer(settings, { 'service.name': 'tollgate', 'service.namespace': 'tollgate', 'tollgate.role': config.ROLE }, warn)
  useTracer(tracer)
  return {
    async close() {
      useTracer(null)
      await tracer.close()
    },
  }
}
