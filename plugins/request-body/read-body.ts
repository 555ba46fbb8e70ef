/** Reads a whole body within its limits: size, memory, and a minimum rate. */
import type { IncomingMessage } from 'node:http'
import type { RequestPayload } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'
import { openDeadline } from '../../src/http/deadlines.ts'
import { openGrowingBuffer } from '../../src/http/growing-buffer.ts'
import type { MinimumRate } from '../../src/http/minimum-body-rate.ts'
import { overloaded, type BodyShare } from './body-budget.ts'

export type BodyLimits = {
  /** The largest body. */
  most: number
  rate: MinimumRate
}

/** `release` returns the memory of the bytes, which may not be read afterwards; they stay counted. */
type Read = (error: Error | null, body?: { bytes: Buffer; release(): void }) => void

/**
 * For later errors, such as a reset after the answer, which concern nobody. A connection keeps its last request until the next one: a function made for each request would keep
 * everything that led to it alive for so long, and V8 would move it to the old generation.
 */
const ignore = (): void => {}

/**
 * Reads a body to its end. Fails with `payload_too_large`, `server_overloaded` (at once, when the announced length does not fit) or
 * `request_timeout`, each as soon as it is known: `plugins/errors` discards what follows the answer.
 */
export function readBody(
  { headers }: Pick<IncomingMessage, 'headers'>,
  payload: RequestPayload,
  { most, rate }: BodyLimits,
  share: BodyShare,
  done: Read,
): void {
  const announced = Number(headers['content-length'] ?? Number.NaN)
  if (announced > most) return done(new Failure('payload_too_large'))
  if (announced > 0 && !share.fits(announced)) return done(overloaded())
  const body = openGrowingBuffer(announced >= 0 ? announced : most, share.take)
  let whole: Buffer | null = null
  let isOver = false

  function onData(part: Buffer): void {
    try {
      if (body.length() + part.length > most) throw new Failure('payload_too_large')
      // Most bodies arrive in one part, which is the body.
      if (part.length === announced) {
        share.take(part.length)
        whole = part
      } else body.append(part)
    } catch (error) {
      end(error as Error)
    }
  }
  const onEnd = () => end(null)
  const onError = (cause: Error) => end(new Failure('invalid_request', { message: 'The request body ended early.', cause }))

  let before = 0
  const window = openDeadline(() => setImmediate(checkRate))
  window.move(rate.windowMs)
  /** In the phase after that of reads: what arrived while this process was busy counts. */
  function checkRate(): void {
    if (isOver) return
    if (body.length() - before < rate.bytes) return end(new Failure('request_timeout'))
    before = body.length()
    window.move(rate.windowMs)
  }

  function end(error: Error | null): void {
    isOver = true
    window.clear()
    payload.off('data', onData).off('end', onEnd).off('error', onError)
    payload.on('error', ignore)
    if (error === null) return done(null, { bytes: whole ?? body.bytes(), release: body.release })
    body.free()
    done(error)
  }
  payload.on('data', onData).on('end', onEnd).on('error', onError)
}
