/** A scripted reasoning model on any wire that works on a task by the client's tools, turn by turn. */
import { respond, stream, type Script } from '../fakes/upstream.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import { MESSAGE_USAGE, messageAnswer, messageEvent, messagesStream, SIGNATURE } from '../fakes/messages-wire.ts'
import { chunk, completion, delta, DONE, event, message, response, RESPONSE_USAGE, USAGE, VENDOR } from '../fakes/upstream-wire.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- bodies of requests are compared, not typed

export type Call = { name: string; arguments: object }
/** The calls of each turn, then the last words, made of the results of all calls in order. */
export type Task = { turns: Call[][]; last(results: string[]): string }

export const THOUGHT = 'I look at what the tool says.'

/** The id that the upstream gave to the n-th call of the task. Only the Messages wire has a rule for its form. */
export const callId = (n: number, wire: WireName): string => (wire === 'messages' ? `toolu_${VENDOR}_${n}` : `${VENDOR}:call:${n}`)

/** What the upstream reports as output. An answer of many calls has more, because what was metered is charged where it is larger. */
const outputTokens = (calls: readonly Call[]): number => (calls.length > 2 ? 1000 : 5)

/** What the answers to a task cost, beside `others` that are not part of it. */
export const costOf = (task: Task, others = 0): number => (others + 1) * 25 + task.turns.reduce((sum, calls) => sum + 20 + outputTokens(calls), 0)

/** How a PNG arrives. */
export const IMAGE_OF: Record<WireName, string> = { chat: '"image_url":{"url":"data:image/png;base64,', responses: '"image_url":"data:image/png;base64,', messages: '"media_type":"image/png"' }

type Turn = { first: number; calls: Call[]; text: string }

/** The turn that follows these results. */
function turnAfter({ turns, last }: Task, results: string[]): Turn {
  let first = 0
  for (const calls of turns) {
    if (first === results.length) return { first, calls, text: '' }
    first += calls.length
  }
  return { first, calls: [], text: last(results) }
}

const textOf = (content: Loose): string => (typeof content === 'string' ? content : (content ?? []).map((part: Loose) => part.text ?? '').join(''))

/** The results of tools in a request, in order: each is an item or a block. */
export function resultsIn(wire: WireName, body: Loose): Loose[] {
  if (wire === 'responses') return body.input.filter(({ type }: Loose) => type === 'function_call_output')
  if (wire === 'chat') return body.messages.filter(({ role }: Loose) => role === 'tool')
  return body.messages.flatMap(({ content }: Loose) => (Array.isArray(content) ? content.filter(({ type }: Loose) => type === 'tool_result') : []))
}

/** A request without tools is a client's own, such as for a title. */
export function taskModel(wire: WireName, task: Task): Script {
  return answering(wire, (body) => {
    const results = resultsIn(wire, body).map((result) => textOf(result.content ?? result.output))
    return body['tools'] ? turnAfter(task, results) : { first: 0, calls: [], text: 'A title' }
  })
}

/** A model that says the same whatever it is asked. */
export const saying = (wire: WireName, text: string): Script => answering(wire, () => ({ first: 0, calls: [], text }))

function answering(wire: WireName, turnFor: (body: Loose) => Turn): Script {
  return (answer, { body }) => {
    const turn = turnFor(body)
    if (!body['stream']) return respond(answer, 200, WHOLE[wire](turn, body))
    stream(answer, ...STREAMED[wire](turn, body))
    answer.end()
  }
}

/** The beginning of a stream, after which the upstream is silent. */
export const BEGUN: Record<WireName, string> = {
  chat: chunk([delta({ role: 'assistant', content: 'One' })]),
  responses: event('response.created', { response: response('in_progress') }),
  messages: messageEvent('message_start', { message: messageAnswer([], null) }),
}

/** Pieces of a text, as tokens come. */
const pieces = (text: string): string[] => text.match(/.{1,7}/gs) ?? []

const chatUsage = (calls: Call[]) => ({ ...USAGE, completion_tokens: outputTokens(calls), total_tokens: 20 + outputTokens(calls) })
const responseMembers = ({ calls }: Turn) => ({ usage: { ...RESPONSE_USAGE, output_tokens: outputTokens(calls), total_tokens: 20 + outputTokens(calls) } })
const messageUsage = (calls: Call[]) => ({ usage: { ...MESSAGE_USAGE, output_tokens: outputTokens(calls) } })

