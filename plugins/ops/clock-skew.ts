/** Clock skew: compares the store's clock with ours and warns when they are more than 5 s apart. */
import type { FastifyInstance } from 'fastify'
import { Gauge, type Registry } from 'prom-client'

/** Leases and token windows compare times of different processes. */
const SKEW_MS_MAX = 5_000
const INTERVAL_MS = 30_000

/** Measures the skew every 30 s into `tollgate_clock_skew_seconds`. Logs once when it becomes too large and once when it is small again. Returns the function that stops it. */
export function watchClockSkew({ store, clock, log }: FastifyInstance, registry: Registry): () => void {
  const gauge = new Gauge({ name: 'tollgate_clock_skew_seconds', help: "The store's clock minus ours.", registers: [registry] })
  let wasSkewed = false
  const measure = async (): Promise<void> => {
    const beforeMs = clock()
    const skewMs = (await store.clock()) - (beforeMs + clock()) / 2
    gauge.set(skewMs / 1000)
    const isSkewed = Math.abs(skewMs) > SKEW_MS_MAX
    if (isSkewed && !wasSkewed) log.warn({ event: 'clock_skew', skewMs: Math.round(skewMs) }, 'clock skew above 5 s: synchronise all machines by NTP')
    if (!isSkewed && wasSkewed) log.info({ event: 'clock_skew_resolved', skewMs: Math.round(skewMs) }, 'clock skew resolved')
    wasSkewed = isSkewed
  }
  // The readiness check reports an unavailable store.
  const measureQuietly = (): void => void measure().catch(() => {})
  measureQuietly()
  const timer = setInterval(measureQuietly, INTERVAL_MS)
  return () => clearInterval(timer)
}
