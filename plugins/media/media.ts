/** The Media API, under the prefix that it is registered with (`/api/v1`). Requests and answers are those of the specification and of `docs/media.md`; the business is in `src/tasks`. */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/errors.ts'
import { findTask, recordOf, untilFinal } from '../../src/tasks/read.ts'
import { publicRecord } from '../../src/tasks/record.ts'
import { cancel } from '../../src/tasks/settle.ts'
import { publicQuote, quote, submit, type NewGeneration, type Submitter } from '../../src/tasks/submit.ts'
import type { Task } from '../../src/tasks/task.ts'
import { mediaUsage } from '../../src/tasks/usage.ts'
import { strictValidator } from '../../src/validator.ts'
import { deliveryList } from './deliveries.ts'
import { etagOf, idempotencyKey, preferredWait, rateHeaders } from './headers.ts'
import { listTasks, type ListQuery } from './lists.ts'
import { CreateQuery, GenerationRequest, GenerationsQuery, OperationRequest, OperationsQuery, TaskParams } from './schemas.ts'
import { expectedWaitSeconds } from './waiting.ts'

const reads = { api: 'media', problem: true } as const
const creates = { ...reads, creates: true } as const

const COLLECTIONS = [
  { path: 'generations', object: 'generation', query: GenerationsQuery },
  { path: 'operations', object: 'operation', query: OperationsQuery },
] as const

async function media(app: FastifyInstance): Promise<void> {
  const { tasks } = app
  app.setValidatorCompiler(strictValidator())
  app.errors.own(app, { api: 'media', problem: true })

  function submitter(request: FastifyRequest): Submitter & { countRead(): void } {
    if (!request.caller) throw new Failure('invalid_api_key')
    return request.caller
  }

  /** The tenant's own visible task of that collection, or 404. */
  function visible(request: FastifyRequest, object: Task['object']): Promise<Task> {
    const { id } = request.params as { id: string }
    return findTask(tasks, submitter(request).key.tenant, id, object)
  }

  const record = (task: Task) => recordOf(tasks, task)

  // Whoever waits for a task is told how it stands, instead of being cut off.
  let stopping = false
  app.addHook('preClose', async () => {
    stopping = true
  })

  app.post<{ Body: NewGeneration; Querystring: { dry_run?: boolean } }>('/generations', { config: creates, schema: { body: GenerationRequest, querystring: CreateQuery } }, async (request, reply) => {
    const caller = submitter(request)
    const key = idempotencyKey(request.headers['idempotency-key'])
    if (request.query.dry_run) {
      caller.countRead()
      const quoted = await quote(tasks, caller, request.body)
      return publicQuote(quoted, caller, app.clock(), await expectedWaitSeconds(tasks.store, quoted))
    }
    const { outcome, task } = await submit(tasks, caller, request.body, key)
    if (outcome === 'replayed') caller.countRead()
    // The task is accepted: whatever the store does from here on, the client is told so.
    const subscription = await tasks.store.subscription(task.subscription).catch(() => null)
    reply.headers({ location: `${app.prefix}/generations/${task.id}`, ...rateHeaders(subscription, app.clock()) })
    if (outcome === 'replayed') return reply.header('idempotency-replayed', 'true').code(200).send(await acceptedRecord(task))
    return accepted(request, reply, task)
  })

  /** 202 with the record; with `Prefer: wait`, 200 as soon as the task is final, 202 when the time is over first. */
  async function accepted(request: FastifyRequest, reply: FastifyReply, task: Task): Promise<FastifyReply> {
    const seconds = preferredWait(request.headers.prefer)
    if (seconds === null) return reply.code(202).send(await acceptedRecord(task))
    const patience = { ms: seconds * 1000, gone: () => stopping || reply.raw.destroyed, pause }
    const { task: later, final } = await untilFinal(tasks, task, patience).catch(() => ({ task, final: false }))
    return reply
      .header('preference-applied', `wait=${seconds}`)
      .code(final ? 200 : 202)
      .send(await acceptedRecord(later))
  }

  /** The record, without its place in the queue when the store cannot be asked for that. */
  function acceptedRecord(task: Task): Promise<Record<string, unknown>> {
    return record(task).catch(() => publicRecord(task, null, tasks.link))
  }

  app.post('/operations', { config: creates, schema: { body: OperationRequest, querystring: CreateQuery } }, async () => {
    throw new Failure('not_supported', { param: 'operation' })
  })

  for (const { path, object, query } of COLLECTIONS) {
    app.get(`/${path}`, { config: reads, schema: { querystring: query } }, async (request) =>
      listTasks(tasks, submitter(request).key.tenant, object, request.query as ListQuery),
    )
    app.get(`/${path}/:id`, { config: reads, schema: { params: TaskParams } }, async (request, reply) => {
      const body = JSON.stringify(await record(await visible(request, object)))
      const etag = etagOf(body)
      reply.headers({ etag, 'cache-control': 'private, no-cache' })
      if ((request.headers['if-none-match'] ?? '').split(/\s*,\s*/).some((given) => given === '*' || given.replace(/^W\//, '') === etag)) return reply.code(304).send()
      return reply.type('application/json; charset=utf-8').send(body)
    })
    app.post(`/${path}/:id/cancel`, { config: { ...reads, bodyless: true }, schema: { params: TaskParams } }, async (request) =>
      record(await cancel(tasks, await visible(request, object))),
    )
    app.get(`/${path}/:id/deliveries`, { config: reads, schema: { params: TaskParams } }, async (request) =>
      deliveryList(tasks.store, await visible(request, object)),
    )
  }

  app.get('/usage', { config: reads }, async (request) => mediaUsage(await tasks.store.subscription(submitter(request).key.subscription), app.clock()))
}

export default fp(media, { name: 'media', fastify: '5.x', encapsulate: true, dependencies: ['errors', 'auth', 'intake'] })