function chatTurn({ first, calls, text }: Turn): string[] {
  return [
    chunk([delta({ role: 'assistant', content: '' })]),
    ...pieces(calls.length > 0 ? THOUGHT : '').map((part) => chunk([delta({ reasoning_content: part })])),
    ...pieces(text).map((part) => chunk([delta({ content: part })])),
    ...calls.flatMap((call, index) => [
      chunk([delta({ tool_calls: [{ index, id: callId(first + index, 'chat'), type: 'function', function: { name: call.name, arguments: '' } }] })]),
      ...pieces(JSON.stringify(call.arguments)).map((part) => chunk([delta({ tool_calls: [{ index, function: { arguments: part } }] })])),
    ]),
    chunk([delta({}, calls.length > 0 ? 'tool_calls' : 'stop')]),
    chunk([], { usage: chatUsage(calls) }),
    DONE,
  ]
}

function chatAnswer({ first, calls, text }: Turn): object {
  const tools = calls.map((call, n) => ({ id: callId(first + n, 'chat'), type: 'function', function: { name: call.name, arguments: JSON.stringify(call.arguments) } }))
  const spoken = calls.length > 0 ? { content: null, reasoning_content: THOUGHT, tool_calls: tools } : { content: text }
  return completion('', { usage: chatUsage(calls), choices: [{ index: 0, message: { role: 'assistant', ...spoken }, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }] })
}

function outputOf({ first, calls, text }: Turn): object[] {
  const reasoning = { id: `rs_${VENDOR}_${first}`, type: 'reasoning', summary: [], encrypted_content: `${VENDOR}-encrypted-${first}` }
  const called = calls.map((call, n) => ({ id: `fc_${VENDOR}_${first + n}`, type: 'function_call', status: 'completed', call_id: callId(first + n, 'responses'), name: call.name, arguments: JSON.stringify(call.arguments) }))
  return calls.length > 0 ? [reasoning, ...called] : [message(text)]
}

function responsesTurn(turn: Turn): string[] {
  const { text } = turn
  const output = outputOf(turn)
  const place = (index: number) => ({ item_id: (output[index] as Loose).id, output_index: index })
  const streamed = output.flatMap((item: Loose, index) => [
    event('response.output_item.added', { output_index: index, item: { ...item, ...(item.arguments ? { arguments: '' } : {}), ...(item.content ? { content: [] } : {}) } }),
    ...pieces(item.arguments ?? '').map((part) => event('response.function_call_arguments.delta', { ...place(index), delta: part })),
    ...pieces(item.content ? text : '').map((part) => event('response.output_text.delta', { ...place(index), content_index: 0, delta: part })),
    event('response.output_item.done', { output_index: index, item }),
  ])
  return [event('response.created', { response: response('in_progress') }), ...streamed, event('response.completed', { response: response('completed', output, responseMembers(turn)) })]
}

/** It thinks where the request asks for it. */
function blocksOf({ first, calls, text }: Turn, { thinking }: Loose): object[] {
  const called = calls.map((call, n) => ({ type: 'tool_use', id: callId(first + n, 'messages'), name: call.name, input: call.arguments }))
  const thought = (thinking?.type ?? 'disabled') === 'disabled' ? [] : [{ type: 'thinking', thinking: THOUGHT, signature: `${SIGNATURE}${first}` }]
  return calls.length > 0 ? [...thought, ...called] : [{ type: 'text', text }]
}

const reasonOf = ({ calls }: Turn): string => (calls.length > 0 ? 'tool_use' : 'end_turn')

const WHOLE: Record<WireName, (turn: Turn, body: Loose) => object> = {
  chat: chatAnswer,
  responses: (turn) => response('completed', outputOf(turn), responseMembers(turn)),
  messages: (turn, body) => messageAnswer(blocksOf(turn, body), reasonOf(turn), messageUsage(turn.calls)),
}
const STREAMED: Record<WireName, (turn: Turn, body: Loose) => string[]> = {
  chat: chatTurn,
  responses: responsesTurn,
  messages: (turn, body) => [messagesStream(blocksOf(turn, body), reasonOf(turn), outputTokens(turn.calls))],
}
