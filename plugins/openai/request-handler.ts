/** Handler of coding requests: calls the upstreams, answers as JSON or as a stream, and settles the usage on every outcome. */
import type { OutgoingHttpHeaders } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Failure, overLimit } from '../../src/domain/errors.ts'
import { cancel, openCancellation, type Cancellation } from '../../src/upstream/cancellation.ts'
import type { AnswerStream, UpstreamAnswer } from '../../src/upstream/http/upstream-answer.ts'
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import type { Upstreams } from '../../src/upstream/upstreams.ts'
import type { Ids } from '../../src/upstream/wires/encrypted-ids.ts'
import type { CodingRequest, UpstreamCall, WireName } from '../../src/upstream/wires/wire.ts'
import { openBudget } from './reservation-budget.ts'
import { disconnectStalled, openSseWriter, type SseWriter, type SseWriterOptions } from './sse-writer.ts'
import type { OpenaiMetrics } from './openai-metrics.ts'
import { relay } from './stream-relay.ts'
import type { AddressVetting } from './vetted-addresses.ts'
import type { RequestContext } from './request-context.ts'

export type HandlerOptions = {
  upstreams: Upstreams
  clock: () => number
  metrics: OpenaiMetrics
  ids: (subscription: string) => Ids
  drainMs: number
  usageMs: number
  vetAddresses: AddressVetting
} & SseWriterOptions

/** The client disconnected, so the call to the upstream is aborted. */
class ClientDisconnected extends Error {}

export function openRequestHandler(
  options: HandlerOptions,
): (request: FastifyRequest, reply: FastifyReply, wire: WireName) => Promise<FastifyReply> {
  return async (request, reply, wire) => {
    const { codingRequest, reservation, caller } = request
    if (!codingRequest || !reservation || !caller) throw new Error('the route was reached without admission')
    const outcome = Promise.withResolvers<Settlement | null>()
    reservation.settleWith(outcome.promise)
    const context: RequestContext = {
      wire,
      startedAt: options.clock(),
      onAbort: reservation.admitted.onAbort,
      durable: reservation.durable,
      reply,
      request,
      budget: openBudget(reservation, request.promptBytes),
      settle: outcome.resolve,
    }
    try {
      // Ordinary requests have neither, and reach the upstream without a turn of the promise queue.
      if (codingRequest.addresses.length > 0) await options.vetAddresses(codingRequest.addresses, request.bodyShare?.take)
      if (codingRequest.choices > 1 && codingRequest.maxOutputTokens === null) await reserveChoices(codingRequest, reservation)
      const ids = options.ids(caller.key.subscription)
      const call = codingRequest.call(
        reservation.admitted.maxOutputTokens,
        ids,
        () => Math.floor(options.clock() / 1000),
        options.upstreams.wiresFor(wire),
      )
      // A stream lasts for minutes: the body is released before it.
      request.codingRequest = null
      request.body = null
      return await (call.stream ? answerStream(call, context, options) : answerJson(call, context, options))
    } catch (error) {
      context.settle(null)
      throw error
    }
  }
}

/** Admission reserves one choice when the client sets no limit of tokens: extends that to all choices. */
async function reserveChoices(codingRequest: CodingRequest, { admitted, ensure }: OpenReservation): Promise<void> {
  if ((await ensure(admitted.reserved * codingRequest.choices)) === 'gone') throw overLimit('reservation', { retryAfterSeconds: 2 })
}

/** Cancels the call when the client disconnects: at once with `Cancel`, after `drainMs` with `Drain`. */
function cancelOnDisconnect(context: RequestContext, drainMs: number): { cancellation: Cancellation; stop(): void } {
  const { raw } = context.reply
  const cancellation = openCancellation()
  let timer: NodeJS.Timeout | null = null
  const onClose = () => {
    if (raw.writableFinished) return
    if (context.onAbort === 'Cancel') cancel(cancellation, new ClientDisconnected('client disconnected'))
    else timer = setTimeout(() => cancel(cancellation, new ClientDisconnected('client disconnected, drain timed out')), drainMs)
  }
  if (raw.closed) onClose()
  else raw.on('close', onClose)
  return {
    cancellation,
    stop() {
      raw.off('close', onClose)
      if (timer) clearTimeout(timer)
    },
  }
}

