/** The separate application that serves /openapi.json and /docs. Loaded by the first request for either. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import about from '../../package.json' with { type: 'json' }
import { COMPONENTS } from './response-schemas.ts'
import { isDocumented, schemaOf, type Documented, type DocumentedRoute } from './openapi-route.ts'
import { TAGS } from './openapi-operations.ts'

type Means = {
  /** PUBLIC_URL, or null. */
  publicUrl: string | null
  brand: string
  /** The body of a 404. */
  notFound: (request: FastifyRequest) => object
}

export type Reference = {
  answer(request: IncomingMessage, response: ServerResponse): void
  close(): Promise<void>
}

/** Without the top bar, which could load other documents. */
const PAGE = { layout: 'BaseLayout', docExpansion: 'list', deepLinking: true } as const

/** The page runs its own scripts only, connects to this server only, and cannot be framed. */
const POLICY = {
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self' data:",
  'connect-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
}

/** Creates the document of these routes. Rejects when one of their schemas is invalid. */
export async function openReference({ routes, shared }: Documented, { publicUrl, brand, notFound }: Means): Promise<Reference> {
  const app: FastifyInstance = fastify({ logger: false, exposeHeadRoutes: false })
  // The routes are registered to be described; they get no requests.
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => JSON.stringify)
  app.setNotFoundHandler(async (request, reply) => reply.code(404).send(notFound(request)))
  app.addHook('onSend', async (_request, reply) => {
    reply.headers({
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'content-security-policy': Object.entries(POLICY)
        .map((rule) => rule.join(' '))
        .join('; '),
    })
  })
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Tollgate', version: about.version, description: DESCRIPTION },
      servers: [{ url: publicUrl ?? '/' }],
      tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
      components: { securitySchemes: { media: bearer('Media API'), coding: bearer('Coding Plan API') } },
    },
    hideUntagged: true,
    convertConstToEnum: false,
    refResolver: { buildLocalReference: ({ $id }, _base, _fragment, i) => (typeof $id === 'string' ? $id : `schema-${i}`) },
  })
  for (const schema of [...shared.values(), ...COMPONENTS]) app.addSchema(schema)
  for (const route of routes.filter(isDocumented)) describe(app, route, brand)
  await app.register(swaggerUi, { routePrefix: '/docs', theme: { title: 'Tollgate API' }, uiConfig: PAGE })
  app.get('/openapi.json', async () => app.swagger())
  await app.ready()
  return { answer: app.routing, close: () => app.close() }
}

const DESCRIPTION =
  'Two products, each with keys of its own: the Media API makes images, video and music as paid, asynchronous tasks; the Coding Plan API is an OpenAI-compatible endpoint under token windows. Every failure has a code.'

function bearer(product: string): { type: 'http'; scheme: 'bearer'; description: string } {
  return { type: 'http', scheme: 'bearer', description: `A key of the ${product}.` }
}

function describe(app: FastifyInstance, route: DocumentedRoute, brand: string): void {
  app.route({ method: route.method, url: route.url, schema: schemaOf(route, brand), handler: async () => null })
}
