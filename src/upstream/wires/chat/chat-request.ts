/** `POST /v1/chat/completions`: validates the request and makes the upstream call. */
import { BadAnswer, type CodingRequest, type JsonAnswer, type UpstreamCall } from '../wire.ts'
import { cleanCompletion, hasFailedChoice, meterChoices } from './chat-allowed-members.ts'
import { openChatStream } from './chat-stream.ts'
import type { Address } from '../../policy/content-parts.ts'
import { cleanMessages } from '../../policy/conversation.ts'
import { withoutMembers } from '../../policy/request-policy.ts'
import { bodyWriter, obfuscationOf, replaceIdentities, restoreIds } from '../upstream-body.ts'
import type { Ids } from '../encrypted-ids.ts'
import {
  checkTools,
  checkTypes,
  dropMistyped,
  invalid,
  readBody,
  readBoolean,
  readCount,
  readLimit,
  type MemberTypes,
} from '../coding-request-validation.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { isMembers, own, type Members } from '../allowlist.ts'
import { callOver } from '../../translation/translated-calls.ts'
import { chatToMessages, chatToResponses } from '../../translation/chat-to-responses/chat-to-responses.ts'
import { detailsOf, openCallId, replayedReasoning } from '../sealed-members.ts'
import { estimatedChatUsage, readUsage } from '../../usage/reported-usage.ts'

const MAX_CHOICES = 128

const MEMBERS: MemberTypes = {
  messages: 'objects',
  stream_options: 'object',
  tools: 'objects',
  tool_choice: 'string or object',
  parallel_tool_calls: 'boolean',
  functions: 'objects',
  function_call: 'string or object',
  response_format: 'object',
  stop: 'string or strings',
  temperature: 'number',
  top_p: 'number',
  presence_penalty: 'number',
  frequency_penalty: 'number',
  logit_bias: 'object',
  logprobs: 'boolean',
  top_logprobs: 'number',
  seed: 'number',
  reasoning_effort: 'string',
  modalities: 'strings',
  audio: 'object',
  prediction: 'object',
  metadata: 'object',
  store: 'boolean',
  user: 'string',
  prompt_cache_key: 'string',
  safety_identifier: 'string',
}
/** Of open models: agents send them to any server, in forms of their own. */
const AGENT_MEMBERS: MemberTypes = { reasoning: 'object', thinking: 'object', enable_thinking: 'boolean' }
const MESSAGE: MemberTypes = {
  content: 'string or objects',
  tool_calls: 'objects',
  tool_call_id: 'string',
  function_call: 'object',
  audio: 'object',
}
const STREAM_OPTIONS: MemberTypes = { include_usage: 'boolean' }
/** Members whose value the gateway sets. */
const SET_HERE = ['model', 'max_tokens', 'max_completion_tokens', 'stream', 'stream_options']

/** Validates a parsed body and leaves out of its messages what upstreams do not get. Throws `invalid_request` naming the parameter, or `model_not_found`. */
export function readChatRequest(value: unknown, allowed: ReadonlySet<string>): CodingRequest {
  const body = readBody(value)
  checkTypes(body, MEMBERS)
  dropMistyped(body, AGENT_MEMBERS)
  checkTools(body)
  const messages = (own(body, 'messages') ?? missing()) as Members[]
  if (messages.length === 0) throw invalid('messages', 'messages must not be empty.')
  for (const [index, message] of messages.entries()) {
    if (typeof own(message, 'role') !== 'string') throw invalid(`messages[${index}].role`, `messages[${index}].role must be a string.`)
    checkTypes(message, MESSAGE, `messages[${index}].`)
  }
  const addresses: Address[] = []
  cleanMessages(messages, { addresses, allowed })
  const stream = readBoolean(body, 'stream')
  const options = (own(body, 'stream_options') ?? {}) as Members
  checkTypes(options, STREAM_OPTIONS, 'stream_options.')
  const choices = readCount(body, 'n', MAX_CHOICES) ?? 1
  const limits = [readLimit(body, 'max_completion_tokens'), readLimit(body, 'max_tokens')].filter((limit) => limit !== null)
  const perChoice = limits.length > 0 ? Math.min(...limits) : null
  return {
    stream,
    choices,
    addresses,
    maxOutputTokens: perChoice === null ? null : Math.min(perChoice * choices, Number.MAX_SAFE_INTEGER),
    call(cap, ids, now, wires) {
      const request = { body, messages, stream, options, perChoice, choices, createdAt: now() }
      replaceIdentities(body, ids)
      return callOver(wires, {
        own: 'chat',
        make: {
          chat: () => chatCall(request, cap, ids),
          responses: () => chatToResponses(request, cap, ids),
          messages: () => chatToMessages(request, cap, ids),
        },
      })
    },
  }
}

