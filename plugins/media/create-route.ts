/** `POST /generations` and `POST /operations`: quotes, creates, and waits where it is asked to. */
import { setTimeout as pause } from 'node:timers/promises'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { recordOf, untilFinal } from '../../src/tasks/read-tasks.ts'
import { publicRecord } from '../../src/tasks/public-record.ts'
import { currentRecord, publicQuote, quote, submit, type SubmitContext } from '../../src/tasks/quote-and-submit.ts'
import type { Task } from '../../src/domain/task.ts'
import { callerOf, CREATES } from './caller.ts'
import { idempotencyKey, preferredWait, rateHeaders } from './headers.ts'
import { CreateQuery, GenerationRequest, OperationRequest } from './request-schemas.ts'
import { expectedWaitSeconds } from './wait-estimate.ts'

export function creationRoutes(app: FastifyInstance): void {
  const { tasks, clock } = app

  // Whoever waits for a task is told how it stands, instead of being cut off.
  let stopping = false
  app.addHook('preClose', async () => {
    stopping = true
  })

  app.withTypeProvider<TypeBoxTypeProvider>().post('/generations', { config: CREATES, schema: { body: GenerationRequest, querystring: CreateQuery } }, async (request, reply) => {
    const caller = callerOf(request)
    const key = idempotencyKey(request.headers['idempotency-key'])
    if (request.query.dry_run) {
      caller.countRead()
      const quoted = quote(tasks, request.body, await currentRecord(tasks, caller))
      return publicQuote(quoted, caller, clock(), await expectedWaitSeconds(tasks.store, quoted))
    }
    const { outcome, task, record } = await submit(tasks, caller, request.body, key)
    if (outcome === 'replayed') caller.countRead()
    reply.headers({ location: `${app.prefix}/generations/${task.id}`, ...rateHeaders(record, clock()) })
    if (outcome === 'replayed') reply.header('idempotency-replayed', 'true')
    reply.code(outcome === 'replayed' ? 200 : 202)
    return accepted(tasks, task, record, request, reply, () => stopping)
  })

  app.post('/operations', { config: CREATES, schema: { body: OperationRequest, querystring: CreateQuery } }, async () => {
    throw new Failure('not_supported', { param: 'operation' })
  })
}

/** The task's record at once, under the status that is set; with `Prefer: wait`, 200 as soon as the task is final, 202 when the time is over first. */
async function accepted(tasks: SubmitContext, task: Task, record: Subscription, request: FastifyRequest, reply: FastifyReply, stopping: () => boolean): Promise<FastifyReply> {
  const seconds = preferredWait(request.headers.prefer)
  if (seconds === null) return reply.send(await acceptedRecord(tasks, task, record))
  const patience = { ms: seconds * 1000, gone: () => stopping() || reply.raw.destroyed, pause }
  const { task: later, final } = await untilFinal(tasks, task, patience).catch(() => ({ task, final: false }))
  return reply
    .header('preference-applied', `wait=${seconds}`)
    .code(final ? 200 : 202)
    .send(await acceptedRecord(tasks, later, null))
}

/** The task's record, without its place in the queue when the store cannot be asked for that: it is accepted, and the client is told so. */
function acceptedRecord(tasks: SubmitContext, task: Task, known: Subscription | null): Promise<Record<string, unknown>> {
  return recordOf(tasks, task, known).catch(() => publicRecord(task, null, tasks.link))
}
