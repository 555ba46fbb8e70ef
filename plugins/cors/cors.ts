/**
 * Cross-origin requests of web pages to /v1 (the Fetch standard, "CORS protocol"), for the origins of CORS_ORIGINS. Registered before the key is read,
 * because a browser sends none with its preflight.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'

/** Seconds for which a browser keeps the answer to a preflight. */
const MAX_AGE = '7200'
const HEADER_LIST = /^[A-Za-z0-9, -]{1,2000}$/

async function cors(app: FastifyInstance): Promise<void> {
  const origins = new Set(app.config.CORS_ORIGINS)

  /** Adds what lets the page read the answer. False for an origin that is not listed. */
  function admit({ headers: { origin } }: FastifyRequest, reply: FastifyReply): boolean {
    reply.header('vary', 'Origin')
    if (origin === undefined || !(origins.has(origin) || origins.has('*'))) return false
    // A key is no credential of the browser. Without those, `*` exposes all headers.
    reply.headers({ 'access-control-allow-origin': origin, 'access-control-expose-headers': '*' })
    return true
  }

  app.addHook('onRequest', (request, reply, done) => {
    if (request.routeOptions.config.api === 'coding') admit(request, reply)
    done()
  })
  app.options('/v1/*', async (request, reply) => {
    const asked = request.headers['access-control-request-headers']
    if (admit(request, reply))
      reply.headers({
        'access-control-allow-methods': 'GET, POST',
        'access-control-max-age': MAX_AGE,
        ...(asked !== undefined && HEADER_LIST.test(asked) ? { 'access-control-allow-headers': asked } : {}),
      })
    return reply.code(204).send()
  })
}

export default fp(cors, { name: 'cors', fastify: '5.x', dependencies: ['errors'], decorators: { fastify: ['config'] } })
