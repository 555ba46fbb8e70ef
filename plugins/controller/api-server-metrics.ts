/** Metrics of the connection to a server of resources, under the names of client-go and controller-runtime where they have one. Nothing is shown where there is no server. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Resources, SourceFigures } from '../../src/backends/resources/resources.ts'

/** Those of client-go. */
const REQUEST_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60]

/** `figures` is asked at each scrape. */
export function sourceMetrics(registry: Registry, { figures, observe, isLeading }: Pick<Resources, 'figures' | 'observe' | 'isLeading'>): void {
  const source = figures()
  if (source === null) return
  const { host, lease } = source
  const registers = [registry]
  const counter = (name: string, help: string, of: (figures: SourceFigures) => number) =>
    new Counter({
      name,
      help,
      registers,
      collect() {
        const now = figures()
        this.reset()
        if (now) this.inc(of(now))
      },
    })
  counter('tollgate_watch_starts_total', 'Watches of the API server that were begun.', ({ watches }) => watches)
  counter('tollgate_watch_failures_total', 'Lists and watches of the API server that failed.', ({ failures }) => failures)
  counter('tollgate_watch_lists_total', 'Lists of the API server that were completed.', ({ lists }) => lists)
  counter('tollgate_watch_missed_total', 'Changes that a watch had passed without telling, and a list found.', ({ missed }) => missed)
  new Counter({
    name: 'rest_client_requests_total',
    help: 'Requests to the API server.',
    labelNames: ['code', 'method', 'host'],
    registers,
    collect() {
      this.reset()
      for (const { method, code, count } of figures()?.requests ?? []) this.inc({ code, method, host }, count)
    },
  })
  const durations = new Histogram({
    name: 'rest_client_request_duration_seconds',
    help: 'How long requests to the API server took, watches excepted.',
    labelNames: ['verb', 'host'],
    buckets: REQUEST_BUCKETS,
    registers,
  })
  observe((verb, seconds) => durations.observe({ verb, host }, seconds))
  new Gauge({
    name: 'tollgate_watch_last_event_age_seconds',
    help: 'Since the watch of the API server that is silent longest last said anything.',
    registers,
    collect() {
      const age = figures()?.lastEventAgeMs ?? null
      if (age !== null) this.set(age / 1000)
    },
  })
  new Gauge({
    name: 'leader_election_master_status',
    help: 'Whether this process leads.',
    labelNames: ['name'],
    registers,
    collect() {
      this.set({ name: lease }, isLeading() ? 1 : 0)
    },
  })
}
