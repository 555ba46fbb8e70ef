/** `POST /deliveries/{id}/redeliver` and `POST /deliveries/replay`: attempts outside the retry schedule (`docs/webhooks.md`, "Redelivery"). */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyContextConfig, FastifyInstance } from 'fastify'
import type { Static } from 'typebox'
import { Failure, overLimit } from '../../src/domain/errors.ts'
import type { Message } from '../../src/domain/broker-messages.ts'
import { readCursor, writeCursor } from '../../src/domain/page-cursors.ts'
import { redeliverableAt, REPLAY_MAX, REPLAY_RANGE_MS } from '../../src/domain/webhook-redelivery.ts'
import { invalid } from '../../src/domain/request-validation.ts'
import type { Delivery, ReplayPosition, ReplayRange } from '../../src/domain/task.ts'
import { callerOf } from './caller.ts'
import { publicDelivery } from './public-delivery.ts'
import { ReplayRequest, TaskParams } from './request-schemas.ts'

/** Registers both routes. A delivery of another tenant is `not_found`. */
export function deliveryRoutes(app: FastifyInstance, reads: FastifyContextConfig): void {
  const { store, publish } = app.tasks
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()

  routes.post(
    '/deliveries/:id/redeliver',
    { config: { ...reads, bodyless: true }, schema: { params: TaskParams } },
    async (request, reply) => {
      const { tenant } = callerOf(request).key
      const answer = await store.redeliver(tenant, request.params.id, app.clock())
      if (!answer) throw new Failure('not_found')
      if (answer.outcome === 'exhausted') throw new Failure('redelivery_limit')
      if (answer.outcome === 'early') throw tooEarly(redeliverableAt(answer.delivery) - app.clock())
      if (answer.outcome === 'due') publish(due(tenant, answer.delivery.taskId))
      return reply.code(202).send(publicDelivery(answer.delivery))
    },
  )

  routes.post('/deliveries/replay', { config: reads, schema: { body: ReplayRequest } }, async (request, reply) => {
    const { range, after } = readReplay(request.body)
    const { tenant } = callerOf(request).key
    const { count, next } = await store.replay(tenant, range, after, app.clock(), REPLAY_MAX)
    if (count > 0) publish(due(tenant, null))
    const cursor = next && writeCursor(`${next.createdAt} ${next.id}`)
    return reply.code(202).send({ object: 'replay', count, has_more: next !== null, next_cursor: cursor })
  })
}

function tooEarly(waitMs: number): Failure {
  return overLimit('failed_redeliveries', {
    message: 'The last redelivery failed. Fix the receiver, and try again later.',
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)),
  })
}

function due(tenant: string, task: string | null): Message {
  return { type: 'webhook.due', kind: 'webhook', tenant, task, key: task ?? tenant }
}

const STATES: Record<NonNullable<Static<typeof ReplayRequest>['status']>, Delivery['state'][]> = {
  pending: ['waiting', 'pending'],
  delivered: ['delivered'],
  failed: ['failed'],
}

function readReplay({ since, until, event, status, cursor }: Static<typeof ReplayRequest>): {
  range: ReplayRange
  after: ReplayPosition | null
} {
  const range = { since: Date.parse(since), until: Date.parse(until), event: event ?? null, states: status ? STATES[status] : null }
  if (range.until <= range.since) throw invalid([{ path: '/until', code: 'range', message: 'must be after since' }])
  if (range.until - range.since > REPLAY_RANGE_MS)
    throw invalid([{ path: '/until', code: 'range', message: 'must be at most 31 days after since' }])
  return { range, after: cursor === undefined ? null : positionOf(cursor) }
}

function positionOf(cursor: string): ReplayPosition {
  const [createdAt = '', id = ''] = readCursor(cursor, /^(\d{1,16}) ([0-9a-z.-]{1,100})$/)
  return { createdAt: Number(createdAt), id }
}
