/** The deltas of a chat completion from the events or the items of a response. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { annotation as cleanAnnotation } from '../../wires/responses/response-allowed-members.ts'
import { sealCallId, sealedDetail } from '../../wires/sealed-members.ts'
import type { OutputMeter } from '../../usage/output-meter.ts'
import { chatLogprobs, nestedAnnotations } from '../annotations.ts'

/** Takes a delta and the `logprobs` of its text. */
export type EmitDelta = (delta: Members, logprobs: Members | null) => void

export type ChatDeltas = {
  event(type: string, event: Members): void
  /** Emits what no event has emitted of a finished item. */
  item(item: Members, index: unknown): void
  /** Whether any item was seen. */
  any(): boolean
  calls(): number
}

type Item = { streamed: boolean; call: number | null; done: boolean }

const CALLS: Record<string, 'function' | 'custom'> = { function_call: 'function', custom_tool_call: 'custom' }
const membersIn = (holder: Members, name: string) => (Array.isArray(holder[name]) ? (holder[name] as unknown[]).filter(isMembers) : [])

export function openChatDeltas(ids: Ids, meter: OutputMeter, emit: EmitDelta): ChatDeltas {
  const items = new Map<unknown, Item>()
  let calls = 0
  let reasoningPart: string | null = null

  function known(index: unknown): Item {
    const item = items.get(index) ?? { streamed: false, call: null, done: false }
    items.set(index, item)
    return item
  }

  function text(member: string, value: string, logprobs: unknown = null): void {
    if (value === '') return
    meter.addText(value)
    emit({ [member]: value }, chatLogprobs(logprobs, ids))
  }

  /** Parts of reasoning are joined as paragraphs. */
  function reasoning(value: string, part: string): void {
    if (value === '') return
    text('reasoning_content', reasoningPart === null || reasoningPart === part ? value : `\n\n${value}`)
    reasoningPart = part
  }

  function startCall(item: Members, index: unknown): Item {
    const call = known(index)
    const type = CALLS[ownText(item, 'type')]
    const id = ownText(item, 'call_id') || ownText(item, 'id')
    if (!type || call.call !== null) return call
    call.call = calls++
    meter.addText(ownText(item, 'name'))
    const named = { name: ownText(item, 'name'), [type === 'custom' ? 'input' : 'arguments']: '' }
    emit({ tool_calls: [{ index: call.call, id: id === '' ? ids.fresh('call_') : sealCallId(id, null, ids), type, [type]: named }] }, null)
    return call
  }

  function callText(call: Item, type: 'function' | 'custom', value: string): void {
    if (call.call === null || value === '') return
    meter.addText(value)
    emit({ tool_calls: [{ index: call.call, [type]: { [type === 'custom' ? 'input' : 'arguments']: value } }] }, null)
  }

  function annotations(given: unknown): void {
    const cleaned = (Array.isArray(given) ? given : []).map((one: unknown) => cleanAnnotation(one, ids))
    const nested = nestedAnnotations(cleaned)
    if (nested.length > 0) emit({ annotations: nested }, null)
  }

  function wholeMessage(item: Members): void {
    for (const part of membersIn(item, 'content')) {
      text('content', ownText(part, 'text'), part['logprobs'])
      text('refusal', ownText(part, 'refusal'))
      annotations(part['annotations'])
    }
  }

  function wholeReasoning(item: Members, streamed: boolean): void {
    const parts = membersIn(item, 'content').length > 0 ? membersIn(item, 'content') : membersIn(item, 'summary')
    if (!streamed) for (const [n, part] of parts.entries()) reasoning(ownText(part, 'text'), `${ownText(item, 'id')} ${n}`)
    const { type, id, summary, content, encrypted_content: encrypted } = item
    if (typeof encrypted === 'string' || membersIn(item, 'content').length > 0)
      emit(
        { reasoning_details: [sealedDetail({ item: { type, id, summary: summary ?? [], content, encrypted_content: encrypted } }, ids)] },
        null,
      )
  }

  function item(value: Members, index: unknown): void {
    const type = ownText(value, 'type')
    const call = CALLS[type]
    const entry = call ? startCall(value, index) : known(index)
    if (entry.done) return
    entry.done = true
    if (call && !entry.streamed) callText(entry, call, ownText(value, call === 'custom' ? 'input' : 'arguments'))
    if (type === 'message' && !entry.streamed) wholeMessage(value)
    if (type === 'reasoning') wholeReasoning(value, entry.streamed)
  }

  function delta(event: Members): string {
    const value = ownText(event, 'delta')
    if (value !== '') known(event['output_index']).streamed = true
    return value
  }

  const handlers: Record<string, (event: Members) => void> = {
    'response.output_item.added': (event) => {
      if (isMembers(event['item'])) startCall(event['item'], event['output_index'])
    },
    'response.output_item.done': (event) => {
      if (isMembers(event['item'])) item(event['item'], event['output_index'])
    },
    'response.output_text.delta': (event) => text('content', delta(event), event['logprobs']),
    'response.output_text.annotation.added': (event) => annotations([event['annotation']]),
    'response.refusal.delta': (event) => text('refusal', delta(event)),
    'response.reasoning_text.delta': (event) => reasoning(delta(event), `${String(event['item_id'])} ${String(event['content_index'])}`),
    'response.reasoning_summary_text.delta': (event) =>
      reasoning(delta(event), `${String(event['item_id'])} ${String(event['summary_index'])}`),
    'response.function_call_arguments.delta': (event) => callText(known(event['output_index']), 'function', delta(event)),
    'response.custom_tool_call_input.delta': (event) => callText(known(event['output_index']), 'custom', delta(event)),
  }

  return {
    event: (type, event) => (Object.hasOwn(handlers, type) ? handlers[type]?.(event) : undefined),
    item,
    any: () => items.size > 0,
    calls: () => calls,
  }
}
