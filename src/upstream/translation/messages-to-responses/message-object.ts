/** The Message object of Anthropic's wire, built from a Responses object. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import { MODEL } from '../../wires/model-name.ts'
import { readUsage } from '../../usage/reported-usage.ts'
import { openStopFilter } from '../stop-sequences.ts'
import { signatureOf } from './thinking-signature.ts'

/** What the answer depends on beside the upstream's. */
export type MessageContext = {
  /** Whether the answer has thinking blocks. */
  thinking: boolean
  stopSequences: readonly string[]
  /** Of the prompt, estimated: told before the upstream reports its usage. */
  promptTokens: number
}

export type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'refusal'

/** How an answer ended; `sequence` is the stop sequence that was found. */
export type Stop = { reason: StopReason; sequence: string | null }

/** A message with every member of the wire. `response`: for the id. */
export function messageOf(response: Members, content: Members[], stop: Stop | null, usage: Members): Members {
  return {
    id: ownText(response, 'id').replace(/^resp_/, 'msg_'),
    type: 'message',
    role: 'assistant',
    model: MODEL,
    content,
    ...stopMembers(stop),
    diagnostics: null,
    usage: { ...usage, cache_creation: null, inference_geo: null, service_tier: 'standard', speed: null },
  }
}

/** The members of a message, and of the delta at its end, that say how it ended. */
export function stopMembers(stop: Stop | null): Members {
  return {
    stop_reason: stop?.reason ?? null,
    stop_sequence: stop?.sequence ?? null,
    stop_details: stop?.reason === 'refusal' ? { type: 'refusal', category: null, explanation: null } : null,
    container: null,
  }
}

/** `usage` of a Responses object in the members of the Messages wire, where `input_tokens` is without the cached ones. */
export function messageUsage(usage: unknown): Members {
  const { input, cachedInput, output } = readUsage(usage) ?? { input: 0, cachedInput: 0, output: 0 }
  const details = isMembers(usage) ? usage : {}
  const written = detailOf(details, 'input_tokens_details', 'cache_write_tokens')
  const created = Math.min(written, input - cachedInput)
  return {
    input_tokens: input - cachedInput - created,
    cache_creation_input_tokens: created,
    cache_read_input_tokens: cachedInput,
    output_tokens: output,
    output_tokens_details: { thinking_tokens: detailOf(details, 'output_tokens_details', 'reasoning_tokens') },
    server_tool_use: null,
  }
}

function detailOf(usage: Members, holder: string, name: string): number {
  const details = usage[holder]
  const value = isMembers(details) ? details[name] : 0
  return typeof value === 'number' ? value : 0
}

/** Why a response ended, when no stop sequence did. */
export function stopOf(response: Members): Stop {
  const output = (response['output'] ?? []) as Members[]
  const details = response['incomplete_details']
  if (response['status'] === 'incomplete')
    return { reason: isMembers(details) && details['reason'] === 'content_filter' ? 'refusal' : 'max_tokens', sequence: null }
  if (output.some(({ type }) => type === 'function_call')) return { reason: 'tool_use', sequence: null }
  return { reason: output.some(hasRefusal) ? 'refusal' : 'end_turn', sequence: null }
}

function hasRefusal({ content }: Members): boolean {
  return Array.isArray(content) && (content as Members[]).some(({ type }) => type === 'refusal')
}

/** The content of a whole response, and its end. */
export function contentOf(response: Members, { thinking, stopSequences }: MessageContext): { content: Members[]; stop: Stop } {
  const content: Members[] = []
  for (const block of (response['output'] as Members[]).flatMap(blocksOf)) {
    if (block['type'] !== 'text') {
      if (thinking || block['type'] === 'tool_use') content.push(block)
      continue
    }
    const filter = openStopFilter(stopSequences)
    const text = filter.push(String(block['text'])) + filter.flush()
    if (text !== '') content.push({ ...block, text })
    if (filter.stopped()) return { content, stop: { reason: 'stop_sequence', sequence: filter.found() } }
  }
  return { content, stop: stopOf(response) }
}

/** The content blocks of a finished item; none for an item that the wire does not have. */
export function blocksOf(item: Members): Members[] {
  if (item['type'] === 'function_call') return [{ ...toolUseOf(item), input: inputOf(item) }]
  if (item['type'] === 'reasoning') return [thinkingOf(item)]
  if (item['type'] !== 'message') return []
  return ((item['content'] ?? []) as Members[])
    .map((part) => ownText(part, 'text') || ownText(part, 'refusal'))
    .filter((text) => text !== '')
    .map((text) => ({ type: 'text', text, citations: null }))
}

/** The beginning of a `tool_use` block. */
export function toolUseOf(item: Members): Members {
  const id = ownText(item, 'call_id').replace(/^call_/, 'toolu_')
  return { type: 'tool_use', id, name: ownText(item, 'name'), input: {}, caller: { type: 'direct' } }
}

/** Arguments that a limit of tokens cut off are no JSON: the object is then empty, as the wire has no other form. */
function inputOf(item: Members): unknown {
  try {
    const input: unknown = JSON.parse(ownText(item, 'arguments'))
    return isMembers(input) ? input : {}
  } catch {
    return {}
  }
}

function thinkingOf(item: Members): Members {
  const texts = (name: string) => ((item[name] ?? []) as Members[]).map((part) => ownText(part, 'text')).filter((text) => text !== '')
  const summary = texts('summary')
  const thinking = (summary.length > 0 ? summary : texts('content')).join('\n\n')
  const signature = signatureOf(item)
  return thinking === '' ? { type: 'redacted_thinking', data: signature } : { type: 'thinking', thinking, signature }
}
