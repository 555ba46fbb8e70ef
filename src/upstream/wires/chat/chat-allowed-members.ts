/** Allowlist of chat completions and their chunks: the members of OpenAI's wire, with our model name and our ids. */
import type { Ids, SealingIds } from '../encrypted-ids.ts'
import { constant, id, isMembers, list, nullable, number, object, oneOf, or, text, type Clean, type Members } from '../allowlist.ts'
import { chatUsage } from '../../usage/reported-usage.ts'
import { finishReasonOf, isFailedReason } from './finish-reasons.ts'
import { reasoningDetails, sealCallId } from '../sealed-members.ts'
import { MODEL } from '../model-name.ts'

const token = { token: or(text, ''), logprob: or(number, 0), bytes: or(list(number), null) }
const tokens = or(list(object({ ...token, top_logprobs: or(list(object(token)), []) })), null)
const logprobs = or(object({ content: tokens, refusal: tokens }), null)

const citation = object({ start_index: or(number, 0), end_index: or(number, 0), url: or(text, ''), title: or(text, '') })
const annotations = list(object({ type: oneOf('url_citation'), url_citation: citation }))

/** Text; a list of parts is joined. */
const content: Clean = (value) => {
  if (!Array.isArray(value)) return typeof value === 'string' || value === null ? value : undefined
  return value.map((part: unknown) => (isMembers(part) && typeof part['text'] === 'string' ? part['text'] : '')).join('')
}

/** Some servers send the object instead of its JSON. */
export const argumentsText: Clean = (value, ids) => (isMembers(value) ? JSON.stringify(value) : text(value, ids))

const call = { name: text, arguments: argumentsText }
const wholeCall = object({ name: or(text, ''), arguments: or(argumentsText, '') })
const toolCall = {
  id: id('call_'),
  type: oneOf('function', 'custom'),
  function: object(call),
  custom: object({ name: text, input: text }),
}
/** A call whose `extra_content` is sealed into its id. */
const sealed =
  (clean: Clean): Clean =>
  (value, ids) => {
    const cleaned = clean(value, ids)
    if (!isMembers(value) || !isMembers(cleaned) || cleaned['id'] === undefined) return cleaned
    return { ...cleaned, id: sealCallId(String(value['id']), value['extra_content'], ids) }
  }
/** A call of a whole message. One without an id could not be answered; one that calls nothing is dropped. */
const wholeToolCall: Clean = (value, ids) => {
  const cleaned = sealedToolCall(value, ids)
  if (!isMembers(cleaned) || (cleaned['function'] === undefined && cleaned['custom'] === undefined)) return undefined
  return { id: ids.fresh('call_'), ...cleaned, type: cleaned['function'] === undefined ? 'custom' : 'function' }
}
const wholeCustom = object({ name: or(text, ''), input: or(text, '') })
const sealedToolCall = sealed(object({ ...toolCall, function: wholeCall, custom: wholeCustom }))

/** Some servers send an empty list of calls with every message, or entries that call nothing. */
const unlessEmpty =
  (clean: Clean): Clean =>
  (value, ids) => {
    const cleaned = clean(value, ids)
    return Array.isArray(cleaned) && cleaned.length === 0 ? undefined : cleaned
  }

const audio = object({ id: id('audio_'), data: text, expires_at: number, transcript: text })

const spoken = {
  role: oneOf('assistant'),
  content,
  refusal: nullable(text),
  reasoning_content: nullable(text),
  reasoning: nullable(text),
  reasoning_details: reasoningDetails,
}

const message = object({
  ...spoken,
  role: constant('assistant'),
  content: or(content, null),
  refusal: or(text, null),
  annotations,
  audio: nullable(audio),
  function_call: wholeCall,
  tool_calls: unlessEmpty(list(wholeToolCall)),
})

/** Some upstreams send whole calls without an index. */
const toolCallDeltas: Clean = (value, ids) =>
  Array.isArray(value)
    ? value.map((entry: unknown, index) => ({ index, ...(toolCallDelta(entry, ids) as Members | undefined) }))
    : undefined
const toolCallDelta = sealed(object({ index: number, ...toolCall }))

const delta = or(object({ ...spoken, annotations, audio, function_call: object(call), tool_calls: unlessEmpty(toolCallDeltas) }), {})

