/** Passes an answer that has begun on to the client, no faster than the client reads, and settles it at its end. */
import { Failure } from '../../src/domain/errors.ts'
import type { OpenStream } from '../../src/upstream/selection/attempt.ts'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { SseWriter } from './sse-writer.ts'
import type { RequestContext } from './request-context.ts'

/** `told` hears what is charged, or null. */
export function relay(opened: OpenStream, line: SseWriter, context: RequestContext, drainMs: number, told: (settlement: Settlement | null) => void): void {
  const { stream } = opened
  const { budget, request } = context
  const { raw } = context.reply
  let over = false
  let draining: NodeJS.Timeout | null = null

  /** Charges what the upstream reported, else what came through; nothing when it failed before there was anything of an answer. */
  async function settlement(failed: boolean): Promise<Settlement | null> {
    const usage = stream.usage()
    if (usage) return { usage, estimated: false }
    return failed && stream.meter.rough() === 0 ? null : budget.estimate(await stream.meter.count())
  }

  function conclude(failure: Failure | null): void {
    if (over) return
    over = true
    raw.off('close', left)
    if (draining) clearTimeout(draining)
    if (failure) request.log.error({ err: failure.facts.cause ?? failure, code: failure.code }, 'a stream broke')
    line.end(failure ? stream.fail(failure) : '')
    const charged = settlement(failure !== null)
    context.settle(charged)
    void charged.then(told, () => {})
  }

  /** None of Fastify's hooks tells that a client left in the middle of a stream; the response's own event does. */
  function left(): void {
    if (over || raw.writableFinished) return
    line.close()
    if (context.onAbort === 'Cancel') return stop()
    draining = setTimeout(stop, drainMs)
    opened.resume()
  }

  function stop(): void {
    if (over) return
    opened.abort()
    over = true
    const charged = settlement(false)
    context.settle(charged)
    void charged.then(told, () => {})
  }

  function gone(): void {
    if (over) return
    opened.abort()
    conclude(new Failure('server_overloaded', { cause: new Error('the reservation of a stream was gone') }))
  }

  function bytes(text: string): void {
    budget.spend(stream.meter.rough(), gone)
    if (!line.write(text)) opened.pause()
  }

  if (raw.closed) left()
  else raw.once('close', left)
  line.drained(opened.resume)
  opened.follow({ bytes, ended: conclude })
}
