/** The content blocks of a Messages answer as the items of a response, and the events that announce them. A whole block is one that starts with its content. */
import { ownText, type Members } from '../../wires/allowlist.ts'
import { sealThinking } from '../../wires/messages/sealed-thinking.ts'
import type { ChatTools } from '../responses-to-chat/chat-tools.ts'
import { openResponseItems, type Emit, type ResponseItems } from '../response-items.ts'

export type ResponseBlocks = Pick<ResponseItems, 'grow'> & {
  start(index: unknown, block: Members): void
  /** Throws `BadAnswer` for too much output. */
  delta(index: unknown, delta: Members): void
  stop(index: unknown): void
  /** Ends the blocks that are still open, and returns all items. */
  finish(): Members[]
}

type Block = { delta(delta: Members): void; stop(): void }

/** `prefix`: begins the ids of items. */
export function openResponseBlocks(prefix: string, tools: ChatTools, emit: Emit): ResponseBlocks {
  const output = openResponseItems(tools, emit)
  const { counted, grow } = output
  const open = new Map<unknown, Block>()
  const idOf = () => `${prefix}_${output.items.length}`
  const add = (type: string, members: Members) => output.add({ id: idOf(), type, status: 'in_progress', ...members })

  function textBlock(block: Members): Block {
    const item = add('message', { role: 'assistant', content: [] })
    const text = (from: Members) => item.text('output_text', counted(ownText(from, 'text')))
    text(block)
    return { delta: text, stop: () => item.end('completed') }
  }

  function thinkingBlock(block: Members): Block {
    const item = add('reasoning', { summary: [], content: [] })
    let signature = ''
    const think = (from: Members) => {
      item.text('reasoning_text', counted(ownText(from, 'thinking')))
      signature += counted(ownText(from, 'signature'))
    }
    think(block)
    return {
      delta: think,
      stop() {
        const thinking = String(item.content[0]?.['text'])
        // Without a signature the block would be refused when it comes back.
        item.end('completed', { encrypted_content: signature === '' ? null : sealThinking({ type: 'thinking', thinking, signature }) })
      },
    }
  }

  function redactedBlock(block: Members): Block {
    const item = add('reasoning', { summary: [] })
    const sealed = sealThinking({ type: 'redacted_thinking', data: counted(ownText(block, 'data')) })
    return { delta() {}, stop: () => item.end('completed', { encrypted_content: sealed }) }
  }

  function toolBlock(block: Members): Block {
    const callId = ownText(block, 'id') || `${prefix}_call_${output.items.length}`
    const call = output.call(ownText(block, 'name'), callId, idOf)
    let isEmpty = true
    return {
      delta(delta) {
        const json = counted(ownText(delta, 'partial_json'))
        isEmpty &&= json === ''
        call.delta(json)
      },
      stop() {
        if (isEmpty) call.delta(counted(JSON.stringify(block['input'] ?? {})))
        call.end('completed')
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
    grow,
    start,
    stop,
    delta(index, delta) {
      const kind = STARTED_BY[ownText(delta, 'type')]
      if (!open.has(index) && kind !== undefined) start(index, { type: kind })
      open.get(index)?.delta(delta)
    },
    finish() {
      for (const index of open.keys()) stop(index)
      return output.items
    },
  }
}
