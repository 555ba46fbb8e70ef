/** The echo on the chat wire, with the members that model servers add: fingerprint, usage details, a first chunk with the role. */
import { answerTo, textOf, type EchoRequest, type EchoAnswer } from './echo-answer.ts'

type Message = { role?: string; content?: unknown }
export type ChatBody = {
  messages?: Message[]
  tools?: { type?: string; function?: { name?: string } }[]
  max_tokens?: number
  max_completion_tokens?: number
  n?: number
  stop?: string | string[] | null
  reasoning_effort?: string
  reasoning?: { effort?: string; enabled?: boolean; max_tokens?: number }
  thinking?: { type?: string }
  enable_thinking?: boolean
  stream?: boolean
  stream_options?: { include_usage?: boolean }
}

/** `created` is epoch seconds. */
export type AnswerHead = { id: string; model: string; created: number }

function asksForThinking({ reasoning_effort: effort, reasoning, thinking, enable_thinking: enabled }: ChatBody): boolean {
  const wanted = effort ?? reasoning?.effort
  if (wanted !== undefined) return wanted !== 'none'
  const byTokens = (reasoning?.max_tokens ?? 0) > 0
  return byTokens || reasoning?.enabled === true || enabled === true || (thinking?.type ?? 'disabled') !== 'disabled'
}

function read(body: ChatBody): EchoRequest {
  const messages = body.messages ?? []
  const last = messages.findLastIndex(({ role }) => role === 'user')
  return {
    user: textOf(messages[last]?.content),
    outputs: messages
      .slice(last + 1)
      .filter(({ role }) => role === 'tool')
      .map(({ content }) => textOf(content)),
    tools: (body.tools ?? []).flatMap((tool) => (tool.type === 'function' && tool.function?.name ? [tool.function.name] : [])),
    thinks: asksForThinking(body),
    bytes: JSON.stringify(messages).length,
    earlierBytes: JSON.stringify(messages.slice(0, Math.max(0, last))).length - 2,
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? null,
    stop: [body.stop ?? []].flat(),
  }
}

function usageOf({ usage, thought }: EchoAnswer, choices: number): object {
  const output = usage.output * choices
  return {
    prompt_tokens: usage.input,
    completion_tokens: output,
    total_tokens: usage.input + output,
    prompt_tokens_details: { cached_tokens: usage.cached, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: thought.length * choices,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  }
}

function finishReason(answer: EchoAnswer): string {
  if (answer.call) return 'tool_calls'
  return answer.cutOff ? 'length' : 'stop'
}

const indexes = (body: ChatBody) => Array.from({ length: body.n ?? 1 }, (_, index) => index)

/** The answer in JSON. */
export function chatJson(body: ChatBody, { id, model, created }: AnswerHead): object {
  const answer = answerTo(read(body))
  const text = answer.pieces.join('')
  const thought = answer.thought.length > 0 ? { reasoning_content: answer.thought.join('') } : {}
  const spoken = answer.call
    ? { role: 'assistant', content: null, refusal: null, tool_calls: [{ id: `call_${id}`, type: 'function', function: answer.call }] }
    : { role: 'assistant', content: text, refusal: null, annotations: [] }
  return {
    id: `chatcmpl-${id}`,
    object: 'chat.completion',
    created,
    model,
    choices: indexes(body).map((index) => ({
      index,
      message: { ...spoken, ...thought },
      logprobs: null,
      finish_reason: finishReason(answer),
    })),
    usage: usageOf(answer, body.n ?? 1),
    service_tier: 'default',
    system_fingerprint: `fp_${model}`,
  }
}

/** The answer as events; the caller waits `waitMs` before each. */
export function* chatEvents(body: ChatBody, { id, model, created }: AnswerHead): Generator<{ data: string; waitMs: number }> {
  const answer = answerTo(read(body))
  const includeUsage = body.stream_options?.include_usage === true
  const event = (choices: object[], usage: object | null = null) => ({
    data: JSON.stringify({
      id: `chatcmpl-${id}`,
      object: 'chat.completion.chunk',
      created,
      model,
      service_tier: 'default',
      system_fingerprint: `fp_${model}`,
      choices,
      ...(includeUsage ? { usage } : {}),
    }),
    waitMs: answer.waitMs,
  })
  const choice = (index: number, delta: object, reason: string | null = null) => [{ index, delta, logprobs: null, finish_reason: reason }]
  for (const index of indexes(body)) {
    for (const piece of answer.thought) yield event(choice(index, { role: 'assistant', reasoning_content: piece }))
    if (answer.call) {
      yield event(
        choice(index, {
          role: 'assistant',
          content: null,
          tool_calls: [{ index: 0, id: `call_${id}`, type: 'function', function: { name: answer.call.name, arguments: '' } }],
        }),
      )
      for (const piece of answer.pieces) yield event(choice(index, { tool_calls: [{ index: 0, function: { arguments: piece } }] }))
    } else {
      yield event(choice(index, { role: 'assistant', content: '', refusal: null }))
      for (const piece of answer.pieces) yield event(choice(index, { content: piece }))
    }
    yield event(choice(index, {}, finishReason(answer)))
  }
  if (includeUsage) yield event([], usageOf(answer, body.n ?? 1))
  yield { data: '[DONE]', waitMs: 0 }
}
