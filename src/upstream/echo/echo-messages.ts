/** The echo on the messages wire: every event in Anthropic's order. */
import { answerTo, textOf, type EchoRequest, type EchoAnswer } from './echo-answer.ts'
import type { AnswerHead } from './echo-chat.ts'

type Block = { type?: string; text?: unknown; content?: unknown }
type Message = { role?: string; content?: string | Block[] }
export type MessagesBody = {
  messages?: Message[]
  system?: unknown
  tools?: { name?: string }[]
  thinking?: { type?: string }
  max_tokens?: number
  stop_sequences?: string[]
  stream?: boolean
}

function read(body: MessagesBody): EchoRequest {
  const messages = body.messages ?? []
  const last = messages.findLastIndex((message) => message.role === 'user' && resultsIn(message).length === 0)
  return {
    user: promptIn(messages[last]),
    outputs: messages.slice(last + 1).flatMap((message) => resultsIn(message).map(({ content }) => textOf(content))),
    tools: (body.tools ?? []).flatMap(({ name }) => name ?? []),
    thinks: (body.thinking?.type ?? 'disabled') !== 'disabled',
    bytes: JSON.stringify(messages).length + textOf(body.system).length,
    earlierBytes: JSON.stringify(messages.slice(0, Math.max(0, last))).length - 2,
    maxTokens: body.max_tokens ?? null,
    stop: body.stop_sequences ?? [],
  }
}

const blocksIn = (message: Message | undefined): Block[] => (Array.isArray(message?.content) ? message.content : [])
const resultsIn = (message: Message): Block[] => blocksIn(message).filter(({ type }) => type === 'tool_result')

/** The last text of a message: before it, agents of this wire put reminders for the model. */
function promptIn(message: Message | undefined): string {
  if (typeof message?.content === 'string') return message.content
  return textOf([blocksIn(message).findLast(({ type }) => type === 'text')])
}

function usageOf({ usage: { input, cached, output }, thought }: EchoAnswer): object {
  return {
    input_tokens: input - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: output,
    output_tokens_details: { thinking_tokens: thought.length },
  }
}

function stopReason(answer: EchoAnswer): string {
  if (answer.call) return 'tool_use'
  if (answer.stop !== null) return 'stop_sequence'
  return answer.cutOff ? 'max_tokens' : 'end_turn'
}

function message(answer: EchoAnswer, { id, model }: AnswerHead, content: object[], reason: string | null): object {
  return {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    model,
    content,
    stop_reason: reason,
    stop_sequence: reason === null ? null : answer.stop,
    usage: usageOf(reason === null ? { ...answer, thought: [], usage: { ...answer.usage, output: 1 } } : answer),
  }
}

/** What makes a client send the block back. */
const signatureOf = (id: string) => `echo-${id}`

function thinkingBlocks({ thought }: EchoAnswer, id: string): object[] {
  return thought.length > 0 ? [{ type: 'thinking', thinking: thought.join(''), signature: signatureOf(id) }] : []
}

/** The last block of the answer, with this text or these arguments. */
function block({ call }: EchoAnswer, id: string, text: string): object {
  return call ? { type: 'tool_use', id: `toolu_${id}`, name: call.name, input: JSON.parse(text || '{}') } : { type: 'text', text }
}

/** The answer in JSON. */
export function messagesJson(body: MessagesBody, head: AnswerHead): object {
  const answer = answerTo(read(body))
  return message(answer, head, [...thinkingBlocks(answer, head.id), block(answer, head.id, answer.pieces.join(''))], stopReason(answer))
}

/** The answer as events; the caller waits `waitMs` before each. */
export function* messagesEvents(body: MessagesBody, head: AnswerHead): Generator<{ event: string; data: string; waitMs: number }> {
  const answer = answerTo(read(body))
  const event = (type: string, members: object = {}) => ({ event: type, data: JSON.stringify({ type, ...members }), waitMs: answer.waitMs })
  const delta = (piece: string) => (answer.call ? { type: 'input_json_delta', partial_json: piece } : { type: 'text_delta', text: piece })
  yield event('message_start', { message: message(answer, head, [], null) })
  for (const content_block of thinkingBlocks(answer, head.id)) {
    yield event('content_block_start', { index: 0, content_block: { ...content_block, thinking: '', signature: '' } })
    for (const thinking of answer.thought) yield event('content_block_delta', { index: 0, delta: { type: 'thinking_delta', thinking } })
    yield event('content_block_delta', { index: 0, delta: { type: 'signature_delta', signature: signatureOf(head.id) } })
    yield event('content_block_stop', { index: 0 })
  }
  const index = answer.thought.length > 0 ? 1 : 0
  yield event('content_block_start', { index, content_block: block(answer, head.id, '') })
  for (const piece of answer.pieces) yield event('content_block_delta', { index, delta: delta(piece) })
  yield event('content_block_stop', { index })
  yield event('message_delta', { delta: { stop_reason: stopReason(answer), stop_sequence: answer.stop }, usage: usageOf(answer) })
  yield event('message_stop')
}
