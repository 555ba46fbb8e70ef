/** A Responses request at an upstream of the Messages wire. Its answer becomes that of a Responses upstream, so that all behind it stays as it is. */
import type { Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { bodyWriter } from '../../wires/upstream-body.ts'
import type { UpstreamCall } from '../../wires/wire.ts'
import { chatTools, toolsOf } from '../responses-to-chat/chat-tools.ts'
import { messagesBody } from './messages-body.ts'
import { openMessagesRewriter, responseFor } from './response-answer.ts'

/** What becomes of the answer of a Responses upstream. */
export type ResponsesAnswer = Pick<UpstreamCall, 'openRewriter' | 'rewriteJson'>

/** `members`: the body of a Responses request, of which only its ids may be the client's. `limit`: output tokens. Throws `unsupported_parameter`. */
export function responsesToMessages(
  members: Members,
  { limit, stream, stop, ids }: { limit: number; stream: boolean; stop: readonly string[]; ids: Ids },
  answer: ResponsesAnswer,
): UpstreamCall {
  const tools = chatTools(toolsOf(members))
  const sent = { ...messagesBody(members, limit, stop, tools, ids), ...(stream ? { stream: true } : {}) }
  return {
    wire: 'messages',
    stream,
    ...bodyWriter('messages', sent, 'max_tokens', limit, true, ids),
    openRewriter: (templates) => openMessagesRewriter(answer.openRewriter(templates), tools, templates),
    rewriteJson: (value) => answer.rewriteJson(responseFor(value, tools)),
    isTranslation: true,
    translated: null,
  }
}
