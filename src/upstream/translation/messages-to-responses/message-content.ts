/** The content of a message, built from the output of a response. */
import { isMembers, ownText, parsedMembers, type Members } from '../../wires/allowlist.ts'
import type { Stop } from '../../wires/messages/message-object.ts'
import { openStopFilter } from '../stop-sequences.ts'
import { signatureOf } from './thinking-signature.ts'

/** Thinking blocks with their text, or with their signature alone. */
export type ThinkingDisplay = 'summarized' | 'omitted'

/** What the answer depends on beside the upstream's. */
export type MessageContext = {
  /** Null for an answer without thinking blocks: what the model thought before its calls is sealed. */
  thinking: ThinkingDisplay | null
  stopSequences: readonly string[]
  /** Of the prompt, estimated: told before the upstream reports its usage. */
  promptTokens: number
  /** The id of an answer. Not that of the response: clients take messages of one id for parts of one, and some upstreams repeat theirs. */
  freshId: () => string
}

/** Why a response ended, when no stop sequence did. */
export function stopOf(response: Members): Stop {
  const output = (response['output'] ?? []) as Members[]
  const details = response['incomplete_details']
  if (response['status'] === 'incomplete')
    return { reason: isMembers(details) && details['reason'] === 'content_filter' ? 'refusal' : 'max_tokens', sequence: null }
  if (output.some(({ type }) => type === 'function_call')) return { reason: 'tool_use', sequence: null }
  const parts = output.flatMap(({ content }) => (Array.isArray(content) ? (content as Members[]) : []))
  return { reason: parts.some(({ type }) => type === 'refusal') ? 'refusal' : 'end_turn', sequence: null }
}

/** The content of a whole response, and its end. */
export function contentOf(response: Members, { thinking, stopSequences }: MessageContext): { content: Members[]; stop: Stop } {
  const content: Members[] = []
  const withheld: Members[] = []
  for (const item of response['output'] as Members[]) {
    if (item['type'] === 'function_call') content.push(...withheld.splice(0))
    if (item['type'] === 'reasoning' && !thinking) {
      const block = withheldOf(item)
      if (block) withheld.push(block)
    } else if (item['type'] !== 'message') content.push(...blocksOf(item, thinking))
    else
      for (const block of blocksOf(item, thinking)) {
        const filter = openStopFilter(stopSequences)
        const text = filter.push(String(block['text'])) + filter.flush()
        if (text !== '') content.push({ ...block, text })
        if (filter.stopped()) return { content, stop: { reason: 'stop_sequence', sequence: filter.found() } }
      }
  }
  return { content, stop: stopOf(response) }
}

/**
 * The reasoning of a finished item for a client that asked for none: it gets it, sealed, with the calls that follow, because many models refuse the results of
 * calls that come back without it. Null for reasoning that nobody could read.
 */
export function withheldOf(item: Members): Members | null {
  return ownText(item, 'encrypted_content') === '' ? null : { type: 'redacted_thinking', data: signatureOf(item) }
}

/** The content blocks of a finished item; none for an item that the wire does not have. */
export function blocksOf(item: Members, display: MessageContext['thinking']): Members[] {
  if (item['type'] === 'function_call') return [{ ...toolUseOf(item), input: inputOf(item) }]
  if (item['type'] === 'reasoning') return [thinkingOf(item, display)]
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
const inputOf = (item: Members): Members => parsedMembers(ownText(item, 'arguments')) ?? {}

function thinkingOf(item: Members, display: MessageContext['thinking']): Members {
  const texts = (name: string) => ((item[name] ?? []) as Members[]).map((part) => ownText(part, 'text')).filter((text) => text !== '')
  const summary = texts('summary')
  const thinking = (summary.length > 0 ? summary : texts('content')).join('\n\n')
  const signature = signatureOf(item)
  if (display === 'omitted') return { type: 'thinking', thinking: '', signature }
  return thinking === '' ? { type: 'redacted_thinking', data: signature } : { type: 'thinking', thinking, signature }
}
