/** The page: its built files, and the addresses that answer with it. Public; everything that it shows comes from `/dashboard/api`. */
import fastifyStatic from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { Failure } from '../../src/domain/errors.ts'
import { sendPage } from './sign-in-page.ts'

/** Built by `npm run build:dashboard`. */
const DIST = join(import.meta.dirname, 'dist')

/** The addresses that the page's own router knows (web/router.ts), below the prefix of the scope. */
const PAGES = ['/', '/keys', '/usage/media', '/usage/coding', '/room', '/tasks', '/tasks/:id']

const NOT_BUILT = {
  title: 'The dashboard is not built',
  sentence: 'Run npm run build:dashboard in the folder of the program, then reload this page.',
}

/**
 * Registers the page in the scope whose prefix is `/dashboard`. Assets have a hash in their name and are immutable; the page itself is
 * never stored. A browser gets the page, with status 404, at every other address too: it says that nothing is there, or leads to sign-in
 * first.
 */
export async function pageRoutes(app: FastifyInstance): Promise<void> {
  const page = (_request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    reply.header('cache-control', 'no-store')
    if (!existsSync(join(DIST, 'index.html'))) return sendPage(reply, 503, NOT_BUILT)
    return reply.sendFile('index.html', { cacheControl: false, etag: false, lastModified: false })
  }
  await app.register(fastifyStatic, { root: DIST, serve: false, preCompressed: true, index: false, logLevel: 'error' })
  for (const url of PAGES) app.get(url, page)
  app.setNotFoundHandler(async (request, reply) => {
    if (request.method === 'GET' && (request.headers.accept ?? '').includes('text/html')) return page(request, reply.code(404))
    throw app.errors.unrouted(request)
  })
  app.get('/assets/:file', (request, reply) => {
    const { file } = request.params as { file: string }
    // Names that Vite gives. Others would reach the files beside, or be answered as a method that is not allowed.
    if (!/^[\w-][\w.-]*$/.test(file) || !existsSync(join(DIST, 'assets', file))) throw new Failure('not_found')
    return reply.sendFile(`assets/${file}`, { immutable: true, maxAge: '365d', etag: false, lastModified: false })
  })
}
