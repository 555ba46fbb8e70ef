/**
 * API server metrics (requests, watches, leader election), under the names of client-go and controller-runtime where they have one. None
 * with a `files:` source.
 */
import type { Registry } from 'prom-client'
import type { ApiServerStats, Resources } from '../../src/backends/resources/resources.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

/** The buckets of client-go. */
const REQUEST_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60]

/** Registers the metrics; `stats` is called at each scrape. */
export function apiServerMetrics(
  registry: Registry,
  { stats, observe, isLeading }: Pick<Resources, 'stats' | 'observe' | 'isLeading'>,
): void {
  const server = stats()
  if (server === null) return
  const { host, lease } = server
  const { countedBy, gaugedBy, histogram } = metersOf(registry)
  const counted = (name: string, help: string, of: (stats: ApiServerStats) => number) =>
    countedBy(name, help, [], (counter) => {
      const now = stats()
      if (now) counter.inc(of(now))
    })
  counted('tollgate_watch_starts_total', 'Watches of the API server started.', ({ watches }) => watches)
  counted('tollgate_watch_failures_total', 'Lists and watches of the API server that failed.', ({ failures }) => failures)
  counted('tollgate_watch_lists_total', 'Lists of the API server completed.', ({ lists }) => lists)
  counted('tollgate_watch_missed_total', 'Changes that a watch missed and a later list found.', ({ missed }) => missed)
  countedBy('rest_client_requests_total', 'Requests to the API server.', ['code', 'method', 'host'], (counter) => {
    for (const { method, code, count } of stats()?.requests ?? []) counter.inc({ code, method, host }, count)
  })
  const durations = histogram(
    'rest_client_request_duration_seconds',
    'Duration of requests to the API server, without watches.',
    REQUEST_BUCKETS,
    'verb',
    'host',
  )
  observe((verb, seconds) => durations.observe({ verb, host }, seconds))
  gaugedBy(
    'tollgate_watch_last_event_age_seconds',
    'Time since the last event of the watch of the API server that has been silent longest.',
    [],
    (gauge) => {
      const age = stats()?.lastEventAgeMs ?? null
      if (age !== null) gauge.set(age / 1000)
    },
  )
  gaugedBy('leader_election_master_status', 'Whether this process is the leader.', ['name'], (gauge) =>
    gauge.set({ name: lease }, isLeading() ? 1 : 0),
  )
}
