/** Streams of the Messages wire as an SDK reads them. */
import type { Loose } from './gateway.ts'

export const eventsOf = (text: string): Loose[] => text.split('\n\n').filter((one) => one !== '').map((one) => JSON.parse(one.slice(one.indexOf('data: ') + 6)))

/** The message that an SDK builds from the events. Throws for an event out of order. */
export function assembledMessage(events: Loose[]): Loose {
  const [first, ...rest] = events
  if (first?.type !== 'message_start') throw new Error('no message_start')
  const message = structuredClone(first.message)
  let open = -1
  for (const event of rest) {
    if (event.type === 'content_block_start') {
      if (open !== -1 || event.index !== message.content.length) throw new Error(`block ${event.index} starts out of order`)
      open = event.index
      message.content.push({ ...event.content_block, ...(event.content_block.type === 'tool_use' ? { json: '' } : {}) })
    } else if (event.type === 'content_block_delta') {
      if (event.index !== open) throw new Error(`a delta of block ${event.index}, which is not open`)
      const block = message.content[open]
      if (event.delta.type === 'text_delta') block.text += event.delta.text
      if (event.delta.type === 'thinking_delta') block.thinking += event.delta.thinking
      if (event.delta.type === 'signature_delta') block.signature = event.delta.signature
      if (event.delta.type === 'input_json_delta') block.json += event.delta.partial_json
    } else if (event.type === 'content_block_stop') open = -1
    else if (event.type === 'message_delta') Object.assign(message, event.delta, { usage: { ...message.usage, ...event.usage } })
  }
  if (events.at(-1)?.type !== 'message_stop') throw new Error('no message_stop')
  for (const block of message.content) if (block.json !== undefined) { block.input = block.json === '' ? {} : JSON.parse(block.json); delete block.json }
  return message
}
