/**
 * The Media API, registered under the prefix `/api/v1`, and again for the sessions of the dashboard: the routes of the specification and of
 * `docs/media.md` over the flows in `src/tasks`.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { capabilities } from '../../src/tasks/capabilities.ts'
import { mediaUsage } from '../../src/tasks/media-usage.ts'
import { listUsage, UsageQuery } from '../../src/tasks/list-usage.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { callerOf, configsOf } from './caller.ts'
import { collectionRoutes } from './collection-routes.ts'
import { creationRoutes } from './create-route.ts'
import { deliveryRoutes } from './delivery-routes.ts'
import { openEventStreams } from './event-stream.ts'
import { listEvents } from './event-list.ts'
import { EventsQuery, GenerationsQuery, OperationsQuery } from './request-schemas.ts'
import { uploadRoutes } from './upload-routes.ts'

export type MediaOptions = {
  /** For callers without a key: `?plan=` names the plan that pays, and tasks send no webhooks, which no key would sign. */
  keyless?: boolean
}

async function media(app: FastifyInstance, { keyless = false }: MediaOptions): Promise<void> {
  app.setValidatorCompiler(strictValidator)
  app.errors.own(app, { api: 'media', problem: true })
  const { reads, creates } = configsOf(keyless)
  creationRoutes(app, creates, keyless)
  const stream = openEventStreams(app)
  collectionRoutes(app, { path: 'generations', object: 'generation', query: GenerationsQuery, reads, stream })
  collectionRoutes(app, { path: 'operations', object: 'operation', query: OperationsQuery, reads, stream })
  deliveryRoutes(app, reads)
  uploadRoutes(app, reads)
  app
    .withTypeProvider<TypeBoxTypeProvider>()
    .get('/events', { config: reads, schema: { querystring: EventsQuery } }, async (request) =>
      listEvents(app.tasks, callerOf(request).key.tenant, request.query, app.config.EVENT_MS),
    )
  app.get('/capabilities', { config: reads }, async (request) =>
    capabilities(app.tasks.engines, await app.tasks.store.subscription(callerOf(request).key.subscription), app.uploads.limits),
  )
  app
    .withTypeProvider<TypeBoxTypeProvider>()
    .get('/usage/records', { config: reads, schema: { querystring: UsageQuery } }, async (request) =>
      listUsage(app.tasks.store, callerOf(request).key.subscription, request.query, app.clock()),
    )
  app.get('/usage', { config: reads }, async (request) => {
    const { key } = callerOf(request)
    return mediaUsage(await app.tasks.store.subscription(key.subscription), key, app.clock())
  })
}

export default fp(media, {
  name: 'media',
  fastify: '5.x',
  encapsulate: true,
  dependencies: ['errors', 'request-body', 'task-watch'],
  decorators: { fastify: ['clock', 'config', 'errors', 'taskWatch', 'tasks', 'uploads'], request: ['caller'] },
})
