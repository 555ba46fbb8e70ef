/** The routes in force of the PROXY_ROUTES file. An invalid file prevents startup; later it is logged once and the last valid one stays. */
import { readFile } from 'node:fs/promises'
import type { FastifyInstance } from 'fastify'
import { watchFile, type WatchedFile } from '../../src/concurrency/watched-file.ts'
import { unreadable } from '../../src/domain/settings-file.ts'
import { routeTable, type RouteTable } from './route-table.ts'
import { parseProxyRoutes } from './routes-file.ts'

/** Paths of Tollgate that no route of this process may serve. */
const RESERVED = ['dashboard']

/** Reads the file when all plugins are registered, because no prefix may collide with theirs, and then every `pollMs`. */
export function watchRoutes(app: FastifyInstance, file: string, pollMs: number): RouteTable {
  let table = routeTable([])
  let loaded: string | null = null
  let watched: WatchedFile | undefined

  async function load(): Promise<void> {
    const text = await readFile(file, 'utf8').catch(unreadable('PROXY_ROUTES', file))
    if (text === loaded) return
    const routes = parseProxyRoutes(file, text, new Set([...app.errors.served(), ...RESERVED]))
    table = routeTable(routes)
    loaded = text
    const shown = routes.map(({ prefix, upstream, api }) => ({ prefix, upstream, product: api }))
    app.log.info({ event: 'proxy_routes_changed', routes: shown }, 'pass-through routes in use')
  }

  function refused({ message }: Error): void {
    app.log.error({ event: 'proxy_routes_refused', err: message }, 'PROXY_ROUTES file refused, the last valid one stays in use')
  }

  app.addHook('onReady', async () => {
    watched = await watchFile(load, refused, pollMs)
  })
  app.addHook('onClose', async () => watched?.close())
  return (url) => table(url)
}
