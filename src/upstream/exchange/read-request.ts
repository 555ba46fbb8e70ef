/** Reads the body of a coding request on its wire, before admission: what is at fault is refused, what upstreams do not get is taken out, and what is left has a size. */
import type { IncomingHttpHeaders } from 'node:http'
import { betaNames } from '../policy/betas.ts'
import { promptBytes } from '../usage/prompt-size.ts'
import type { Members } from '../wires/allowlist.ts'
import { readChatRequest } from '../wires/chat/chat-request.ts'
import { readMessagesRequest } from '../wires/messages/messages-request.ts'
import { compactingBody, readResponsesRequest } from '../wires/responses/responses-request.ts'
import type { CodingRequest, WireName } from '../wires/wire.ts'

/** A valid request, and the size of its prompt in bytes as upstreams get it, for the estimate of its tokens. */
export type ReadRequest = { request: CodingRequest; promptBytes: number }

/** Bytes of a prompt per token, for what a stream of the Messages wire tells before the upstream reports its usage. */
const BYTES_PER_TOKEN = 4

/**
 * Changes the body in place. `headers`: of the request, because the Messages wire has names of features there. `allowed`: what all upstreams allow
 * beyond the documented members. Throws the failure of an invalid request.
 */
export function readRequest(wire: WireName, body: unknown, headers: IncomingHttpHeaders, allowed: ReadonlySet<string>): ReadRequest {
  if (wire === 'messages') return readMessages(body, headers, allowed)
  const request = wire === 'chat' ? readChatRequest(body, allowed) : readResponsesRequest(body, allowed)
  return { request, promptBytes: promptBytes(wire, body as Members, allowed) }
}

/** The same for `/responses/compact`. */
export function readCompaction(body: unknown, _headers: IncomingHttpHeaders, allowed: ReadonlySet<string>): ReadRequest {
  const built = compactingBody(body)
  const request = readResponsesRequest(built, allowed, 'compaction')
  return { request, promptBytes: promptBytes('responses', built, allowed) }
}

function readMessages(body: unknown, headers: IncomingHttpHeaders, allowed: ReadonlySet<string>): ReadRequest {
  let size = 0
  const promptTokens = (cleaned: Members) => {
    size = promptBytes('messages', cleaned, allowed)
    return Math.ceil(size / BYTES_PER_TOKEN)
  }
  const request = readMessagesRequest(body, allowed, { betas: betaNames(headers['anthropic-beta']), promptTokens })
  return { request, promptBytes: size }
}
