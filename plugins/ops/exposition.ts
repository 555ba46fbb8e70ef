/** The text of /metrics: Prometheus' text format, and OpenMetrics 1.0 with exemplars for scrapers that prefer it. */
import { Registry, type Metric, type MetricObject } from 'prom-client'

/** Parameters other than the version choose no format: Prometheus sends `escaping` too. */
type MediaRange = { type: string; version: string | undefined; q: number }

/**
 * Returns the metrics of `registry` in the format that an `Accept` header prefers by its q values (RFC 9110, section 12.5.1). The text
 * format is the answer to equal preferences, and to a header that accepts neither.
 */
export async function exposition(registry: Registry, accept = '*/*'): Promise<{ contentType: string; text: string }> {
  const ranges = accept.split(',').map(mediaRange)
  const isOpen = quality(ranges, 'application/openmetrics-text', '1.0.0') > quality(ranges, 'text/plain', '0.0.4')
  return isOpen
    ? { contentType: Registry.OPENMETRICS_CONTENT_TYPE, text: await openMetrics(registry) }
    : { contentType: registry.contentType, text: await registry.metrics() }
}

/** prom-client renames the counters of a registry that it prints as OpenMetrics, so a registry of views of them is printed instead. */
async function openMetrics(registry: Registry): Promise<string> {
  const views = new Registry(Registry.OPENMETRICS_CONTENT_TYPE)
  for (const metric of registry.getMetricsAsArray() as (MetricObject & Metric)[])
    views.registerMetric(metric.type === 'counter' ? counterView(metric) : metric)
  const text = await views.metrics()
  // Quotation marks are escaped in OpenMetrics only, and prom-client escapes them in labels alone.
  return text.replaceAll(/(?<=^|\n)# HELP [^\n]*/g, (help) => help.replaceAll('"', '\\"'))
}

/**
 * The family of a counter has no suffix in OpenMetrics; its samples have `_total`. A counter of a plugin that is named otherwise keeps its
 * name, as of unknown type.
 */
function counterView(counter: MetricObject & Metric): Metric {
  const view = counter.name.endsWith('_total')
    ? { name: counter.name.slice(0, -'_total'.length), type: 'counter' }
    : { name: counter.name, type: 'unknown' }
  return { ...view, get: async () => ({ ...(await counter.get()), ...view }) } as unknown as Metric
}

function mediaRange(text: string): MediaRange {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase())
  const valueOf = (name: string) =>
    parameters
      .find((parameter) => parameter.startsWith(`${name}=`))
      ?.slice(name.length + 1)
      .replaceAll('"', '')
  const q = valueOf('q') ?? '1'
  return { type, version: valueOf('version'), q: /^(0(\.\d{0,3})?|1(\.0{0,3})?)$/.test(q) ? Number(q) : 0 }
}

/** The q value of the most specific range that includes this format; 0 when there is none. */
function quality(ranges: MediaRange[], type: string, version: string): number {
  const including = [
    (range: MediaRange) => range.type === type && range.version === version,
    (range: MediaRange) => range.type === type && range.version === undefined,
    (range: MediaRange) => range.type === `${type.split('/')[0]}/*`,
    (range: MediaRange) => range.type === '*/*',
  ]
  const specific = including.map((includes) => ranges.filter(includes)).find(({ length }) => length > 0) ?? []
  return Math.max(0, ...specific.map(({ q }) => q))
}