function missing(): never {
  throw invalid('messages', 'messages is required.')
}

/** `perChoice`: the client's limit of output tokens for each of its `choices`. */
export type ChatRequest = {
  body: Members
  messages: Members[]
  stream: boolean
  options: Members
  perChoice: number | null
  choices: number
  /** Epoch seconds. */
  createdAt: number
}

function chatCall(request: ChatRequest, cap: number, ids: Ids): UpstreamCall {
  const { messages, stream, options, perChoice, choices, createdAt } = request
  for (const message of messages) {
    // OpenAI's servers take either role, and the templates of many open models refuse the newer one.
    if (own(message, 'role') === 'developer') message['role'] = 'system'
    restoreIds(message, ['tool_call_id'], ids)
    for (const call of (own(message, 'tool_calls') ?? []) as Members[]) restoreCall(call, ids)
    restoreReasoning(message, ids)
    restoreIds((own(message, 'audio') ?? {}) as Members, ['id'], ids)
  }
  const rest = withoutMembers(request.body, SET_HERE)
  const share = Math.max(1, Math.floor(cap / choices))
  const isLegacy = typeof own(request.body, 'max_tokens') === 'number' && typeof own(request.body, 'max_completion_tokens') !== 'number'
  const field = isLegacy ? 'max_tokens' : 'max_completion_tokens'
  const sent = stream ? { ...rest, stream: true, stream_options: { ...obfuscationOf(options), include_usage: true } } : rest
  const written = bodyWriter('chat', sent, field, perChoice === null ? share : Math.min(perChoice, share), false, ids)
  const streamOptions = { ids, includeUsage: options['include_usage'] === true, createdAt }
  return {
    wire: 'chat',
    stream,
    ...written,
    openRewriter: (templates) => openChatStream({ ...streamOptions, templates }),
    rewriteJson: (value) => chatAnswer(value, ids, createdAt),
    isTranslation: false,
    translated: null,
  }
}

/** Restores the id of a tool call, and the `extra_content` that was sealed into it. */
function restoreCall(call: Members, ids: Ids): void {
  const sealed = own(call, 'id')
  if (typeof sealed !== 'string') return
  const { id, extra } = openCallId(sealed, ids)
  call['id'] = id
  if (!extra) return
  call['extra_content'] = extra
  ids.opened.set(extra, sealed)
}

/** Restores `reasoning_details` that we sealed. */
function restoreReasoning(message: Members, ids: Ids): void {
  const replayed = replayedReasoning(message, ids)
  if (replayed.length === 0) return
  const details = detailsOf(replayed, ids)
  if (details.length > 0) message['reasoning_details'] = details
  else delete message['reasoning_details']
}

function chatAnswer(value: unknown, ids: Ids, createdAt: number): JsonAnswer {
  const completion = cleanCompletion(value, ids, createdAt)
  const choices = completion?.['choices'] as Members[] | undefined
  if (!completion || !choices?.every((choice) => isMembers(choice['message']))) throw new BadAnswer('the answer is not a chat completion')
  if (hasFailedChoice((value as Members)['choices'])) throw new BadAnswer('a choice ended by a failure')
  const meter = openMeter()
  meterChoices(choices, meter.addText)
  const usage = readUsage((value as Members)['usage'])
  return { body: (estimate) => JSON.stringify(usage ? completion : { ...completion, usage: estimatedChatUsage(estimate) }), usage, meter }
}
