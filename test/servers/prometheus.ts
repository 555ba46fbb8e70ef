/** Starts Prometheus. */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { freePort, start } from './process.ts'
import { PROMETHEUS } from './prometheus-package.ts'
import { serve, type Server } from './server.ts'
import { own } from './shared.ts'

/** The result of an instant query: a sample per series. */
export type Sample = { metric: Record<string, string>; value: [number, string] }

export type Prometheus = Server & {
  /** Evaluates a query now. Throws with Prometheus' message when it does not parse. */
  query(expr: string): Promise<Sample[]>
  /** The trace ids of the exemplars of the last ten minutes, by the labels of their series. */
  exemplars(expr: string): Promise<{ labels: Record<string, string>; traceIds: string[] }[]>
  /** The firing and pending alerts. */
  alerts(): Promise<{ labels: Record<string, string>; state: string }[]>
}

/** Addresses (`host:port`), and labels of all their series. */
export type Targets = { targets: string[]; labels: Record<string, string> }

/** Serves targets that change, in the format of Prometheus' HTTP service discovery. */
async function openDiscovery(t: Test, find: () => Promise<Targets[]>): Promise<string> {
  const server = createServer(async (_request, response) => {
    const body = await find().then((targets) => JSON.stringify(targets), () => null)
    response.writeHead(body === null ? 503 : 200, { 'content-type': 'application/json' }).end(body ?? '')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/**
 * A private Prometheus that scrapes `/metrics` of these addresses (`host:port`), or of those that a function finds, every five seconds and evaluates these files of rules every second. It listens on a free port of loopback, or as `listen` says; null,
 * with the test skipped, when it is not installed.
 */
export function ownPrometheus(t: Test, targets: string[] | (() => Promise<Targets[]>), rules: string[] = [], listen?: { address: string; port: number }): Promise<Prometheus | null> {
  return own(t, [PROMETHEUS.name], async () => {
    const { address, port } = listen ?? { address: '127.0.0.1', port: await freePort() }
    const found = Array.isArray(targets) ? { static_configs: [{ targets }] } : { http_sd_configs: [{ url: await openDiscovery(t, targets), refresh_interval: '5s' }] }
    const config = {
      // While the store is away, a scrape takes the two seconds after which its check gives up.
      global: { scrape_interval: '5s', scrape_timeout: '5s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [{ job_name: 'tollgate', ...found }],
    }
    const url = `http://${address}:${port}`
    const ready = () => fetch(`${url}/-/ready`).then(({ ok }) => ok, () => false)
    const server = await serve(
      (folder) => writeFile(join(folder, 'prometheus.yml'), JSON.stringify(config)),
      async (folder, running) => {
        const settings = { 'config.file': join(folder, 'prometheus.yml'), 'storage.tsdb.path': join(folder, 'data'), 'web.listen-address': `${address}:${port}`, 'enable-feature': 'exemplar-storage' }
        running.push(await start({ argv: [installed(PROMETHEUS.name), ...Object.entries(settings).map(([name, value]) => `--${name}=${value}`)], ready }))
      },
    )
    const ask = async <T>(path: string, parameters: Record<string, string>): Promise<T> => {
      const { data, error } = (await (await fetch(`${url}/api/v1/${path}`, { method: 'POST', body: new URLSearchParams(parameters) })).json()) as { data: T; error?: string }
      if (error !== undefined) throw new Error(`${parameters['query']}: ${error}`)
      return data
    }
    return {
      ...server,
      query: async (query) => (await ask<{ result: Sample[] }>('query', { query })).result,
      async exemplars(query) {
        const now = Date.now() / 1000
        const found = await ask<{ seriesLabels: Record<string, string>; exemplars: { labels: Record<string, string> }[] }[]>('query_exemplars', { query, start: String(now - 600), end: String(now) })
        return found.map(({ seriesLabels, exemplars }) => ({ labels: seriesLabels, traceIds: exemplars.map(({ labels }) => labels['trace_id'] ?? '') }))
      },
      alerts: async () => ((await (await fetch(`${url}/api/v1/alerts`)).json()) as { data: { alerts: { labels: Record<string, string>; state: string }[] } }).data.alerts,
    }
  })
}
