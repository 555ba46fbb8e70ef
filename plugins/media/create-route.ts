/** `POST /generations` and `POST /operations`: quotes, creates, and waits for the end with `Prefer: wait`. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyContextConfig, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { disconnectSignal } from '../../src/http/disconnect.ts'
import { planNameOf } from '../../src/domain/plans.ts'
import { rateHeaders } from '../../src/domain/rate-limit.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import type { Task } from '../../src/domain/task.ts'
import { invalid } from '../../src/domain/request-validation.ts'
import { recordOf } from '../../src/tasks/read-tasks.ts'
import { publicRecord } from '../../src/tasks/public-record.ts'
import { publicQuote, quote } from '../../src/tasks/quote.ts'
import { currentRecord, submit } from '../../src/tasks/submit.ts'
import { callerOf } from './caller.ts'
import { idempotencyKey, preferredWait } from './headers.ts'
import { CreateQuery, GenerationRequest, KeylessCreateQuery, OperationRequest } from './request-schemas.ts'
import { expectedWaitSeconds } from './wait-estimate.ts'

/** `keyless` as in `MediaOptions`. */
export function creationRoutes(app: FastifyInstance, config: FastifyContextConfig, keyless: boolean): void {
  const { tasks, clock } = app

  for (const [path, body] of [
    ['generations', GenerationRequest],
    ['operations', OperationRequest],
  ] as const) {
    app
      .withTypeProvider<TypeBoxTypeProvider>()
      .post(`/${path}`, { config, schema: { body, querystring: keyless ? KeylessCreateQuery : CreateQuery } }, async (request, reply) => {
        const caller = callerOf(request)
        if (keyless && request.body.webhook_url !== undefined)
          throw invalid([
            {
              path: '/webhook_url',
              code: 'not_allowed',
              message: 'must be left out, because no API key signs the webhooks of this task',
            },
          ])
        const key = idempotencyKey(request.headers['idempotency-key'])
        if (request.query.dry_run) {
          caller.countRead()
          const quoted = await quote(tasks, request.body, await currentRecord(tasks, caller))
          return publicQuote(quoted, caller, clock(), await expectedWaitSeconds(tasks.store, quoted))
        }
        const { outcome, task, record } = await submit(tasks, caller, request.body, key, request.id)
        request.log.setBindings(keyless ? { taskId: task.id, plan: planNameOf(task.subscription) } : { taskId: task.id })
        if (outcome === 'replayed') caller.countRead()
        const { rate, terms } = record
        reply.headers({ location: `${app.prefix}/${path}/${task.id}`, ...rateHeaders(rate, terms.requestsPerMinute, clock()) })
        if (outcome === 'replayed') reply.header('idempotency-replayed', 'true')
        reply.code(outcome === 'replayed' ? 200 : 202)
        return accepted(app, task, record, request, reply)
      })
  }
}

/**
 * Sends the record at once, under the status that is set; with `Prefer: wait`, 200 as soon as the task is final, or 202 when the time is
 * over. A caller with too many waits is answered at once: the preference is not applied (RFC 7240, section 2).
 */
async function accepted(
  { tasks, taskWatch }: FastifyInstance,
  task: Task,
  record: Subscription,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const seconds = preferredWait(request.headers.prefer)
  if (seconds === null) return reply.send(await acceptedRecord(tasks, task, record))
  const waited = await taskWatch.untilFinal(task, callerOf(request).countedBy, { ms: seconds * 1000, signal: disconnectSignal(reply.raw) })
  if (waited.outcome !== 'refused') reply.header('preference-applied', `wait=${seconds}`).code(waited.outcome === 'final' ? 200 : 202)
  return reply.send(await acceptedRecord(tasks, waited.task, null))
}

/** The task's record, without its queue position when the store is unavailable: the task is accepted, and the client must learn it. */
function acceptedRecord(tasks: FastifyInstance['tasks'], task: Task, known: Subscription | null): Promise<Record<string, unknown>> {
  return recordOf(tasks, task, known).catch(() => publicRecord(task, null, tasks.link))
}
