/** Size limit of a body that is passed on as it arrives. */
import { Transform } from 'node:stream'
import type { FastifyRequest, RequestPayload } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'

/**
 * The body, which fails with `payload_too_large` beyond `maxBytes`. A content-length beyond it fails at once, and so does a body of GET or
 * HEAD, which HTTP gives no meaning.
 */
export function limitedBody({ method, headers }: FastifyRequest, payload: RequestPayload, maxBytes: number): RequestPayload {
  const length = headers['content-length']
  const isChunked = headers['transfer-encoding'] !== undefined
  if ((method === 'GET' || method === 'HEAD') && (isChunked || Number(length ?? 0) > 0))
    throw new Failure('invalid_request', { message: `${method} takes no body here.` })
  if (Number(length ?? 0) > maxBytes) throw new Failure('payload_too_large')
  return isChunked ? counted(payload, maxBytes) : payload
}

function counted(payload: RequestPayload, maxBytes: number): Transform {
  let received = 0
  const body = new Transform({
    transform(part: Buffer, _encoding, done) {
      received += part.length
      done(received > maxBytes ? new Failure('payload_too_large') : null, part)
    },
  })
  payload.once('error', (error) => body.destroy(error))
  // It may fail before the call to the service reads it, and that sees the error then.
  body.on('error', () => {})
  // Discards the rest, so that the answer reaches a client that still sends.
  body.once('close', () => payload.resume())
  return payload.pipe(body)
}
