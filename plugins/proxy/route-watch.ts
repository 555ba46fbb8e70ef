/** The routes in force of the PROXY_ROUTES file. An invalid file prevents startup; later it is logged once and the last valid one stays. */
import { readFile } from 'node:fs/promises'
import type { FastifyInstance } from 'fastify'
import { watchFile, type WatchedFile } from '../../src/concurrency/watched-file.ts'
import { SettingsFileError } from '../../src/domain/settings-file.ts'
import { routeTable, type RouteTable } from './route-table.ts'
import { parseProxyRoutes, type ProxyRoute } from './routes-file.ts'

/** Paths of Tollgate that no route of this process may serve. */
const RESERVED = ['dashboard']

/** Reads the file when all plugins are registered, because no prefix may collide with theirs, and then every `pollMs`. */
export function watchRoutes(app: FastifyInstance, file: string, pollMs: number): RouteTable {
  let table = routeTable([])
  let loaded: string | null = null
  let watched: WatchedFile | undefined

  async function load(): Promise<void> {
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      throw new SettingsFileError('PROXY_ROUTES', file, null, `cannot be read (${error.code ?? 'error'})`)
    })
    if (text === loaded) return
    const routes = parseProxyRoutes(file, text, new Set([...app.errors.served(), ...RESERVED]))
    table = routeTable(routes)
    loaded = text
    app.log.info({ event: 'proxy_routes_changed', routes: routes.map(shownRoute) }, 'pass-through routes in use')
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

function shownRoute({ prefix, upstream, api }: ProxyRoute): object {
  return { prefix, upstream, product: api }
}
