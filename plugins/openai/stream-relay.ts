/** Relays an upstream's stream to the client with back-pressure, handles a disconnect (`Cancel`, `Drain`), and settles at the end. */
import { Failure } from '../../src/domain/errors.ts'
import type { AnswerStream } from '../../src/upstream/http/upstream-answer.ts'
import type { Usage } from '../../src/domain/token-windows.ts'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { SseWriter } from './sse-writer.ts'
import type { RequestContext } from './request-context.ts'

/** `onSettled` gets the settlement, or null when nothing is charged. */
export function relay(
  opened: AnswerStream,
  writer: SseWriter,
  context: RequestContext,
  drainMs: number,
  /** `estimate`: what would be charged without a report. */
  onSettled: (settlement: Settlement | null, estimate: Usage) => void,
): void {
  const { stream } = opened
  const { budget, request } = context
  const { raw } = context.reply
  let ended = false
  let draining: NodeJS.Timeout | null = null

  /**
   * The usage that the upstream reported, else an estimate of what was streamed; nothing when it failed before any output. Of an answer that was cut off, or whose usage was reported before its text, the
   * larger of both: some upstreams report usage in every chunk, some in the first one.
   */
  async function settlementOf(failed: boolean): Promise<Settlement | null> {
    const usage = stream.usage()
    const isSilent = stream.meter.estimateTokens() === 0
    if (usage && stream.phase().name === 'done' && (usage.output > 0 || isSilent)) return { usage, estimated: false }
    if (!usage && failed && isSilent) return null
    const output = await stream.meter.countTokens()
    if (!usage) return budget.estimate(output)
    return output > usage.output ? { usage: { ...usage, output }, estimated: true } : { usage, estimated: false }
  }

  function settle(failed: boolean): Promise<Settlement | null> {
    const settlement = settlementOf(failed)
    context.settle(settlement)
    void settlement.then(
      (settled) => onSettled(settled, budget.estimate(stream.meter.estimateTokens()).usage),
      () => {},
    )
    return settlement
  }

  function end(failure: Failure | null): void {
    if (ended) return
    ended = true
    raw.off('close', onDisconnect)
    if (draining) clearTimeout(draining)
    if (failure)
      request.log.error(
        { event: 'upstream_stream_failed', err: failure.facts.cause ?? failure, code: failure.code },
        'upstream stream failed',
      )
    const settlement = settle(failure !== null)
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
    writer.close()
    if (context.onAbort === 'Cancel') return stop()
    draining = setTimeout(stop, drainMs)
    opened.resume()
  }

  function stop(): void {
    if (ended) return
    opened.abort()
    ended = true
    settle(false)
  }

  function onReservationGone(): void {
    if (ended) return
    opened.abort()
    end(new Failure('server_overloaded', { cause: new Error('the reservation of the stream was settled meanwhile') }))
  }

  function bytes(text: string): void {
    budget.spend(stream.meter.estimateTokens(), onReservationGone)
    writer.write(text)
  }

  if (raw.closed) onDisconnect()
  else raw.on('close', onDisconnect)
  writer.control(opened)
  opened.pipeTo({ bytes, ended: end })
}
