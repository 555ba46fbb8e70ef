/** Chat completions as they leave us: built from the members of OpenAI's wire, with our model and our ids. */
import type { Ids } from './encrypted-ids.ts'
import type { Meter } from '../usage/output-meter.ts'
import { constant, id, isMembers, list, nullable, number, object, oneOf, or, text, type Clean, type Members } from './member-allowlist.ts'
import { chatUsage } from '../usage/reported-usage.ts'
import { MODEL } from './wire.ts'

const FINISHED = ['stop', 'length', 'tool_calls', 'content_filter', 'function_call']
const OTHER_WORDS: Record<string, string> = { max_tokens: 'length', model_length: 'length', tool_use: 'tool_calls' }

/** Why a choice ended, in OpenAI's words; null while it has not. */
const finishReason: Clean = (value) => {
  if (typeof value !== 'string' || value === '') return null
  return FINISHED.includes(value) ? value : (OTHER_WORDS[value] ?? 'stop')
}

const token = { token: text, logprob: number, bytes: nullable(list(number)) }
const tokens = nullable(list(object({ ...token, top_logprobs: list(object(token)) })))
const logprobs = or(object({ content: tokens, refusal: tokens }), null)

const citation = object({ start_index: number, end_index: number, url: text, title: text })
const annotations = list(object({ type: oneOf('url_citation'), url_citation: citation }))

/** Text, also where it comes as a list of parts. */
const content: Clean = (value) => {
  if (!Array.isArray(value)) return typeof value === 'string' || value === null ? value : undefined
  return value.map((part: unknown) => (isMembers(part) && typeof part['text'] === 'string' ? part['text'] : '')).join('')
}

const call = { name: text, arguments: text }
const toolCall = {
  id: id('call_'),
  type: oneOf('function', 'custom'),
  function: object(call),
  custom: object({ name: text, input: text }),
}
const audio = object({ id: id('audio_'), data: text, expires_at: number, transcript: text })

const said = {
  role: oneOf('assistant'),
  content,
  refusal: nullable(text),
  reasoning_content: nullable(text),
  reasoning: nullable(text),
}

const message = object({
  ...said,
  role: constant('assistant'),
  content: or(content, null),
  refusal: or(text, null),
  annotations,
  audio: nullable(audio),
  function_call: object(call),
  tool_calls: list(object({ ...toolCall, type: or(toolCall.type, 'function') })),
})

/** Streamed tool calls are put together by their index; some upstreams send whole calls without one. */
const toolCallDeltas: Clean = (value, ids) =>
  Array.isArray(value)
    ? value.map((entry: unknown, index) => ({ index, ...(toolCallDelta(entry, ids) as Members | undefined) }))
    : undefined
const toolCallDelta = object({ index: number, ...toolCall })

const delta = or(object({ ...said, audio, function_call: object(call), tool_calls: toolCallDeltas }), {})

const serviceTier = nullable(oneOf('auto', 'default', 'flex', 'scale', 'priority'))

const choice = { index: or(number, 0), logprobs, finish_reason: finishReason }
const choices = list(object({ ...choice, index: choice.index, message, finish_reason: (value, ids) => finishReason(value, ids) ?? 'stop' }))
const chunkChoices = list(object({ index: choice.index, delta, logprobs, finish_reason: finishReason }))

/** What every chunk of one stream shares. */
export type Head = { id: string; created: number }

/** The whole answer, or undefined if it is none. `now` is epoch seconds, for an upstream that tells no time. */
export function cleanCompletion(value: unknown, ids: Ids, now: number): Members | undefined {
  if (!isMembers(value) || !Array.isArray(value['choices']) || value['choices'].length === 0) return undefined
  const usage = chatUsage(value['usage'])
  return {
    ...headOf(value, ids, now, 'chat.completion'),
    model: MODEL,
    choices: choices(value['choices'], ids),
    ...(usage ? { usage } : {}),
    ...tierOf(value, ids),
  }
}

function headOf(value: Members, ids: Ids, now: number, kind: string): Members {
  const head = openHead(value, ids, now)
  return { id: head.id, object: kind, created: head.created }
}

export function openHead(value: Members, ids: Ids, now: number): Head {
  return {
    // No request of this wire names an earlier completion, so there is nothing to map back.
    id: ids.fresh('chatcmpl-'),
    created: typeof value['created'] === 'number' ? value['created'] : now,
  }
}

function tierOf(value: Members, ids: Ids): Members {
  const tier = serviceTier(value['service_tier'], ids)
  return tier === undefined ? {} : { service_tier: tier }
}

/** A chunk with these choices, its members in OpenAI's order. `usage` is there, as null, when the client asked for it. */
export function chunkOf(head: Head, cleaned: unknown, includeUsage: boolean, more: Members = {}): Members {
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

/** One chunk of a stream, or null if nothing of it is for the client. */
export function cleanChunk(value: Members, ids: Ids, head: Head, includeUsage: boolean): Members | null {
  const cleaned = chunkChoices(value['choices'], ids) as Members[] | undefined
  if (!cleaned || cleaned.length === 0) return null
  const chunk = chunkOf(head, cleaned, includeUsage, tierOf(value, ids))
  return typeof value['obfuscation'] === 'string' ? { ...chunk, obfuscation: value['obfuscation'] } : chunk
}

/** Tells the meter all text of cleaned choices, streamed or whole. */
export function measure(cleaned: Members[], meter: Meter): void {
  for (const one of cleaned) {
    const spoken = one['delta'] ?? one['message']
    if (!isMembers(spoken)) continue
    for (const name of ['content', 'refusal', 'reasoning_content', 'reasoning']) {
      const words = spoken[name]
      if (typeof words === 'string' && words !== '') meter.plain(words)
    }
    for (const called of calledIn(spoken)) meter.plain(called)
  }
}

function calledIn(spoken: Members): string[] {
  const calls = [
    spoken['function_call'],
    ...(Array.isArray(spoken['tool_calls']) ? (spoken['tool_calls'] as Members[]).flatMap((one) => [one['function'], one['custom']]) : []),
  ]
  return calls
    .filter(isMembers)
    .flatMap((one) => [one['name'], one['arguments'], one['input']])
    .filter((words) => typeof words === 'string' && words !== '') as string[]
}
