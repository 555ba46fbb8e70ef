/** The upstreams in use: applies a changed UPSTREAMS file while calls are in flight, and starts the built-in echo on demand. */
import { lazy } from '../concurrency/lazy.ts'
import { openUpstream, type Upstream } from './http/upstream.ts'
import type { UpstreamLog } from './selection/retry-and-failover.ts'
import type { UpstreamSettings } from './upstreams-file.ts'

export type ActiveUpstreams = {
  /** The same list until a change. */
  all(): readonly Upstream[]
  /** An unchanged upstream keeps its connections and its breaker. A removed or changed one finishes its calls in flight. */
  apply(list: UpstreamSettings[]): Promise<void>
  /** Ends all calls in flight and stops the echo. */
  close(): Promise<void>
}

export function openActiveUpstreams(log: UpstreamLog): ActiveUpstreams {
  let active = new Map<string, Upstream>()
  let all: readonly Upstream[] = []
  const echo = lazy(async () => (await import('./echo/echo-server.ts')).openEcho(log))
  const draining = new Set<Upstream>()

  async function open(settings: UpstreamSettings): Promise<Upstream> {
    if (settings.baseUrl !== 'echo:') return openUpstream(settings, settings.baseUrl, settings.apiKey)
    const { url, token } = await echo.get()
    return openUpstream(settings, url, token)
  }

  function drain(upstream: Upstream): void {
    draining.add(upstream)
    void upstream.pool.drain().finally(() => draining.delete(upstream))
  }

  return {
    all: () => all,
    async apply(list) {
      const next = new Map<string, Upstream>()
      for (const settings of list) {
        const before = active.get(settings.name)
        next.set(settings.name, before && JSON.stringify(before.settings) === JSON.stringify(settings) ? before : await open(settings))
      }
      const removed = [...active.values()].filter((upstream) => next.get(upstream.settings.name) !== upstream)
      const added = [...next.values()].some((upstream) => active.get(upstream.settings.name) !== upstream)
      if (!added && removed.length === 0) return
      active = next
      all = [...next.values()]
      for (const upstream of removed) drain(upstream)
      log.info(
        { event: 'upstreams_changed', upstreams: list.map(({ name, wires, priority }) => ({ name, wires, priority })) },
        'upstreams in use',
      )
    },
    async close() {
      const open = [...active.values(), ...draining]
      active = new Map()
      all = []
      await Promise.all(open.map((upstream) => upstream.pool.destroy()))
      await (await echo.opened())?.close()
    },
  }
}
