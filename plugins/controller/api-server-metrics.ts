/**
 * API server metrics (requests, watches, leader election), under the names of client-go and controller-runtime where they have one. None
 * with a `files:` source.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { ApiServerStats, Resources } from '../../src/backends/resources/resources.ts'

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
  const registers = [registry]
  const counter = (name: string, help: string, of: (stats: ApiServerStats) => number) =>
    new Counter({
      name,
      help,
      registers,
      collect() {
        const now = stats()
        this.reset()
        if (now) this.inc(of(now))
      },
    })
  counter('tollgate_watch_starts_total', 'Watches of the API server started.', ({ watches }) => watches)
  counter('tollgate_watch_failures_total', 'Lists and watches of the API server that failed.', ({ failures }) => failures)
  counter('tollgate_watch_lists_total', 'Lists of the API server completed.', ({ lists }) => lists)
  counter('tollgate_watch_missed_total', 'Changes that a watch missed and a later list found.', ({ missed }) => missed)
  new Counter({
    name: 'rest_client_requests_total',
    help: 'Requests to the API server.',
    labelNames: ['code', 'method', 'host'],
    registers,
    collect() {
      this.reset()
      for (const { method, code, count } of stats()?.requests ?? []) this.inc({ code, method, host }, count)
    },
  })
  const durations = new Histogram({
    name: 'rest_client_request_duration_seconds',
    help: 'Duration of requests to the API server, without watches.',
    labelNames: ['verb', 'host'],
    buckets: REQUEST_BUCKETS,
    registers,
  })
  observe((verb, seconds) => durations.observe({ verb, host }, seconds))
  new Gauge({
    name: 'tollgate_watch_last_event_age_seconds',
    help: 'Time since the last event of the watch of the API server that has been silent longest.',
    registers,
    collect() {
      const age = stats()?.lastEventAgeMs ?? null
      if (age !== null) this.set(age / 1000)
    },
  })
  new Gauge({
    name: 'leader_election_master_status',
    help: 'Whether this process is the leader.',
    labelNames: ['name'],
    registers,
    collect() {
      this.set({ name: lease }, isLeading() ? 1 : 0)
    },
  })
}
