/** Answers a coding request: through the upstreams, as JSON or as a stream, and says what it used, however it ends. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'
import type { Opened, OpenStream } from '../../src/upstream/selection/attempt.ts'
import type { Draft } from '../../src/upstream/wires/request-body.ts'
import type { Ids } from '../../src/upstream/wires/encrypted-ids.ts'
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import type { Upstreams } from '../../src/upstream/upstreams.ts'
import type { Call, JsonAnswer, WireName } from '../../src/upstream/wires/wire.ts'
import { openBudget, type Budget } from './reservation-budget.ts'
import { openSseWriter, type SseWriter } from './sse-writer.ts'
import type { OpenaiMetrics } from './openai-metrics.ts'
import { relay } from './stream-relay.ts'
import type { RequestContext } from './request-context.ts'

export type Means = {
  upstreams: Upstreams
  clock: () => number
  metrics: OpenaiMetrics
  ids: (subscription: string) => Ids
  keepAliveMs: number
  stalledMs: number
  drainMs: number
}

/** Why an upstream is stopped: nobody waits for it any more. */
class ClientLeft extends Error {}

export function answerer(means: Means): (request: FastifyRequest, reply: FastifyReply, wire: WireName) => Promise<FastifyReply> {
  return async (request, reply, wire) => {
    const { draft, reservation, caller } = request
    if (!draft || !reservation || !caller) throw new Error('the route was reached without admission')
    const outcome = Promise.withResolvers<Settlement | null>()
    reservation.settleWith(outcome.promise)
    const context: RequestContext = {
      wire,
      begunAt: means.clock(),
      onAbort: reservation.admitted.onAbort,
      reply,
      request,
      budget: openBudget(reservation, request.promptBytes, request.log),
      settle: outcome.resolve,
    }
    try {
      await reserveChoices(draft, reservation)
      const call = draft.call(reservation.admitted.maxOutputTokens, means.ids(caller.key.subscription), Math.floor(means.clock() / 1000))
      // A stream lasts for minutes: the request that started it is not kept as long.
      request.draft = null
      request.body = null
      return await (call.stream ? stream(call, context, means) : whole(call, context, means))
    } catch (error) {
      context.settle(null)
      throw error
    }
  }
}

/** Choices without a limit by the client were reserved as one: each may become as long. */
async function reserveChoices(draft: Draft, { admitted, ensure }: OpenReservation): Promise<void> {
  if (draft.choices === 1 || draft.maxOutputTokens !== null) return
  if ((await ensure(admitted.reserved * draft.choices)) === 'gone') throw new Failure('server_overloaded', { retryAfterSeconds: 2 })
}

/** Aborted when the client leaves: at once, or with `Drain` when the upstream has had its time to end. */
function departure(context: RequestContext, drainMs: number): { signal: AbortSignal; stop(): void } {
  const { raw } = context.reply
  const control = new AbortController()
  let timer: NodeJS.Timeout | null = null
  const left = () => {
    if (raw.writableFinished) return
    if (context.onAbort === 'Cancel') control.abort(new ClientLeft('the client left'))
    else timer = setTimeout(() => control.abort(new ClientLeft('the client left, and the upstream took too long')), drainMs)
  }
  if (raw.closed) left()
  else raw.once('close', left)
  return {
    signal: control.signal,
    stop() {
      raw.off('close', left)
      if (timer) clearTimeout(timer)
    },
  }
}

async function whole(call: Call, context: RequestContext, means: Means): Promise<FastifyReply> {
  const { reply, budget } = context
  const leaving = departure(context, means.drainMs)
  try {
    const opened = await ask(call, context, means, leaving.signal)
    if (opened.kind !== 'json') throw new Error('a call for JSON was answered with a stream')
    context.settle(used(opened.answer, budget))
    if (reply.raw.destroyed) return reply.hijack()
    return reply.type('application/json; charset=utf-8').send(opened.answer.body)
  } catch (error) {
    if (!(error instanceof ClientLeft)) throw error
    context.settle(budget.estimate(0))
    return reply.hijack()
  } finally {
    leaving.stop()
  }
}

function ask(call: Call, { wire, request }: RequestContext, { upstreams, metrics }: Means, signal: AbortSignal): Promise<Opened> {
  metrics.overhead(wire, performance.now() - request.startedMs)
  return upstreams.open(call, signal)
}

async function used({ usage, meter }: JsonAnswer, budget: Budget): Promise<Settlement> {
  return usage ? { usage, estimated: false } : budget.estimate(await meter.count())
}

async function stream(call: Call, context: RequestContext, means: Means): Promise<FastifyReply> {
  const line = openSseWriter(context.reply, means.keepAliveMs, means.stalledMs)
  const opened = await begin(call, line, context, means)
  if (opened) follow(opened, line, context, means)
  return context.reply.hijack()
}

/** Apart from `follow`, so that nothing which lives as long as the stream holds the call, and with it the whole request. */
async function begin(call: Call, line: SseWriter, context: RequestContext, means: Means): Promise<OpenStream | null> {
  const leaving = departure(context, means.drainMs)
  try {
    return (await ask(call, context, means, leaving.signal)) as OpenStream
  } catch (error) {
    return refuse(error, call, line, context)
  } finally {
    leaving.stop()
  }
}

function follow(opened: OpenStream, line: SseWriter, context: RequestContext, { metrics, clock, drainMs }: Means): void {
  const beganAt = clock()
  metrics.firstToken(context.wire, beganAt - context.begunAt)
  relay(opened, line, context, drainMs, (settlement) => {
    if (settlement) metrics.further(context.wire, settlement.usage.output, clock() - beganAt)
  })
}

/** No upstream answered, or the client did not wait. Before anything was sent it is an ordinary error. */
function refuse(error: unknown, call: Call, line: SseWriter, { settle, budget }: RequestContext): null {
  if (error instanceof ClientLeft) {
    line.close()
    settle(budget.estimate(0))
    return null
  }
  if (!line.begun()) {
    line.close()
    throw error
  }
  settle(null)
  line.end(call.open().fail(error instanceof Failure ? error : new Failure('internal')))
  return null
}
