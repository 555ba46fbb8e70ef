/** Relays an upstream's stream to the client with back-pressure, handles a disconnect (`Cancel`, `Drain`), and settles at the end. */
import { Failure, overLimit } from '../../src/domain/errors.ts'
import type { AnswerStream } from '../../src/upstream/http/upstream-answer.ts'
import type { Usage } from '../../src/domain/token-windows.ts'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { SseWriter } from './sse-writer.ts'
import type { RequestContext } from './request-context.ts'

/** How long an upstream is read on, in milliseconds: after the client disconnected from a plan with `Drain`, and for the usage of an answer that is complete. */
export type ReadOn = { drainMs: number; usageMs: number }

/**
 * `settlement`: null when nothing is charged. `estimate`: what would be charged without a report. `ending`: the answer ended, the client left and the upstream
 * was read on to its end, or it was cut off.
 */
export type Relayed = { settlement: Settlement | null; estimate: Usage; ending: 'ended' | 'read on' | 'cut off' }

/** What a stream may bring after its answer was complete and the client left. */
const USAGE_BYTES = 64 * 1024

/** Starts the relay. `onSettled` is called at its end, unless the output cannot be counted. */
export function relay(
  opened: AnswerStream,
  writer: SseWriter,
  context: RequestContext,
  { drainMs, usageMs }: ReadOn,
  onSettled: (relayed: Relayed) => void,
): void {
  const { stream } = opened
  const { budget, request } = context
  const { raw } = context.reply
  let ended = false
  let hasLeft = false
  let readingOn: NodeJS.Timeout | null = null
  let bytesLeft = Infinity

  /** Nothing is charged for an answer that failed before any output. */
  function settlementOf(failed: boolean, cutOff: boolean): Settlement | null | Promise<Settlement> {
    const usage = stream.usage()
    if (cutOff) return budget.cutOff(usage, stream.meter)
    return !usage && failed && stream.meter.estimateTokens() === 0 ? null : budget.settlement(usage, stream.meter)
  }

  function settle(failed: boolean, cutOff: boolean): Promise<Settlement | null> {
    const settlement = Promise.resolve(settlementOf(failed, cutOff))
    context.settle(settlement)
    const ending = cutOff ? 'cut off' : hasLeft ? 'read on' : 'ended'
    void settlement.then(
      (settled) => onSettled({ settlement: settled, estimate: budget.estimate(stream.meter.estimateTokens()), ending }),
      () => {},
    )
    return settlement
  }

  function end(failure: Failure | null): void {
    if (ended) return
    const phase = stream.phase()
    // The client has the whole of an answer that was stopped here.
    if (phase.name === 'open' && phase.answer === 'stopped') return stop()
    if (failure)
      request.log.error(
        { event: 'upstream_stream_failed', err: failure.facts.cause ?? failure, code: failure.code },
        'upstream stream failed',
      )
    finish(failure, phase.name === 'done' && phase.cutsOff)
  }

  function finish(failure: Failure | null, cutOff: boolean): void {
    ended = true
    raw.off('close', onDisconnect)
    if (readingOn) clearTimeout(readingOn)
    const settlement = settle(failure !== null, cutOff)
    if (failure) writer.end(stream.fail(failure))
    else if (stream.usage()) writer.end('')
    else
      void settlement.then(
        (estimate) => writer.endEstimated(estimate ? stream.terminalEvents(estimate.usage) : ''),
        () => writer.end(stream.fail(new Failure('internal'))),
      )
  }

  /** No hook of Fastify fires when a client disconnects in the middle of a stream, so this listens to the response itself. */
  function onDisconnect(): void {
    if (ended || raw.writableFinished) return
    hasLeft = true
    writer.close()
    opened.resume()
    const phase = stream.phase()
    if (phase.name === 'open' && phase.answer) return awaitUsage()
    if (context.onAbort === 'Cancel') return stop()
    readingOn = setTimeout(stop, drainMs)
  }

  /** The model has finished, or the client has all that it asked for: the upstream is read on, so that its usage is charged. */
  function awaitUsage(): void {
    bytesLeft = USAGE_BYTES
    readingOn ??= setTimeout(stop, usageMs)
  }

  function stop(): void {
    if (ended) return
    opened.abort()
    finish(null, true)
  }

  function onReservationGone(): void {
    if (ended) return
    opened.abort()
    end(overLimit('reservation', { cause: new Error('the reservation of the stream was settled meanwhile') }))
  }

  function bytes(text: string): void {
    budget.spend(stream.meter.estimateTokens(), onReservationGone)
    writer.write(text)
    if (hasLeft && (bytesLeft -= text.length) < 0) return stop()
    const phase = stream.phase()
    if (phase.name === 'open' && phase.answer === 'stopped') awaitUsage()
  }

  if (raw.closed) onDisconnect()
  else raw.on('close', onDisconnect)
  writer.control(opened)
  opened.pipeTo({ bytes, ended: end })
}
