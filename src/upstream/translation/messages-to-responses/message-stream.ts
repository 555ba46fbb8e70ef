/** The events of a Responses stream as those of a Messages stream. */
import { messageErrorBody } from '../../../http/message-errors.ts'
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import type { Phase, StreamRewriter } from '../../wires/wire.ts'
import { openStreamRewriter, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import type { TemplateSets } from '../../sse/event-templates.ts'
import { estimatedResponseUsage } from '../../usage/reported-usage.ts'
import { openContinuedText } from '../continued-text.ts'
import { openStopFilter, type StopFilter } from '../stop-sequences.ts'
import { openContentBlocks } from './content-blocks.ts'
import { endEvents, messageEvent, messageOf, type Stop } from '../../wires/messages/message-object.ts'
import { messageUsage } from '../../wires/messages/message-usage.ts'
import { blocksOf, stopOf, toolUseOf, withheldOf, type MessageContext } from './message-content.ts'
import { signatureOf } from './thinking-signature.ts'

/** The deltas of thinking, and the member that numbers the parts of each. */
const THOUGHTS: Record<string, string> = {
  'response.reasoning_summary_text.delta': 'summary_index',
  'response.reasoning_text.delta': 'content_index',
}
const TEXTS = ['response.output_text.delta', 'response.refusal.delta']

/** Rewrites what `responses` gives: the stream of a Responses client for the same request. */
export function openMessageStream(responses: StreamRewriter, context: MessageContext, sets: TemplateSets = new Map()): StreamRewriter {
  const filters = new Map<string, StopFilter>()
  const thoughts = new Map<string, { type: string; part: unknown }>()
  let written: RewriterOutput | null = null
  let stopped: Stop | null = null
  let begun = false
  let ended = false
  const emit = (event: Members) => {
    continued.became(event)
    written?.write(messageEvent(event))
  }
  const blocks = openContentBlocks(emit)
  const continued = openContinuedText(sets, 'responses', 'messages', { stop: context.stopSequences })

  const rewriter = openStreamRewriter((data, _name, to) => {
    const rewritten = continued.rewrite(data)
    if (rewritten !== null) return to.write(rewritten)
    written = to
    const event = continued.parse(data)
    read(event, to)
    continued.learn(data, event)
  })

  function read(event: Members, to: RewriterOutput): void {
    const type = String(event['type'])
    if (isMembers(event['response'])) return whole(type, event['response'])
    if (stopped) return to.readOn(type.endsWith('.delta') ? String(event['delta']).length : 0)
    const key = String(event['output_index'])
    if (TEXTS.includes(type)) text(`${key}.${String(event['content_index'])}`, String(event['delta']))
    else if (type in THOUGHTS && context.thinking === 'summarized') thought(key, type, event)
    else if (type === 'response.function_call_arguments.delta') argument(key, String(event['delta']))
    else if (type === 'response.content_part.done') endText(`${key}.${String(event['content_index'])}`)
    else if (type === 'response.output_item.added' && isMembers(event['item'])) begin(key, event['item'])
    else if (type === 'response.output_item.done' && isMembers(event['item'])) endItem(key, event['item'])
    if (!stopped) return
    blocks.endAll()
    // Even where nothing was written since the last event, the exchange must learn that it waits for the usage alone.
    emit({ type: 'ping' })
    to.readOn(0)
  }

  function begin(key: string, item: Members): void {
    if (item['type'] === 'function_call') blocks.open(key, toolUseOf(item))
  }

  function argument(key: string, json: string): void {
    if (json !== '') blocks.delta(key, { type: 'input_json_delta', partial_json: json })
  }

  /** A block begins with its first text: clients, and the next request, refuse an empty one. */
  function passText(key: string, passed: string): void {
    if (passed === '') return
    if (!blocks.has(key)) blocks.open(key, { type: 'text', text: '', citations: null })
    blocks.delta(key, { type: 'text_delta', text: passed })
  }

  function text(key: string, delta: string): void {
    if (stopped) return
    const filter = filters.get(key) ?? openStopFilter(context.stopSequences)
    filters.set(key, filter)
    passText(key, filter.push(delta))
    if (filter.stopped()) stopped = { reason: 'stop_sequence', sequence: filter.found() }
  }

  function endText(key: string): void {
    const filter = filters.get(key)
    if (!filter || stopped) return
    passText(key, filter.flush())
    blocks.end(key)
  }

  /** Of a summary and the text itself the first one is told. Parts are paragraphs. */
  function thought(key: string, type: string, event: Members): void {
    const part = event[THOUGHTS[type] ?? '']
    const known = thoughts.get(key)
    if (known && known.type !== type) return
    if (!known) blocks.open(key, { type: 'thinking', thinking: '', signature: '' })
    const paragraph = known && known.part !== part ? '\n\n' : ''
    thoughts.set(key, { type, part })
    const thinking = paragraph + String(event['delta'])
    if (thinking !== '') blocks.delta(key, { type: 'thinking_delta', thinking })
  }

  function endItem(key: string, item: Members): void {
    if (thoughts.has(key)) blocks.delta(key, { type: 'signature_delta', signature: signatureOf(item) })
    else missed(key, item)
    for (const part of filters.keys()) if (part.startsWith(`${key}.`)) endText(part)
    blocks.end(key)
  }

  /** What had no deltas: some servers send a text, or the arguments of a call, with the finished item alone. */
  function missed(key: string, item: Members): void {
    if (item['type'] === 'function_call') {
      if (blocks.has(key)) return
      begin(key, item)
      return argument(key, ownText(item, 'arguments'))
    }
    if (item['type'] === 'reasoning' && !context.thinking) return blocks.withhold(key, withheldOf(item))
    for (const [index, block] of blocksOf(item, context.thinking).entries()) {
      const part = `${key}.${index}`
      if (block['type'] === 'text' && !hasText(key)) text(part, String(block['text']))
      if (block['type'] === 'redacted_thinking') blocks.open(key, block)
      if (block['type'] === 'thinking') {
        thought(key, 'response.reasoning_summary_text.delta', { delta: block['thinking'] })
        blocks.delta(key, { type: 'signature_delta', signature: block['signature'] })
      }
    }
  }

  const hasText = (key: string) => [...filters.keys()].some((part) => part.startsWith(`${key}.`) && blocks.has(part))

  function whole(type: string, response: Members): void {
    if (!begun) {
      const usage = { ...messageUsage(null), input_tokens: context.promptTokens }
      emit({ type: 'message_start', message: messageOf(context.freshId(), [], null, usage) })
    }
    begun = true
    if (type !== 'response.completed' && type !== 'response.incomplete') return
    for (const [index, item] of ((response['output'] ?? []) as Members[]).entries())
      if (!stopped && !seen(String(index))) endItem(String(index), item)
    blocks.endAll()
    ended = true
    written?.write(endEvents(stopped ?? stopOf(response), messageUsage(response['usage'])))
  }

  const seen = (key: string) => blocks.has(key) || filters.keys().some((part) => part.startsWith(`${key}.`))

  /** Until a stop sequence, the phase is that of the Responses stream. */
  function phase(): Phase {
    const [own, theirs] = [rewriter.phase(), responses.phase()]
    if (own.name !== 'open') return own
    if (!stopped || theirs.name === 'done') return theirs
    return theirs.name === 'broken' ? { name: 'done', cutsOff: true } : own
  }

  const passed = (bytes: string) => (bytes === '' ? '' : rewriter.push(Buffer.from(bytes, 'latin1')))

  return {
    push: (chunk) => passed(responses.push(chunk)),
    end: () => passed(responses.end()),
    fail: (failure, requestId) => messageEvent(messageErrorBody(failure, requestId)),
    phase,
    terminalEvents(estimate) {
      if (!stopped) return passed(responses.terminalEvents(estimate))
      return ended ? '' : endEvents(stopped, messageUsage(estimatedResponseUsage(estimate)))
    },
    usage: responses.usage,
    meter: responses.meter,
  }
}
