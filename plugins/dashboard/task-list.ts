/** `/tasks`: generations and operations of the tenant as one list, each with the state of its webhooks. Behind a session. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import type { Delivery } from '../../src/domain/task.ts'
import { LIST_FIELDS, listTasks } from '../../src/tasks/list-tasks.ts'
import { sessionOf } from './sessions.ts'

const Query = Type.Object({
  ...LIST_FIELDS,
  object: Type.Optional(Type.Enum(['generation', 'operation'])),
  kind: Type.Optional(Type.String({ maxLength: 63, description: 'A kind of generation, or an operation.' })),
})

/** Registers the route. */
export function taskListRoute(app: FastifyInstance): void {
  const { tasks } = app

  async function withWebhook(record: Record<string, unknown>): Promise<Record<string, unknown>> {
    if (record['webhook_url'] === null) return { ...record, webhook: null }
    return { ...record, webhook: stateOf(await tasks.store.deliveries(String(record['id']))) }
  }

  app.withTypeProvider<TypeBoxTypeProvider>().get('/tasks', { schema: { querystring: Query } }, async (request) => {
    const { object = null, ...query } = request.query
    const page = await listTasks(tasks, sessionOf(request).tenant, object, query)
    return { ...page, data: await Promise.all((page['data'] as Record<string, unknown>[]).map(withWebhook)) }
  })
}

/** One failed delivery is what its receiver has to know; a task that has not ended has none yet. */
function stateOf(deliveries: Pick<Delivery, 'state'>[]): 'pending' | 'delivered' | 'failed' {
  if (deliveries.some(({ state }) => state === 'failed')) return 'failed'
  return deliveries.length > 0 && deliveries.every(({ state }) => state === 'delivered') ? 'delivered' : 'pending'
}
