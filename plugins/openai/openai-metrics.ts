/** Metrics of coding requests (time to first token, gateway overhead) and of upstreams (attempts, retries, breaker state). */
import type { Registry } from 'prom-client'
import type { Upstreams } from '../../src/upstream/upstreams.ts'
import type { ExchangeMetrics } from '../../src/upstream/exchange/exchange.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

const STATES = ['closed', 'half_open', 'open'] as const

/** Registers the metrics; the state of each upstream is read at a scrape. */
export function openaiMetrics(registry: Registry, upstreams: Upstreams): ExchangeMetrics {
  const { counter, gaugedBy, histogram } = metersOf(registry)
  const first = histogram(
    'tollgate_coding_time_to_first_token_seconds',
    'From a request to the first byte of its streamed answer.',
    [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120],
    'wire',
  )
  const between = histogram(
    'tollgate_coding_inter_token_seconds',
    'Mean time between the tokens of one streamed answer.',
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1],
    'wire',
  )
  const overheads = histogram(
    'tollgate_gateway_overhead_seconds',
    'From a request to its first attempt at an upstream, including the wait in the admission queue.',
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2],
    'wire',
  )
  const requests = counter('tollgate_upstream_requests_total', 'Attempts at upstreams.', 'upstream', 'outcome')
  const durations = histogram(
    'tollgate_upstream_duration_seconds',
    'From the start of an attempt to the first byte of its answer or to its failure.',
    [0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120],
    'upstream',
    'outcome',
  )
  const retries = counter('tollgate_upstream_retries_total', 'Retries at the same upstream.', 'upstream')
  gaugedBy(
    'tollgate_upstream_breaker_state',
    '0: closed. 1: half open, the next request is the probe. 2: open, including while a probe is in flight.',
    ['upstream'],
    (gauge) => {
      gauge.reset()
      for (const { name, breaker } of upstreams.states()) gauge.set({ upstream: name }, STATES.indexOf(breaker))
    },
  )
  upstreams.observe((event) => {
    if (event.event === 'retry') return retries.inc({ upstream: event.upstream })
    requests.inc({ upstream: event.upstream, outcome: event.outcome })
    durations.observe({ upstream: event.upstream, outcome: event.outcome }, event.durationMs / 1000)
  })
  return {
    overhead: (wire, ms) => overheads.observe({ wire }, ms / 1000),
    firstToken: (wire, ms) => first.observe({ wire }, ms / 1000),
    estimated: estimateMetric(registry),
    leftEarly: earlyMetric(registry),
    interToken: (wire, tokens, ms) => tokens > 1 && between.observe({ wire }, ms / 1000 / (tokens - 1)),
  }
}

function estimateMetric(registry: Registry): ExchangeMetrics['estimated'] {
  const ratios = metersOf(registry).histogram(
    'tollgate_coding_estimate_ratio',
    'Estimated over reported tokens of a request whose upstream reported its usage. Reservations and charges without a report depend on the estimates.',
    [0.25, 0.5, 0.75, 0.9, 1.1, 1.33, 2, 4, 8],
    'kind',
  )
  return (estimate, reported) => {
    if (reported.input > 0) ratios.observe({ kind: 'input' }, estimate.input / reported.input)
    if (reported.output > 0) ratios.observe({ kind: 'output' }, estimate.output / reported.output)
  }
}

function earlyMetric(registry: Registry): ExchangeMetrics['leftEarly'] {
  const tokens = metersOf(registry).counter(
    'tollgate_coding_early_output_tokens_total',
    'Output tokens of streams whose client left before their end: seen, and charged by the report of an upstream that was read on or by the estimate of one that was cut off.',
    'kind',
  )
  return ({ usage, estimated }, seen) => {
    const by = estimated ? 'estimated' : 'reported'
    tokens.inc({ kind: `seen_${by}` }, seen.output)
    tokens.inc({ kind: by }, usage.output)
  }
}
