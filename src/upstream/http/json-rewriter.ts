/** A JSON answer as a stream that has nothing for the client until its end: then all of it, once its usage is known. */
import { Failure } from '../../domain/errors.ts'
import { overloaded } from '../sse/stream-rewriter.ts'
import { openMeter } from '../usage/output-meter.ts'
import { isMembers } from '../wires/allowlist.ts'
import { clientErrorIn } from '../wires/client-error-mapping.ts'
import { BadAnswer, type JsonAnswer, type Phase, type StreamRewriter, type UpstreamCall } from '../wires/wire.ts'

const MAX_BYTES = 64 * 1024 * 1024

/**
 * Collects the body, and rewrites it at its end: `terminalEvents` is then the JSON for the client, as text. A failure breaks it before it
 * began.
 */
export function openJsonRewriter(call: Pick<UpstreamCall, 'rewriteJson'>): StreamRewriter {
  let chunks: Buffer[] = []
  let size = 0
  let answer: JsonAnswer | null = null
  let phase: Phase = { name: 'open' }

  function rewrite(): void {
    const value: unknown = JSON.parse((chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)).toString('utf8'))
    chunks = []
    if (isMembers(value) && isMembers(value['error']))
      throw clientErrorIn(value['error']) ?? new BadAnswer('error with status 200', { cause: value['error'] })
    answer = call.rewriteJson(value)
    // Not by a getter: each object with one gets a hidden class of its own, which lies in the old generation and keeps the request.
    rewriter.meter = answer.meter
    phase = answer.failure ? { name: 'broken', failure: answer.failure, isAnswer: true } : { name: 'done', cutsOff: false }
  }

  function fail(cause: unknown): void {
    phase = { name: 'broken', failure: cause instanceof Failure ? cause : overloaded('the answer is not the wire', cause) }
  }

  const rewriter: StreamRewriter = {
    push(chunk) {
      size += chunk.length
      if (size <= MAX_BYTES) chunks.push(Buffer.from(chunk))
      else fail(new BadAnswer('the answer is too large'))
      return ''
    },
    end() {
      try {
        rewrite()
      } catch (cause) {
        fail(cause)
      }
      return ''
    },
    fail: () => '',
    phase: () => phase,
    terminalEvents: (estimate) => answer?.body(estimate) ?? '',
    usage: () => answer?.usage ?? null,
    meter: openMeter(),
  }
  return rewriter
}
