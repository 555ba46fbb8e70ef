/**
 * `/tasks`: generations and operations of the tenant as one list, each with the state of its webhooks; and what the webhooks of one say.
 * Behind a session.
 */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type, type Static } from 'typebox'
import { hasClosed } from '../../src/http/disconnect.ts'
import { inTurn } from '../../src/concurrency/serial-by-name.ts'
import { Failure } from '../../src/domain/errors.ts'
import type { Delivery } from '../../src/domain/task.ts'
import { writeCursor } from '../../src/domain/page-cursors.ts'
import { LIST_FIELDS, listTasks } from '../../src/tasks/list-tasks.ts'
import { sessionOf } from './sessions.ts'

const STATES = ['pending', 'delivered', 'failed'] as const
type State = (typeof STATES)[number]

const Query = Type.Object({
  ...LIST_FIELDS,
  object: Type.Optional(Type.Enum(['generation', 'operation'])),
  kind: Type.Optional(Type.String({ maxLength: 63, description: 'A kind of generation, or an operation.' })),
  webhook: Type.Optional(Type.Enum([...STATES])),
})
const Params = Type.Object({ id: Type.String({ maxLength: 64 }) })

/**
 * No index has the state of webhooks: a page of one state is looked for in so many pages of so many tasks, and the next page goes on from
 * there.
 */
const EXAMINED = { pages: 2, tasks: 100 }

/** Registers the routes. */
export function taskListRoutes(app: FastifyInstance): void {
  const { tasks } = app
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()

  async function withWebhook(record: Record<string, unknown>): Promise<Record<string, unknown> & { webhook: State | null }> {
    if (record['webhook_url'] === null) return { ...record, webhook: null }
    return { ...record, webhook: stateOf(await tasks.store.deliveries(String(record['id']))) }
  }

  async function page(tenant: string, { object, webhook: _webhook, ...query }: Static<typeof Query>) {
    const found = await listTasks(tasks, tenant, object ?? null, query)
    return { ...found, data: await Promise.all(found.data.map(withWebhook)) }
  }

  /** By session: each search reads the deliveries of many tasks. */
  const searches = inTurn()

  async function pageOf(state: State, tenant: string, query: Static<typeof Query>, isLeft: () => boolean) {
    const data: Record<string, unknown>[] = []
    let { cursor } = query
    let examined = 0
    // Pages of large tasks are shorter: so many pages, not tasks, bound what is held.
    for (let pages = 0; pages < EXAMINED.pages && !isLeft(); pages++) {
      const found = await page(tenant, { ...query, limit: EXAMINED.tasks, ...(cursor === undefined ? {} : { cursor }) })
      for (const task of found.data) {
        if (task.webhook === state) data.push(task)
        if (data.length === query.limit) return { ...found, data, has_more: true, next_cursor: writeCursor(String(task['id'])) }
      }
      if (found.next_cursor === null) return { ...found, data }
      cursor = found.next_cursor
      examined += found.data.length
    }
    return { object: 'list', data, has_more: true, next_cursor: cursor, examined }
  }

  routes.get('/tasks', { schema: { querystring: Query } }, async (request, reply) => {
    const { query } = request
    const { tenant, session } = sessionOf(request)
    const { webhook } = query
    if (webhook === undefined) return page(tenant, query)
    return searches(session.id, () => pageOf(webhook, tenant, query, () => hasClosed(reply.raw)))
  })

  routes.get('/tasks/:id/payloads', { schema: { params: Params } }, async (request) => {
    const task = await tasks.store.task(sessionOf(request).tenant, request.params.id)
    if (!task) throw new Failure('not_found')
    return { data: (await tasks.store.deliveries(task.id)).map(({ id, body }) => ({ id, payload: redacted(body) })) }
  })
}

/** One failed delivery is what its receiver has to know; a task that has not ended has none yet. */
function stateOf(deliveries: Pick<Delivery, 'state'>[]): State {
  if (deliveries.some(({ state }) => state === 'failed')) return 'failed'
  return deliveries.length > 0 && deliveries.every(({ state }) => state === 'delivered') ? 'delivered' : 'pending'
}

/** The body of a webhook, whose links open nothing: people show it to others. */
function redacted(body: string): object {
  return JSON.parse(body, (_name, value: unknown) =>
    typeof value === 'string' ? value.replace(/([?&]sig=)[\w-]+/, '$1…') : value,
  ) as object
}
