/** The echo on the responses wire: every event in OpenAI's order. */
import { answerTo, textOf, type EchoRequest, type EchoAnswer } from './echo-answer.ts'
import type { AnswerHead } from './echo-chat.ts'

type Item = { type?: string; role?: string; content?: unknown; output?: unknown }
type Tool = { type?: string; name?: string; tools?: Tool[] }
export type ResponsesBody = {
  input?: string | Item[]
  instructions?: string | null
  tools?: Tool[]
  max_output_tokens?: number | null
  reasoning?: { effort?: string | null; summary?: string | null } | null
  stream?: boolean
}

function read(body: ResponsesBody): EchoRequest {
  const items: Item[] = typeof body.input === 'string' ? [{ role: 'user', content: body.input }] : (body.input ?? [])
  const last = items.findLastIndex(({ role, type }) => role === 'user' && (type === undefined || type === 'message'))
  return {
    user: textOf(items[last]?.content),
    outputs: items
      .slice(last + 1)
      .filter(({ type }) => type === 'function_call_output')
      .map(({ output }) => textOf(output)),
    tools: functionsOf(body).map(({ name }) => name),
    thinks: (body.reasoning?.effort ?? body.reasoning?.summary ?? 'none') !== 'none',
    bytes: JSON.stringify(items).length + (body.instructions ?? '').length,
    earlierBytes: JSON.stringify(items.slice(0, Math.max(0, last))).length - 2,
    maxTokens: body.max_output_tokens ?? null,
    stop: [],
  }
}

/** The functions on offer: `name` as the user writes it, which has the namespace before it where there is one, and the members that a call has. */
function functionsOf({ tools = [] }: ResponsesBody): { name: string; members: { name: string; namespace?: string } }[] {
  return tools.flatMap(({ type, name, tools: inner = [] }) => {
    if (!name) return []
    if (type === 'function') return [{ name, members: { name } }]
    return type === 'namespace'
      ? functionsOf({ tools: inner }).map((one) => ({ name: `${name}__${one.name}`, members: { name: one.name, namespace: name } }))
      : []
  })
}

type Status = 'in_progress' | 'completed' | 'incomplete'

function outputItem(body: ResponsesBody, answer: EchoAnswer, id: string, status: Status, text: string): object {
  const { call } = answer
  if (call)
    return {
      id: `fc_${id}`,
      type: 'function_call',
      status,
      call_id: `call_${id}`,
      ...functionsOf(body).find(({ name }) => name === call.name)?.members,
      arguments: text,
    }
  return { id: `msg_${id}`, type: 'message', status, role: 'assistant', content: status === 'in_progress' ? [] : [part(text)] }
}

/** The reasoning of the answer, with the text of its summary; none for a request that does not ask for it. */
function reasoningItems({ thought }: EchoAnswer, id: string, text: string): { id: string; summary: object[] }[] {
  if (thought.length === 0) return []
  const summary = text === '' ? [] : [{ type: 'summary_text', text }]
  return [Object.assign({ id: `rs_${id}`, summary }, { type: 'reasoning', encrypted_content: `echo-${id}` })]
}

function part(text: string): object {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function response(body: ResponsesBody, answer: EchoAnswer, { id, model, created }: AnswerHead, status: Status): object {
  const { input, cached, output } = answer.usage
  const complete = status !== 'in_progress'
  const usage = {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cached, cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: answer.thought.length },
    total_tokens: input + output,
  }
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: created,
    status,
    completed_at: status === 'completed' ? created : null,
    error: null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    instructions: body.instructions ?? null,
    model,
    output: complete
      ? [...reasoningItems(answer, id, answer.thought.join('')), outputItem(body, answer, id, status, answer.pieces.join(''))]
      : [],
    usage: complete ? usage : null,
    service_tier: 'default',
  }
}

function finalStatus(answer: EchoAnswer): Status {
  return answer.cutOff ? 'incomplete' : 'completed'
}

/** The answer in JSON. */
export function responsesJson(body: ResponsesBody, head: AnswerHead): object {
  const answer = answerTo(read(body))
  return response(body, answer, head, finalStatus(answer))
}

/** The answer as events; the caller waits `waitMs` before each. */
export function* responsesEvents(body: ResponsesBody, head: AnswerHead): Generator<{ event: string; data: string; waitMs: number }> {
  const answer = answerTo(read(body))
  let sequence = 0
  const event = (type: string, members: object) => ({
    event: type,
    data: JSON.stringify({ type, sequence_number: sequence++, ...members }),
    waitMs: answer.waitMs,
  })
  yield event('response.created', { response: response(body, answer, head, 'in_progress') })
  yield event('response.in_progress', { response: response(body, answer, head, 'in_progress') })
  const index = answer.thought.length > 0 ? 1 : 0
  yield* reasoningEvents(answer, head.id, event)
  yield event('response.output_item.added', { output_index: index, item: outputItem(body, answer, head.id, 'in_progress', '') })
  yield* answer.call ? callEvents(answer, head.id, index, event) : textEvents(answer, head.id, index, event)
  yield event('response.output_item.done', {
    output_index: index,
    item: outputItem(body, answer, head.id, finalStatus(answer), answer.pieces.join('')),
  })
  yield event(`response.${finalStatus(answer)}`, { response: response(body, answer, head, finalStatus(answer)) })
}

type MakeEvent = (type: string, members: object) => { event: string; data: string; waitMs: number }

function* reasoningEvents(answer: EchoAnswer, id: string, event: MakeEvent) {
  const text = answer.thought.join('')
  for (const item of reasoningItems(answer, id, text)) {
    const place = { item_id: item.id, output_index: 0, summary_index: 0 }
    yield event('response.output_item.added', { output_index: 0, item: { ...item, summary: [] } })
    yield event('response.reasoning_summary_part.added', { ...place, part: { type: 'summary_text', text: '' } })
    for (const piece of answer.thought) yield event('response.reasoning_summary_text.delta', { ...place, delta: piece })
    yield event('response.reasoning_summary_text.done', { ...place, text })
    yield event('response.reasoning_summary_part.done', { ...place, part: item.summary[0] })
    yield event('response.output_item.done', { output_index: 0, item })
  }
}

function* textEvents(answer: EchoAnswer, id: string, index: number, event: MakeEvent) {
  const place = { item_id: `msg_${id}`, output_index: index, content_index: 0 }
  const text = answer.pieces.join('')
  yield event('response.content_part.added', { ...place, part: part('') })
  for (const piece of answer.pieces) yield event('response.output_text.delta', { ...place, delta: piece, logprobs: [] })
  yield event('response.output_text.done', { ...place, text, logprobs: [] })
  yield event('response.content_part.done', { ...place, part: part(text) })
}

function* callEvents(answer: EchoAnswer, id: string, index: number, event: MakeEvent) {
  const place = { item_id: `fc_${id}`, output_index: index }
  for (const piece of answer.pieces) yield event('response.function_call_arguments.delta', { ...place, delta: piece })
  yield event('response.function_call_arguments.done', { ...place, arguments: answer.pieces.join('') })
}
