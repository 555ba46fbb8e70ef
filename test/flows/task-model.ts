/** A scripted reasoning model on either wire that works on a task by the client's tools, turn by turn. */
import { respond, stream, type Script } from '../fakes/upstream.ts'
import { chunk, completion, delta, DONE, event, message, response, USAGE, VENDOR } from '../fakes/upstream-wire.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- bodies of requests are compared, not typed

export type Call = { name: string; arguments: object }
/** The calls of each turn, then the last words, made of the results of all calls in order. */
export type Task = { turns: Call[][]; last(results: string[]): string }

export const THOUGHT = 'I look at what the tool says.'

/** The id that the upstream gave to the n-th call of the task. */
export const callId = (n: number): string => `${VENDOR}:call:${n}`

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

/** A request without tools is a client's own, such as for a title. */
export function taskModel(wire: 'chat' | 'responses', task: Task): Script {
  return (answer, { body }) => {
    const items = (wire === 'chat' ? body['messages'] : body['input']) as Loose[]
    const results = items.filter((item) => (wire === 'chat' ? item.role === 'tool' : item.type === 'function_call_output')).map((item) => textOf(item.content ?? item.output))
    const turn = body['tools'] ? turnAfter(task, results) : { first: 0, calls: [], text: 'A title' }
    if (!body['stream']) return respond(answer, 200, wire === 'chat' ? chatAnswer(turn) : response('completed', outputOf(turn)))
    stream(answer, ...(wire === 'chat' ? chatTurn(turn) : responsesTurn(turn)))
    answer.end()
  }
}

/** Pieces of a text, as tokens come. */
const pieces = (text: string): string[] => text.match(/.{1,7}/gs) ?? []

function chatTurn({ first, calls, text }: Turn): string[] {
  return [
    chunk([delta({ role: 'assistant', content: '' })]),
    ...pieces(calls.length > 0 ? THOUGHT : '').map((part) => chunk([delta({ reasoning_content: part })])),
    ...pieces(text).map((part) => chunk([delta({ content: part })])),
    ...calls.flatMap((call, index) => [
      chunk([delta({ tool_calls: [{ index, id: callId(first + index), type: 'function', function: { name: call.name, arguments: '' } }] })]),
      ...pieces(JSON.stringify(call.arguments)).map((part) => chunk([delta({ tool_calls: [{ index, function: { arguments: part } }] })])),
    ]),
    chunk([delta({}, calls.length > 0 ? 'tool_calls' : 'stop')]),
    chunk([], { usage: USAGE }),
    DONE,
  ]
}

function chatAnswer({ first, calls, text }: Turn): object {
  const tools = calls.map((call, n) => ({ id: callId(first + n), type: 'function', function: { name: call.name, arguments: JSON.stringify(call.arguments) } }))
  const spoken = calls.length > 0 ? { content: null, reasoning_content: THOUGHT, tool_calls: tools } : { content: text }
  return completion('', { choices: [{ index: 0, message: { role: 'assistant', ...spoken }, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }] })
}

function outputOf({ first, calls, text }: Turn): object[] {
  const reasoning = { id: `rs_${VENDOR}_${first}`, type: 'reasoning', summary: [], encrypted_content: `${VENDOR}-encrypted-${first}` }
  const called = calls.map((call, n) => ({ id: `fc_${VENDOR}_${first + n}`, type: 'function_call', status: 'completed', call_id: callId(first + n), name: call.name, arguments: JSON.stringify(call.arguments) }))
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
  return [event('response.created', { response: response('in_progress') }), ...streamed, event('response.completed', { response: response('completed', output) })]
}
