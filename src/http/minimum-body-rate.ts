/** The minimum rate of request bodies, so that slow clients do not hold memory or places. */
import type { Readable } from 'node:stream'
import { Failure } from '../domain/errors.ts'
import { openDeadline } from './deadlines.ts'

export type MinimumRate = {
  /** Each window, from the first read on, must bring at least `bytes`. */
  windowMs: number
  bytes: number
}

export const MINIMUM_RATE: MinimumRate = { windowMs: 10_000, bytes: 10 * 1024 }

/**
 * The parts of a body that is passed on as it arrives. Only time in which the reader waits for the client counts. Throws `request_timeout`, and
 * `invalid_request` when the client leaves; the rest of the body is left unread.
 */
export async function* partsAtRate(body: Readable, { windowMs, bytes }: MinimumRate = MINIMUM_RATE): AsyncGenerator<Buffer, void> {
  const parts: AsyncIterator<Buffer> = body.iterator({ destroyOnReturn: false })
  let late = () => {}
  // In the phase after that of reads: what arrived while this process was busy counts.
  const window = openDeadline(() => setImmediate(late))
  let waitedMs = 0
  let arrived = 0

  function next(): Promise<IteratorResult<Buffer>> {
    return new Promise((resolve, reject) => {
      late = () => reject(new Failure('request_timeout'))
      window.move(windowMs - waitedMs)
      parts.next().then(resolve, (cause: unknown) => {
        reject(new Failure('invalid_request', { message: 'The request body ended early.', cause }))
      })
    })
  }

  for (;;) {
    const from = performance.now()
    const { value, done } = await next().finally(window.clear)
    if (done) return
    waitedMs += performance.now() - from
    arrived += value.length
    if (arrived >= bytes) waitedMs = arrived = 0
    yield value
  }
}
