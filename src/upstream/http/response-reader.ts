/** Reads an upstream's response by status and content type: JSON answers and error bodies whole and up to a size limit, streams as they come. */
import { Failure } from '../../domain/errors.ts'
import { clientErrorIn, clientErrorOf } from '../wires/client-error-mapping.ts'
import { isMembers } from '../wires/allowlist.ts'
import type { TemplateSets } from '../sse/event-templates.ts'
import type { JsonAnswer, UpstreamCall } from '../wires/wire.ts'
import { streamReader } from './stream-reader.ts'
import { AttemptError, type UpstreamAnswer } from './upstream-answer.ts'

/** How a reader settles its attempt and controls its connection. */
export type AttemptControl = {
  resolve(answer: UpstreamAnswer): void
  /** Also closes the connection. */
  reject(error: Error): void
  /** Stops reading from the upstream; paused time does not count towards its timeouts. */
  pause(): void
  resume(): void
  /** Closes the connection at once, unless the response has ended. */
  abort(reason: Error): void
}
export type ResponseReader = { data(chunk: Buffer): void; ended(error: Error | null): void }
type Headers = Record<string, string | string[] | undefined>

const MAX_JSON_BYTES = 64 * 1024 * 1024
const MAX_ERROR_BYTES = 64 * 1024

/** Chooses the reader by status, content type and what the call expects. A failure rejects the attempt with an `AttemptError`, or with the failure of the request that the upstream reported. */
export function readerFor(
  status: number,
  headers: Headers,
  call: UpstreamCall,
  control: AttemptControl,
  templates: TemplateSets,
): ResponseReader {
  const encoding = String(headers['content-encoding'] ?? 'identity').toLowerCase()
  if (encoding !== 'identity') return rejecting(control, new AttemptError(`content encoding ${encoding}`, status))
  if (status !== 200)
    return bodyReader(MAX_ERROR_BYTES, control, (bytes) =>
      control.reject(
        clientErrorOf(status, bytes.toString('utf8'), call) ??
          new AttemptError(`status ${status}`, status, bytes.toString('utf8', 0, 1000), retryAfterMs(headers)),
      ),
    )
  if (!call.stream)
    return bodyReader(MAX_JSON_BYTES, control, (bytes) => control.resolve({ kind: 'json', answer: jsonAnswer(bytes, call) }))
  const type = String(headers['content-type'] ?? '').toLowerCase()
  if (type === '' || type.startsWith('text/event-stream')) return streamReader(call.openRewriter(templates), control)
  return bodyReader(MAX_ERROR_BYTES, control, (bytes) =>
    control.reject(clientErrorIn(errorMember(bytes)) ?? new AttemptError(`content type ${type} instead of a stream`, status)),
  )
}

function rejecting(control: AttemptControl, error: Error): ResponseReader {
  control.reject(error)
  return { data() {}, ended() {} }
}

/** Collects a whole body. An error that `done` throws rejects the attempt. */
function bodyReader(maxBytes: number, control: AttemptControl, done: (bytes: Buffer) => void): ResponseReader {
  const chunks: Buffer[] = []
  let size = 0
  return {
    data(chunk) {
      size += chunk.length
      if (size > maxBytes) control.reject(new AttemptError('response too large', 200))
      else chunks.push(chunk)
    },
    ended(error) {
      if (error) return control.reject(new AttemptError('response cut off', 200, error))
      try {
        done(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks))
      } catch (cause) {
        control.reject(cause instanceof Failure ? cause : new AttemptError('response is not the wire', 200, cause))
      }
    },
  }
}

function jsonAnswer(bytes: Buffer, call: UpstreamCall): JsonAnswer {
  const value: unknown = JSON.parse(bytes.toString('utf8'))
  if (isMembers(value) && isMembers(value['error']))
    throw clientErrorIn(value['error']) ?? new AttemptError('error with status 200', 200, value['error'])
  return call.rewriteJson(value)
}

function errorMember(bytes: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return isMembers(value) ? value['error'] : null
  } catch {
    return null
  }
}

/** `Retry-After` (RFC 9110, section 10.2.3) in milliseconds, where it is a number of seconds. */
function retryAfterMs(headers: Headers): number | null {
  const value = headers['retry-after']
  return typeof value === 'string' && /^\d{1,6}$/.test(value) ? Number(value) * 1000 : null
}
