/**
 * The output of a response built from the deltas of a chat completion: items and the events that announce them, in the order of the Responses
 * wire. A whole message is one delta.
 */
import { isMembers, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { sealReasoning } from '../../wires/sealed-members.ts'
import type { OutputMeter } from '../../usage/output-meter.ts'
import { BadAnswer } from '../../wires/wire.ts'
import type { ChatTools } from './chat-tools.ts'
import { flatAnnotations, responseLogprobs } from '../annotations.ts'
import { openCalls } from './response-calls.ts'

/** The output stays in memory until its last event repeats it; a larger one breaks the stream. */
const MAX_OUTPUT_LENGTH = 16 * 1024 * 1024

export type ItemStatus = 'completed' | 'incomplete'

/** Sends one event; its `sequence_number` is added by the receiver. */
export type Emit = (event: Members) => void

export type ResponseOutput = {
  /** Adds the `delta` or `message` of a choice, with the choice's `logprobs`. Throws `BadAnswer` for too much output. */
  add(delta: Members, logprobs: unknown): void
  /** Ends all items; `incomplete` is the status of those that the cut-off may have hit. */
  end(status: ItemStatus): void
  /** The items so far. */
  items(): Members[]
}

export function openResponseOutput(tools: ChatTools, ids: Ids, meter: OutputMeter, emit: Emit): ResponseOutput {
  const items: Members[] = []
  const calls = openCalls(tools, ids, emit, items)
  let message: ReturnType<typeof openMessage> | null = null
  let reasoning: ReturnType<typeof openReasoningItem> | null = null
  let length = 0

  function metered(text: string): string {
    meter.addText(text)
    length += text.length
    if (length > MAX_OUTPUT_LENGTH) throw new BadAnswer('the answer is too large')
    return text
  }

  function endText(status: ItemStatus): void {
    for (const open of [reasoning, message]) if (open) items[open.index] = open.end(status)
    reasoning = message = null
  }

  function currentReasoning() {
    if (reasoning) return reasoning
    endText('completed')
    reasoning = openReasoningItem(items.length, ids, emit)
    items.push(reasoning.item)
    return reasoning
  }

  function currentMessage() {
    if (message) return message
    endText('completed')
    message = openMessage(items.length, ids, emit)
    items.push(message.item)
    return message
  }

  return {
    items: () => items,
    add(delta, logprobs) {
      const [member, thought] = reasoningIn(delta)
      const details = delta['reasoning_details']
      if (thought !== '') currentReasoning().text(metered(thought), member)
      if (Array.isArray(details) && details.length > 0) currentReasoning().details(details)
      const text = textOf(delta['content'])
      if (text !== '') currentMessage().text(metered(text), responseLogprobs(logprobs, ids))
      if (typeof delta['refusal'] === 'string' && delta['refusal'] !== '') currentMessage().refusal(metered(delta['refusal']))
      for (const annotation of flatAnnotations(delta['annotations'], ids)) currentMessage().annotation(annotation)
      for (const call of callsIn(delta)) {
        endText('completed')
        for (const piece of calls.add(call)) metered(piece)
      }
    },
    end(status) {
      endText(status)
      calls.end(status)
    },
  }
}

/** Some servers send both members with the same text. */
function reasoningIn(delta: Members): ['reasoning_content' | 'reasoning', string] {
  if (typeof delta['reasoning_content'] === 'string') return ['reasoning_content', delta['reasoning_content']]
  return ['reasoning', typeof delta['reasoning'] === 'string' ? delta['reasoning'] : '']
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === 'string' ? content : ''
  return content.map((part: unknown) => (isMembers(part) && typeof part['text'] === 'string' ? part['text'] : '')).join('')
}

/** Tool calls, and the single call of servers that only have `function_call`. */
function callsIn(delta: Members): Members[] {
  if (Array.isArray(delta['tool_calls']))
    return delta['tool_calls'].map((call: unknown, index) => (isMembers(call) ? { index, ...call } : {}))
  return isMembers(delta['function_call']) ? [{ index: 0, function: delta['function_call'] }] : []
}

function openReasoningItem(index: number, ids: Ids, emit: Emit) {
  const id = ids.fresh('rs_')
  const item: Members = { id, type: 'reasoning', status: 'in_progress', summary: [], content: [] }
  const place = { item_id: id, output_index: index, content_index: 0 }
  const details: unknown[] = []
  let text = ''
  let member: 'reasoning_content' | 'reasoning' = 'reasoning'
  emit({ type: 'response.output_item.added', output_index: index, item })
  return {
    index,
    item,
    text(delta: string, from: typeof member): void {
      member = from
      if (text === '') emit({ type: 'response.content_part.added', ...place, part: { type: 'reasoning_text', text: '' } })
      text += delta
      emit({ type: 'response.reasoning_text.delta', ...place, delta })
    },
    details(more: unknown[]): void {
      for (const one of more) details.push(one)
    },
    end(status: ItemStatus): Members {
      const part = { type: 'reasoning_text', text }
      if (text !== '') {
        emit({ type: 'response.reasoning_text.done', ...place, text })
        emit({ type: 'response.content_part.done', ...place, part })
      }
      const sealed = sealReasoning(details.length > 0 ? { details } : { text: { member, text } }, ids)
      const done = { ...item, status, content: text === '' ? [] : [part], encrypted_content: sealed }
      emit({ type: 'response.output_item.done', output_index: index, item: done })
      return done
    },
  }
}

function openMessage(index: number, ids: Ids, emit: Emit) {
  const id = ids.fresh('msg_')
  const item: Members = { id, type: 'message', status: 'in_progress', role: 'assistant', content: [] }
  const place = { item_id: id, output_index: index }
  const content: Members[] = []
  emit({ type: 'response.output_item.added', output_index: index, item })

  /** The last part, or a new one if that is of another type. */
  function partOf(type: 'output_text' | 'refusal'): Members {
    const last = content.at(-1)
    if (last?.['type'] === type) return last
    endPart()
    const part: Members = type === 'refusal' ? { type, refusal: '' } : { type, text: '', annotations: [], logprobs: [] }
    content.push(part)
    emit({ type: 'response.content_part.added', ...place, content_index: content.length - 1, part: structuredClone(part) })
    return part
  }

  function endPart(): void {
    const part = content.at(-1)
    if (!part) return
    const at = { ...place, content_index: content.length - 1 }
    if (part['type'] === 'refusal') emit({ type: 'response.refusal.done', ...at, refusal: part['refusal'] })
    else emit({ type: 'response.output_text.done', ...at, text: part['text'], logprobs: part['logprobs'] })
    emit({ type: 'response.content_part.done', ...at, part })
  }

  return {
    index,
    item,
    text(delta: string, logprobs: Members[]): void {
      const part = partOf('output_text')
      part['text'] = String(part['text']) + delta
      for (const token of logprobs) (part['logprobs'] as Members[]).push(token)
      emit({ type: 'response.output_text.delta', ...place, content_index: content.length - 1, delta, logprobs })
    },
    refusal(delta: string): void {
      const part = partOf('refusal')
      part['refusal'] = String(part['refusal']) + delta
      emit({ type: 'response.refusal.delta', ...place, content_index: content.length - 1, delta })
    },
    annotation(annotation: Members): void {
      const annotations = partOf('output_text')['annotations'] as Members[]
      annotations.push(annotation)
      emit({
        type: 'response.output_text.annotation.added',
        ...place,
        content_index: content.length - 1,
        annotation_index: annotations.length - 1,
        annotation,
      })
    },
    end(status: ItemStatus): Members {
      endPart()
      const done = { ...item, status, content }
      emit({ type: 'response.output_item.done', output_index: index, item: done })
      return done
    },
  }
}
