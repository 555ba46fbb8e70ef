/** Answers of an upstream of the Messages wire, with a vendor's name in every place where a vendor may put it. */
import { VENDOR } from './upstream-wire.ts'

export const SIGNATURE = `${VENDOR}+signature/==`

export const MESSAGE_USAGE = { input_tokens: 12, cache_read_input_tokens: 8, cache_creation_input_tokens: 0, output_tokens: 5, service_tier: VENDOR }

export const messageAnswer = (content: object[], reason: string | null = 'end_turn', more: object = {}) => ({
  id: `msg_${VENDOR}_1`,
  type: 'message',
  role: 'assistant',
  model: `${VENDOR}-large`,
  content,
  stop_reason: reason,
  stop_sequence: null,
  provider: VENDOR,
  usage: MESSAGE_USAGE,
  ...more,
})

export const messageEvent = (type: string, members: object = {}) => `event: ${type}\ndata: ${JSON.stringify({ type, vendor: VENDOR, ...members })}\n\n`

export const THINKING = { type: 'thinking', thinking: 'I look.', signature: SIGNATURE }
export const CALL = { type: 'tool_use', id: `toolu_${VENDOR}_1`, name: 'read', input: { path: 'a.txt' } }

const DELTAS: Record<string, (block: Record<string, unknown>) => object[]> = {
  text: ({ text }) => String(text).split(/(?<= )/).map((piece) => ({ type: 'text_delta', text: piece })),
  thinking: ({ thinking, signature }) => [{ type: 'thinking_delta', thinking }, { type: 'signature_delta', signature }],
  tool_use: ({ input }) => JSON.stringify(input).split(/(?<=:)/).map((piece) => ({ type: 'input_json_delta', partial_json: piece })),
  redacted_thinking: () => [],
}
const EMPTY: Record<string, object> = { text: { text: '' }, thinking: { thinking: '', signature: '' }, tool_use: { input: {} } }

/** A stream of these blocks, with pings, and events and members of the vendor. */
export function messagesStream(content: object[], reason = 'end_turn', outputTokens = 5): string {
  const blocks = content as ({ type: string } & Record<string, unknown>)[]
  return [
    messageEvent('message_start', { message: messageAnswer([], null, { usage: { ...MESSAGE_USAGE, output_tokens: 1 } }) }),
    messageEvent('ping'),
    ...blocks.flatMap((block, index) => [
      messageEvent('content_block_start', { index, content_block: { ...block, ...EMPTY[block.type] } }),
      messageEvent(`${VENDOR}.limits`, { index }),
      ...(DELTAS[block.type]?.(block) ?? []).map((delta) => messageEvent('content_block_delta', { index, delta })),
      messageEvent('content_block_stop', { index }),
    ]),
    messageEvent('message_delta', { delta: { stop_reason: reason, stop_sequence: null }, usage: { output_tokens: outputTokens } }),
    messageEvent('message_stop'),
  ].join('')
}
