/** The calls of a Responses request with answers for a Messages client, over whatever wires those calls have. */
import type { Members } from '../../wires/allowlist.ts'
import type { JsonAnswer, UpstreamCall } from '../../wires/wire.ts'
import { openMessageStream } from './message-stream.ts'
import { messageOf } from '../../wires/messages/message-object.ts'
import { messageUsage } from '../../wires/messages/message-usage.ts'
import { contentOf, type MessageContext } from './message-content.ts'

/** The same call, whose answers are messages. */
export function answeringMessages(call: UpstreamCall, context: MessageContext): UpstreamCall {
  return {
    ...call,
    openRewriter: (templates) => openMessageStream(call.openRewriter(templates), context, templates),
    rewriteJson: (value) => messageAnswer(call.rewriteJson(value), context),
    isTranslation: true,
    translated: call.translated && answeringMessages(call.translated, context),
  }
}

function messageAnswer({ body, usage, meter }: JsonAnswer, context: MessageContext): JsonAnswer {
  return {
    usage,
    meter,
    body(estimate) {
      const response = JSON.parse(body(estimate)) as Members
      const { content, stop } = contentOf(response, context)
      return JSON.stringify(messageOf(context.freshId(), content, stop, messageUsage(response['usage'])))
    },
  }
}
