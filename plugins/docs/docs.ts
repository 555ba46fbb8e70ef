/**
 * API reference: `/openapi.json` (OpenAPI 3.1) and `/docs`, a page to read it. Public. The first request creates both in a separate
 * application from the recorded routes of this one: documentation cannot affect serialization, and does not slow down the start
 * (docs/decisions/0010).
 */
import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { lazy } from '../../src/concurrency/lazy.ts'
import type { Documented } from './openapi-route.ts'
import type { Reference } from './reference-app.ts'

/** Routes of the reference and its page. */
const ADDRESSES = ['/openapi.json', '/docs', '/docs/*']

async function docs(app: FastifyInstance): Promise<void> {
  const documented: Documented = { routes: [], shared: new Map() }
  const reference = lazy(open)

  app.addHook('onRoute', function collect({ url, schema, config, method }) {
    for (const one of [method].flat()) {
      // Every GET implies its HEAD.
      if (one !== 'HEAD' && !ADDRESSES.includes(url))
        documented.routes.push({ method: one, url, ...(schema ? { schema } : {}), ...(config ? { config } : {}) })
    }
    for (const [id, shared] of Object.entries(this.getSchemas())) documented.shared.set(id, shared as object)
  })

  // Claude Code probes the root of a base URL by HEAD.
  app.head('/', async (_request, reply) => reply.send())

  for (const url of ADDRESSES) {
    app.get(url, async (request, reply) => {
      const { answer } = await reference.get()
      reply.hijack()
      // A hijacked reply loses the headers that hooks have set.
      for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) reply.raw.setHeader(name, value)
      // Node sends no body to HEAD. The log line keeps the method.
      answer(Object.create(request.raw, { method: { value: 'GET' } }) as IncomingMessage, reply.raw)
    })
  }

  async function open(): Promise<Reference> {
    const { openReference } = await import('./reference-app.ts')
    return openReference(documented, {
      publicUrl: app.config.PUBLIC_URL,
      brand: app.config.BRAND,
      notFound: (request) => app.errors.body(app.errors.fail('not_found'), request),
    })
  }

  app.addHook('onClose', async () => (await reference.opened())?.close())
}

export default fp(docs, { name: 'docs', fastify: '5.x', dependencies: ['errors'], decorators: { fastify: ['config', 'errors'] } })