async function answerJson(call: UpstreamCall, context: RequestContext, options: HandlerOptions): Promise<FastifyReply> {
  const { reply, budget } = context
  const disconnect = cancelOnDisconnect(context, options.drainMs)
  try {
    const opened = await callUpstreams(call, context, options, disconnect.cancellation)
    if (opened.kind !== 'json') throw new Error('a call for JSON was answered with a stream')
    const { meter, usage: reported } = opened.answer
    const settlement = budget.settlement(reported, meter)
    context.settle(settlement)
    const { usage, estimated } = settlement instanceof Promise ? await settlement : settlement
    if (reported) options.metrics.estimated(budget.estimate(meter.estimateTokens()), reported)
    if (reply.raw.destroyed) return reply.hijack()
    if (estimated) reply.header(options.usageHeader, 'estimated')
    sendJson(reply, opened.answer.body(usage))
    disconnectStalled(reply.raw, options.stalledMs)
    return reply
  } catch (error) {
    if (!(error instanceof ClientDisconnected)) throw error
    context.settle({ usage: budget.estimate(0), estimated: true })
    return reply.hijack()
  } finally {
    disconnect.stop()
  }
}

/** Past Fastify, whose serialization and hooks have nothing to add. */
function sendJson(reply: FastifyReply, body: string): void {
  const length = Buffer.byteLength(body)
  const headers = reply.hijack().getHeaders() as OutgoingHttpHeaders
  headers['content-type'] = 'application/json; charset=utf-8'
  headers['content-length'] = length
  reply.raw.writeHead(200, headers)
  // ASCII is copied, where UTF-8 is encoded.
  reply.raw.end(body, length === body.length ? 'latin1' : 'utf8')
}

/** Nothing is answered before the admission is stored: the upstream works meanwhile, and no longer once that has failed. */
async function callUpstreams(
  call: UpstreamCall,
  { wire, request, durable }: RequestContext,
  { upstreams, metrics }: HandlerOptions,
  cancellation: Cancellation,
): Promise<UpstreamAnswer> {
  metrics.overhead(wire, performance.now() - request.startedMs)
  durable.catch((error: Error) => cancel(cancellation, error))
  const opened = await upstreams.open(call, cancellation, request.log)
  // The upstream has the whole request, which is held no longer.
  request.bodyShare?.free()
  try {
    await durable
    return opened
  } catch (error) {
    if (opened.kind === 'stream') opened.abort()
    throw error
  }
}

async function answerStream(call: UpstreamCall, context: RequestContext, options: HandlerOptions): Promise<FastifyReply> {
  const writer = openSseWriter(context.reply, context.durable, { ...options, pings: context.wire === 'messages' })
  const opened = await openStream(call, writer, context, options)
  if (opened) relayStream(opened, writer, context, options)
  return context.reply.hijack()
}

/** A function apart from `relayStream`, so that no closure that lives as long as the stream retains the call and its whole request. */
async function openStream(
  call: UpstreamCall,
  writer: SseWriter,
  context: RequestContext,
  options: HandlerOptions,
): Promise<AnswerStream | null> {
  const disconnect = cancelOnDisconnect(context, options.drainMs)
  try {
    return (await callUpstreams(call, context, options, disconnect.cancellation)) as AnswerStream
  } catch (error) {
    return failStream(error, call, writer, context)
  } finally {
    disconnect.stop()
  }
}

function relayStream(
  opened: AnswerStream,
  writer: SseWriter,
  context: RequestContext,
  { metrics, clock, drainMs, usageMs }: HandlerOptions,
): void {
  const firstByteAt = clock()
  metrics.firstToken(context.wire, firstByteAt - context.startedAt)
  relay(opened, writer, context, { drainMs, usageMs }, ({ settlement, estimate, ending }) => {
    if (!settlement) return
    metrics.interToken(context.wire, settlement.usage.output, clock() - firstByteAt)
    if (!settlement.estimated) metrics.estimated(estimate, settlement.usage)
    if (ending !== 'ended') metrics.leftEarly(settlement, estimate)
  })
}

/** The call failed or the client disconnected. Until the first byte is sent the failure is an ordinary HTTP error, then an event of the stream. */
function failStream(error: unknown, call: UpstreamCall, writer: SseWriter, { settle, budget }: RequestContext): null {
  if (error instanceof ClientDisconnected) {
    writer.close()
    settle({ usage: budget.estimate(0), estimated: true })
    return null
  }
  if (!writer.started()) {
    writer.close()
    throw error
  }
  settle(null)
  writer.end(call.openRewriter().fail(error instanceof Failure ? error : new Failure('internal')))
  return null
}
