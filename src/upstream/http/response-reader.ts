/** Chooses how an upstream's response is read, by status and content type: as the answer, or as an error. */
import { clientErrorIn, clientErrorOf } from '../wires/client-error-mapping.ts'
import { parsedMembers } from '../wires/allowlist.ts'
import type { StreamRewriter, UpstreamCall } from '../wires/wire.ts'
import { AttemptError } from './answer.ts'
import { openJsonRewriter } from './json-rewriter.ts'
import type { ResponseHead } from './response-head.ts'
import type { Upstream } from './upstream.ts'

/** Collects the body of an error, of which `end` makes the error. `push` is false once it has enough. */
export type ErrorReader = { push(chunk: Buffer): boolean; end(): Error }

/** More of an error says nothing. */
const MAX_ERROR_BYTES = 64 * 1024

/** The reader of a response to the call. `hasReasoning`: each turn was sent with its reasoning. Throws an `AttemptError` for one that cannot be read. */
export function readerFor(
  head: ResponseHead,
  call: UpstreamCall,
  { templates }: Upstream,
  hasReasoning: boolean,
): StreamRewriter | ErrorReader {
  const { status } = head
  const encoding = head.contentEncoding.toLowerCase()
  if (encoding !== '' && encoding !== 'identity') throw new AttemptError(`content encoding ${encoding}`, status)
  if (status !== 200)
    return errorReader((text) => {
      const error = clientErrorOf(status, text, call, hasReasoning)
      if (error === 'needs reasoning')
        return new AttemptError('a turn came back without its reasoning', status, text.slice(0, 1000), null, 'with reasoning')
      return error ?? new AttemptError(`status ${status}`, status, text.slice(0, 1000), retryAfterMs(head))
    })
  if (!call.stream) return openJsonRewriter(call)
  const type = head.contentType.toLowerCase()
  if (type === '' || type.startsWith('text/event-stream')) return call.openRewriter(templates)
  return errorReader(
    (text) => clientErrorIn(parsedMembers(text)?.['error']) ?? new AttemptError(`content type ${type} instead of a stream`, status),
  )
}

function errorReader(errorOf: (text: string) => Error): ErrorReader {
  const chunks: Buffer[] = []
  let left = MAX_ERROR_BYTES
  return {
    push(chunk) {
      if (left > 0) chunks.push(Buffer.from(chunk.subarray(0, left)))
      left -= chunk.length
      return left > 0
    },
    end: () => errorOf(Buffer.concat(chunks).toString('utf8')),
  }
}

/** `Retry-After` (RFC 9110, section 10.2.3) in milliseconds, where it is a number of seconds. */
function retryAfterMs({ retryAfter }: ResponseHead): number | null {
  return /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1000 : null
}
