/** `POST /v1/messages`: validates the request and makes the upstream call. */
import { Failure, type FaultCode } from '../../../domain/errors.ts'
import type { Address } from '../../policy/content-parts.ts'
import { cleanTurns } from '../../policy/conversation.ts'
import { withoutMembers } from '../../policy/request-policy.ts'
import { callOver } from '../../translation/translated-calls.ts'
import { answeringMessages } from '../../translation/messages-to-responses/messages-to-responses.ts'
import { responsesBody, thinkingDisplay } from '../../translation/messages-to-responses/responses-body.ts'
import type { MessageContext } from '../../translation/messages-to-responses/message-content.ts'
import type { Place } from '../../translation/messages-to-responses/input-items.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { estimatedResponseUsage, readUsage } from '../../usage/reported-usage.ts'
import type { Ids } from '../encrypted-ids.ts'
import { invalid, readBoolean, readLimit } from '../coding-request-validation.ts'
import { isMembers, own, ownText, type Members } from '../allowlist.ts'
import { LEAST_OUTPUT, readResponsesRequest } from '../responses/responses-request.ts'
import { bodyWriter } from '../upstream-body.ts'
import { BadAnswer, type CodingRequest, type JsonAnswer, type UpstreamCall, type WireName } from '../wire.ts'
import { cleanContent, contextMembers, stopOf } from './message-allowed-members.ts'
import { checkMessagesBody } from './message-checks.ts'
import { messageOf } from './message-object.ts'
import { openNativeStream, type NativeContext } from './message-stream.ts'
import { cleanUsage, inclusiveUsage, messageUsage } from './message-usage.ts'
import { restoredTurns } from './replayed-blocks.ts'
import { withAllowedThinking, withoutThinking } from './allowed-thinking.ts'

/** Members whose value the gateway sets. */
const SET_HERE = ['model', 'max_tokens', 'stream', 'metadata', 'messages']
/** The least that the wire takes. */
const MIN_BUDGET = 1024

/** What a request says beside its body. `betas`: the names in `anthropic-beta`. `promptTokens`: estimates the tokens of the body; the beginning of a stream tells it. */
export type MessagesOptions = { betas: readonly string[]; promptTokens: (body: Members) => number }

/**
 * Validates a parsed body and leaves out of it what upstreams do not get. Throws `invalid_request` naming the parameter, and `model_not_found`.
 */
export function readMessagesRequest(value: unknown, allowed: ReadonlySet<string>, { betas, promptTokens }: MessagesOptions): CodingRequest {
  const body = checkMessagesBody(value)
  if (own(body, 'max_tokens') === undefined)
    throw invalid('max_tokens', 'max_tokens is required: the most tokens that the answer may have.')
  // 0 fills the cache of the upstream and answers nothing.
  const limit = own(body, 'max_tokens') === 0 ? 0 : readLimit(body, 'max_tokens')
  const stream = readBoolean(body, 'stream')
  const addresses: Address[] = []
  cleanTurns(body, { addresses, allowed })
  const estimate = Math.max(1, promptTokens(body))
  return {
    stream,
    choices: 1,
    maxOutputTokens: limit,
    addresses,
    call(cap: number, ids: Ids, now: () => number, wires: readonly WireName[]): UpstreamCall {
      const context = { promptTokens: estimate, freshId: () => ids.fresh('msg_') }
      const translated = (wire: WireName, least: number) =>
        translatedCall(body, least, allowed, context, (request) => request.call(Math.max(cap, least), ids, now, [wire]))
      return callOver(wires, {
        own: 'messages',
        make: {
          messages: () => nativeCall(body, { stream, betas, limit: Math.min(limit ?? cap, cap) }, { ids, promptTokens: estimate }),
          responses: () => translated('responses', LEAST_OUTPUT),
          chat: () => translated('chat', 1),
        },
      })
    },
  }
}

