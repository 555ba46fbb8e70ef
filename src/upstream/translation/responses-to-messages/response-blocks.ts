/** The content blocks of a Messages answer as the items of a response, and the events that announce them. A whole block is one that starts with its content. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import { sealThinking } from '../../wires/messages/sealed-thinking.ts'
import { BadAnswer } from '../../wires/wire.ts'
import { customInput, type ChatTools } from '../responses-to-chat/chat-tools.ts'

/** The output stays in memory until its last event repeats it; a larger one breaks the stream. */
const MAX_OUTPUT_LENGTH = 16 * 1024 * 1024

export type ResponseBlocks = {
  start(index: unknown, block: Members): void
  /** Throws `BadAnswer` for too much output. */
  delta(index: unknown, delta: Members): void
  stop(index: unknown): void
  /** Ends the blocks that are still open, and returns all items. */
  finish(): Members[]
}

type Block = { delta(delta: Members): void; stop(): void }

/** `emit` gets each event of the Responses wire. `prefix`: begins the ids of items. */
export function openResponseBlocks(prefix: string, tools: ChatTools, emit: (event: Members) => void): ResponseBlocks {
  const items: Members[] = []
  const open = new Map<unknown, Block>()
  let length = 0

  function add(item: Members) {
    const index = items.length
    const id = `${prefix}_${index}`
    items.push({ id, ...item })
    emit({ type: 'response.output_item.added', output_index: index, item: { id, ...item } })
    return {
      place: { item_id: id, output_index: index },
      done(members: Members): void {
        const done = { id, ...item, status: 'completed', ...members }
        items[index] = done
        emit({ type: 'response.output_item.done', output_index: index, item: done })
      },
    }
  }
  type Added = ReturnType<typeof add>

  function counted(text: string): string {
    length += text.length
    if (length > MAX_OUTPUT_LENGTH) throw new BadAnswer('the answer is too large')
    return text
  }

  /** A text that comes in deltas, as the part of an item. */
  function textPart({ place }: Added, type: 'output_text' | 'reasoning_text') {
    const at = { ...place, content_index: 0 }
    const part = (text: string) => (type === 'output_text' ? { type, text, annotations: [], logprobs: [] } : { type, text })
    const name = `response.${type}`
    let text = ''
    emit({ type: 'response.content_part.added', ...at, part: part('') })
    return {
      add(delta: string): void {
        if (delta === '') return
        text += counted(delta)
        emit({ type: `${name}.delta`, ...at, delta })
      },
      text: () => text,
      end(): Members {
        emit({ type: `${name}.done`, ...at, text })
        emit({ type: 'response.content_part.done', ...at, part: part(text) })
        return part(text)
      },
    }
  }

  function textBlock(block: Members): Block {
    const added = add({ type: 'message', status: 'in_progress', role: 'assistant', content: [] })
    const part = textPart(added, 'output_text')
    part.add(ownText(block, 'text'))
    return { delta: (delta) => part.add(ownText(delta, 'text')), stop: () => added.done({ content: [part.end()] }) }
  }

  function thinkingBlock(block: Members): Block {
    const added = add({ type: 'reasoning', status: 'in_progress', summary: [], content: [] })
    const part = textPart(added, 'reasoning_text')
    let signature = ownText(block, 'signature')
    part.add(ownText(block, 'thinking'))
    return {
      delta(delta) {
        part.add(ownText(delta, 'thinking'))
        signature += counted(ownText(delta, 'signature'))
      },
      stop() {
        const content = [part.end()]
        // Without a signature the block would be refused when it comes back.
        const sealed = signature === '' ? null : sealThinking({ type: 'thinking', thinking: part.text(), signature })
        added.done({ content, encrypted_content: sealed })
      },
    }
  }

  function redactedBlock(block: Members): Block {
    const added = add({ type: 'reasoning', status: 'in_progress', summary: [] })
    const sealed = sealThinking({ type: 'redacted_thinking', data: counted(ownText(block, 'data')) })
    return { delta() {}, stop: () => added.done({ encrypted_content: sealed }) }
  }

  function toolBlock(block: Members): Block {
    const { name, namespace, custom } = tools.clientTool(ownText(block, 'name'))
    const [member, events] = custom ? ['input', 'custom_tool_call_input'] : ['arguments', 'function_call_arguments']
    const added = add({
      type: custom ? 'custom_tool_call' : 'function_call',
      status: 'in_progress',
      call_id: ownText(block, 'id') || `${prefix}_call_${items.length}`,
      name,
      ...(namespace === null ? {} : { namespace }),
      [member]: '',
    })
    let given = ''
    const send = (delta: string) => emit({ type: `response.${events}.delta`, ...added.place, delta })
    return {
      delta(delta) {
        const json = counted(ownText(delta, 'partial_json'))
        given += json
        if (!custom && json !== '') send(json)
      },
      stop() {
        const whole = given === '' ? counted(JSON.stringify(block['input'] ?? {})) : given
        const text = custom ? customInput(whole) : whole
        if (custom || given === '') send(text)
        emit({ type: `response.${events}.done`, ...added.place, ...(custom ? {} : { name }), [member]: text })
        added.done({ [member]: text })
      },
    }
  }

  const KINDS: Record<string, (block: Members) => Block> = {
    text: textBlock,
    thinking: thinkingBlock,
    redacted_thinking: redactedBlock,
    tool_use: toolBlock,
  }
  /** For servers that send a delta of a block that they did not start. A call without its name cannot be one. */
  const STARTED_BY: Record<string, string> = { text_delta: 'text', thinking_delta: 'thinking' }

  function stop(index: unknown): void {
    const block = open.get(index)
    open.delete(index)
    block?.stop()
  }

  function start(index: unknown, block: Members): void {
    for (const other of open.keys()) stop(other)
    const type = ownText(block, 'type')
    const kind = Object.hasOwn(KINDS, type) ? KINDS[type] : undefined
    if (kind) open.set(index, kind(block))
  }

  return {
    start,
    stop,
    delta(index, delta) {
      const kind = STARTED_BY[ownText(delta, 'type')]
      if (!open.has(index) && kind !== undefined) start(index, { type: kind })
      open.get(index)?.delta(delta)
    },
    finish() {
      for (const index of open.keys()) stop(index)
      return items.filter(isMembers)
    },
  }
}