const serviceTier = nullable(oneOf('auto', 'default', 'flex', 'scale', 'priority'))

const choice = { index: or(number, 0), logprobs, finish_reason: finishReasonOf }
const wholeChoice = object({ ...choice, message })
const choices = list((value, ids) => {
  const cleaned = wholeChoice(value, ids)
  if (isMembers(cleaned))
    cleaned['finish_reason'] ??= isMembers(cleaned['message']) && cleaned['message']['tool_calls'] ? 'tool_calls' : 'stop'
  return cleaned
})
const chunkChoices = list(object({ index: choice.index, delta, logprobs, finish_reason: finishReasonOf }))

/** The members that are equal in all chunks of a stream. */
export type CompletionHead = { id: string; created: number }

/** The whole answer, or undefined if it is no chat completion. `createdAt` is epoch seconds. */
export function cleanCompletion(value: unknown, ids: Ids, createdAt: number): Members | undefined {
  if (!isMembers(value) || !Array.isArray(value['choices']) || value['choices'].length === 0) return undefined
  const usage = chatUsage(value['usage'])
  const head = completionHead(ids, createdAt)
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: MODEL,
    choices: choices(value['choices'], ids),
    ...(usage ? { usage } : {}),
    ...tierOf(value, ids),
  }
}

/**
 * `createdAt`: of the request, in epoch seconds, because an upstream's clock tells it apart. No request of this wire refers to an earlier
 * completion, so its id is not needed again.
 */
export function completionHead(ids: Ids, createdAt: number): CompletionHead {
  return { id: ids.fresh('chatcmpl-'), created: createdAt }
}

/** The `service_tier` of an answer, if it is one of the wire. */
export function tierOf(value: Members, ids: SealingIds): Members {
  const tier = serviceTier(value['service_tier'], ids)
  return tier === undefined ? {} : { service_tier: tier }
}

/** A chunk with these choices, its members in OpenAI's order. `usage` is null if the client requested it, else absent. */
export function chunkOf(head: CompletionHead, cleaned: unknown, includeUsage: boolean, more: Members = {}): Members {
  return {
    id: head.id,
    object: 'chat.completion.chunk',
    created: head.created,
    model: MODEL,
    ...more,
    choices: cleaned,
    ...(includeUsage ? { usage: null } : {}),
  }
}

/** One chunk of a stream, or null if it has no choices for the client. */
export function cleanChunk(value: Members, ids: SealingIds, head: CompletionHead, includeUsage: boolean): Members | null {
  const cleaned = chunkChoices(value['choices'], ids) as Members[] | undefined
  if (!cleaned || cleaned.length === 0) return null
  const chunk = chunkOf(head, cleaned, includeUsage, tierOf(value, ids))
  return typeof value['obfuscation'] === 'string' ? { ...chunk, obfuscation: value['obfuscation'] } : chunk
}

/** Whether the model ended a choice by a failure. `choices` are the upstream's. */
export function hasFailedChoice(choices: unknown): boolean {
  return Array.isArray(choices) && choices.some((choice: unknown) => isMembers(choice) && isFailedReason(choice['finish_reason']))
}

/** Calls `add` with each text of cleaned choices, streamed or whole. */
export function meterChoices(cleaned: Members[], add: (text: string) => void): void {
  for (const choice of cleaned) {
    const message = choice['delta'] ?? choice['message']
    if (!isMembers(message)) continue
    for (const name of ['content', 'refusal', 'reasoning_content', 'reasoning']) {
      const value = message[name]
      if (typeof value === 'string' && value !== '') add(value)
    }
    if (message['function_call'] || message['tool_calls']) for (const value of toolCallTexts(message)) add(value)
  }
}

function toolCallTexts(message: Members): string[] {
  const calls = [
    message['function_call'],
    ...(Array.isArray(message['tool_calls'])
      ? (message['tool_calls'] as Members[]).flatMap((one) => [one['function'], one['custom']])
      : []),
  ]
  return calls
    .filter(isMembers)
    .flatMap((one) => [one['name'], one['arguments'], one['input']])
    .filter((value) => typeof value === 'string' && value !== '') as string[]
}
