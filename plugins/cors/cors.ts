/**
 * Cross-origin requests of web pages to /v1 (the Fetch standard, "CORS protocol"), for the origins of CORS_ORIGINS. Registered before the key is read,
 * because a browser sends none with its preflight.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/domain/errors.ts'

/** Seconds for which a browser keeps the answer to a preflight. */
const MAX_AGE = '7200'
const HEADER_LIST = /^[A-Za-z0-9, -]{1,2000}$/

async function cors(app: FastifyInstance): Promise<void> {
  const origins = new Set(app.config.CORS_ORIGINS)

  app.addHook('onRequest', ({ url, headers: { origin } }, reply, done) => {
    if (url.startsWith('/v1/')) {
      reply.header('vary', 'Origin')
      // A key is no credential of the browser. Without those, `*` exposes all headers.
      if (origin !== undefined && (origins.has(origin) || origins.has('*')))
        reply.headers({ 'access-control-allow-origin': origin, 'access-control-expose-headers': '*' })
    }
    done()
  })
  app.options('/v1/*', {
    // The parsers of this scope are outside the memory of bodies.
    preParsing({ headers }, _reply, _payload, done) {
      const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
      done(hasBody ? new Failure('payload_too_large', { message: 'A preflight has no body.' }) : null)
    },
    async handler({ headers }, reply) {
      const asked = headers['access-control-request-headers']
      if (reply.hasHeader('access-control-allow-origin'))
        reply.headers({
          'access-control-allow-methods': 'GET, POST',
          'access-control-max-age': MAX_AGE,
          ...(asked !== undefined && HEADER_LIST.test(asked) ? { 'access-control-allow-headers': asked } : {}),
        })
      return reply.code(204).send()
    },
  })
}

export default fp(cors, { name: 'cors', fastify: '5.x', dependencies: ['errors'], decorators: { fastify: ['config'] } })
