/** The page: its built files, and the addresses that answer with it. Public; everything that it shows comes from `/dashboard/api`. */
import fastifyStatic from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

/** Built by `npm run build:dashboard`. */
const DIST = join(import.meta.dirname, 'dist')

/** The addresses that the page's own router knows (web/router.ts), below the prefix of the scope. */
const PAGES = ['/', '/keys', '/usage/media', '/usage/coding', '/room', '/tasks', '/tasks/:id']

const NOT_BUILT = '<!doctype html><html lang="en"><title>Tollgate</title><h1>The dashboard is not built</h1><p>Build it in the folder of the program, then reload: <code>npm run build:dashboard</code></p></html>'

export type PageOptions = {
  /** Origins beside ours from which results may be shown and read: that of the links to files. */
  origins: () => string[]
  /** The folder with the built files. */
  dist?: string
}

/**
 * Registers the page in a scope whose prefix is `/dashboard`. Assets have a hash in their name and are immutable; the page itself is never stored.
 * Returns the handler that answers with the page, for other routes that show it.
 */
export async function pageRoutes(app: FastifyInstance, { origins, dist = DIST }: PageOptions): Promise<(request: FastifyRequest, reply: FastifyReply) => FastifyReply> {
  app.addHook('onSend', async (_request, reply) => void reply.headers(securityHeaders(origins())))

  const page = (_request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    reply.header('cache-control', 'no-store')
    if (!existsSync(join(dist, 'index.html'))) return reply.code(503).type('text/html; charset=utf-8').send(NOT_BUILT)
    return reply.sendFile('index.html', { cacheControl: false, etag: false, lastModified: false })
  }
  await app.register(fastifyStatic, { root: dist, serve: false, preCompressed: true, index: false, logLevel: 'error' })
  for (const url of PAGES) app.get(url, page)
  app.get('/assets/:file', (request, reply) => {
    const { file } = request.params as { file: string }
    return reply.sendFile(`assets/${file}`, { immutable: true, maxAge: '365d', etag: false, lastModified: false })
  })
  return page
}

/** For everything under `/dashboard`: nothing inline, nothing from elsewhere, no frame around it. uPlot and Preact set styles through CSSOM, which the policy does not concern. */
function securityHeaders(origins: string[]): Record<string, string> {
  const also = origins.map((origin) => ` ${origin}`).join('')
  return {
    'content-security-policy': [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      `img-src 'self' blob: data:${also}`,
      `media-src 'self' blob:${also}`,
      `connect-src 'self'${also}`,
      "font-src 'self'",
      "form-action 'self'",
      "base-uri 'none'",
      "frame-ancestors 'none'",
    ].join('; '),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
  }
}