function nativeCall(
  body: Members,
  { stream, betas, limit }: { stream: boolean; betas: readonly string[]; limit: number },
  context: NativeContext,
): UpstreamCall {
  const { ids } = context
  const userId = ownText((own(body, 'metadata') ?? {}) as Members, 'user_id')
  const messages = restoredTurns(own(body, 'messages') as Members[], ids)
  const sent = {
    ...withinLimit(withoutMembers(body, SET_HERE), limit),
    ...(userId === '' ? {} : { metadata: { user_id: ids.pseudonym(userId) } }),
    ...(stream ? { stream: true } : {}),
    messages,
  }
  return {
    wire: 'messages',
    stream,
    betas,
    ...bodyWriter('messages', withAllowedThinking(sent), 'max_tokens', limit, true, ids),
    openRewriter: (templates) => openNativeStream(context, templates),
    rewriteJson: (value) => messageAnswer(value, context),
    isTranslation: false,
    translated: null,
  }
}

/** The wire refuses a budget that is not below the limit of tokens, which the plan may have lowered. */
function withinLimit(members: Members, limit: number): Members {
  const thinking = own(members, 'thinking')
  if (!isMembers(thinking)) return withoutMembers(members, ['thinking'])
  const budget = own(thinking, 'budget_tokens')
  if (typeof budget !== 'number' || budget < limit) return members
  const half = Math.floor(limit / 2)
  return half < MIN_BUDGET ? withoutThinking(members) : { ...members, thinking: { ...thinking, budget_tokens: half } }
}

function messageAnswer(value: unknown, { ids }: NativeContext): JsonAnswer {
  if (!isMembers(value) || !Array.isArray(value['content'])) throw new BadAnswer('the answer is not a message')
  const content = cleanContent(value['content'], ids)
  const meter = openMeter()
  for (const block of content) {
    for (const name of ['text', 'thinking', 'name']) if (typeof block[name] === 'string') meter.addText(block[name])
    if (isMembers(block['input'])) meter.addText(JSON.stringify(block['input']))
  }
  const stop = stopOf(
    value,
    content.some(({ type }) => type === 'tool_use'),
  )
  const message = (usage: Members) =>
    JSON.stringify({ ...messageOf(ids.fresh('msg_'), content, stop, usage), ...contextMembers(value, ids) })
  const given = isMembers(value['usage']) ? value['usage'] : {}
  const usage = readUsage(inclusiveUsage(given))
  return { body: (estimate) => message(usage ? cleanUsage(given, ids) : messageUsage(estimatedResponseUsage(estimate))), usage, meter }
}

/** The call of the same request by way of the Responses wire. */
function translatedCall(
  body: Members,
  least: number,
  allowed: ReadonlySet<string>,
  answered: Pick<MessageContext, 'promptTokens' | 'freshId'>,
  callOf: (request: CodingRequest) => UpstreamCall,
): UpstreamCall {
  const { body: built, places } = responsesBody(body, least)
  const context = {
    thinking: thinkingDisplay(body),
    stopSequences: ((own(body, 'stop_sequences') ?? []) as string[]).filter((sequence) => sequence !== ''),
    ...answered,
  }
  try {
    return answeringMessages(callOf(readResponsesRequest(built, allowed)), context)
  } catch (error) {
    throw error instanceof Failure ? ofThisWire(error, places) : error
  }
}

/** The failure with the path of the client's request. */
function ofThisWire(failure: Failure, places: readonly Place[]): Failure {
  const { param } = failure.facts
  if (typeof param !== 'string' || !param.startsWith('input[')) return failure
  const place = placeOf(param, places)
  // A limit names no member of the request.
  const code = failure.code as FaultCode
  return new Failure(code, { param: place, message: `The model does not support ${place} on this endpoint at present.` })
}

const PATH = /^input\[(\d+)\](?:\.(?:content|output)\[(\d+)\])?/

/** The place in the client's request of a path in the translated one. */
function placeOf(path: string, places: readonly Place[]): string {
  const [, item, part] = PATH.exec(path) ?? []
  const place = places[Number(item)]
  return (part === undefined ? undefined : place?.parts[Number(part)]) ?? place?.item ?? 'messages'
}
