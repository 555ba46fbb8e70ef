/** The Media API, registered under the prefix `/api/v1`: the routes of the specification and of `docs/media.md` over the flows in `src/tasks`. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { mediaUsage } from '../../src/tasks/media-usage.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { callerOf, READS } from './caller.ts'
import { collectionRoutes } from './collection-routes.ts'
import { creationRoutes } from './create-route.ts'
import { deliveryRoutes } from './delivery-routes.ts'
import { openEventStreams } from './event-stream.ts'
import { listEvents } from './event-list.ts'
import { EventsQuery, GenerationsQuery, OperationsQuery } from './request-schemas.ts'

async function media(app: FastifyInstance): Promise<void> {
  app.setValidatorCompiler(strictValidator())
  app.errors.own(app, { api: 'media', problem: true })
  creationRoutes(app)
  const stream = openEventStreams(app)
  collectionRoutes(app, { path: 'generations', object: 'generation', query: GenerationsQuery, stream })
  collectionRoutes(app, { path: 'operations', object: 'operation', query: OperationsQuery, stream })
  deliveryRoutes(app)
  app.withTypeProvider<TypeBoxTypeProvider>().get('/events', { config: READS, schema: { querystring: EventsQuery } }, async (request) =>
    listEvents(app.tasks, callerOf(request).key.tenant, request.query, app.config.EVENT_DAYS),
  )
  app.get('/usage', { config: READS }, async (request) => {
    const { key } = callerOf(request)
    return mediaUsage(await app.tasks.store.subscription(key.subscription), key, app.clock())
  })
}

export default fp(media, { name: 'media', fastify: '5.x', encapsulate: true, dependencies: ['errors', 'auth', 'request-body', 'task-watch'] })
