/** The endpoints that generations and operations share: list, read, cancel, deliveries, events. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyContextConfig, FastifyInstance, FastifyRequest } from 'fastify'
import { listTasks } from '../../src/tasks/list-tasks.ts'
import { findTask, recordOf } from '../../src/tasks/read-tasks.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import type { Task } from '../../src/domain/task.ts'
import { callerOf } from './caller.ts'
import { publicDelivery } from './public-delivery.ts'
import type { openEventStreams } from './event-stream.ts'
import { etagOf } from './headers.ts'
import { TaskParams, type GenerationsQuery, type OperationsQuery } from './request-schemas.ts'
import { clientHasIt } from '../../src/http/conditional-requests.ts'

export type Collection = {
  path: string
  object: Task['object']
  query: typeof GenerationsQuery | typeof OperationsQuery
  reads: FastifyContextConfig
  stream: ReturnType<typeof openEventStreams>
}

/** Registers the routes of one collection under its path. */
export function collectionRoutes(app: FastifyInstance, { path, object, query, reads, stream }: Collection): void {
  const { tasks } = app
  const one = { config: reads, schema: { params: TaskParams } }
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()

  /** The tenant's own visible task of this collection, or 404. */
  function visible(request: FastifyRequest, id: string): Promise<Task> {
    return findTask(tasks, callerOf(request).key.tenant, id, object)
  }

  routes.get(`/${path}`, { config: reads, schema: { querystring: query } }, async (request) =>
    listTasks(tasks, callerOf(request).key.tenant, object, request.query),
  )
  routes.get(`/${path}/:id`, one, async (request, reply) => {
    const body = JSON.stringify(await recordOf(tasks, await visible(request, request.params.id)))
    const etag = etagOf(body)
    reply.headers({ etag, 'cache-control': 'private, no-cache' })
    if (clientHasIt(request.headers['if-none-match'], etag)) return reply.code(304).send()
    return reply.type('application/json; charset=utf-8').send(body)
  })
  routes.post(`/${path}/:id/cancel`, { ...one, config: { ...reads, bodyless: true } }, async (request) =>
    recordOf(tasks, await cancel(tasks, await visible(request, request.params.id))),
  )
  routes.get(`/${path}/:id/deliveries`, one, async (request) => {
    const { id } = await visible(request, request.params.id)
    return { object: 'list', data: (await tasks.store.deliveries(id)).map(publicDelivery), has_more: false, next_cursor: null }
  })
  // A HEAD request would keep a stream open.
  routes.get(`/${path}/:id/events`, { ...one, exposeHeadRoute: false }, async (request, reply) =>
    stream(request, reply, await visible(request, request.params.id)),
  )
}
