/** `POST /v1/chat/completions`: a request, read; and as the chat wire of an upstream takes it. */
import { BadAnswer, MODEL, type Call, type JsonAnswer } from './wire.ts'
import { cleanCompletion, measure } from './chat-completion.ts'
import { openChatStream } from './chat-stream.ts'
import { bodyWriter, own, readBody, readCount, readFlag, restoreIds, type Draft } from './request-body.ts'
import type { Ids } from './encrypted-ids.ts'
import { checkKinds, invalid, type Kinds } from './member-types.ts'
import { openMeter } from '../usage/output-meter.ts'
import { isMembers, type Members } from './member-allowlist.ts'
import { readUsage } from '../usage/reported-usage.ts'

const MOST_CHOICES = 128

const MEMBERS: Kinds = {
  messages: 'objects',
  stream_options: 'object',
  tools: 'objects',
  tool_choice: 'text or object',
  parallel_tool_calls: 'flag',
  functions: 'objects',
  function_call: 'text or object',
  response_format: 'object',
  stop: 'text or texts',
  temperature: 'number',
  top_p: 'number',
  presence_penalty: 'number',
  frequency_penalty: 'number',
  logit_bias: 'object',
  logprobs: 'flag',
  top_logprobs: 'number',
  seed: 'number',
  reasoning_effort: 'text',
  modalities: 'texts',
  audio: 'object',
  prediction: 'object',
  metadata: 'object',
  store: 'flag',
  user: 'text',
}
const MESSAGE: Kinds = { content: 'text or objects', tool_calls: 'objects', tool_call_id: 'text', function_call: 'object', audio: 'object' }
const STREAM_OPTIONS: Kinds = { include_usage: 'flag' }

/** Reads a parsed body. Throws `invalid_request` naming the parameter, or `model_not_found`. */
export function readChat(value: unknown): Draft {
  const body = readBody(value)
  checkKinds(body, MEMBERS)
  const messages = (own(body, 'messages') ?? missing()) as Members[]
  if (messages.length === 0) throw invalid('messages', 'messages must not be empty.')
  for (const [index, message] of messages.entries()) {
    if (typeof own(message, 'role') !== 'string') throw invalid(`messages[${index}].role`, `messages[${index}].role must be a string.`)
    checkKinds(message, MESSAGE, `messages[${index}].`)
  }
  const stream = readFlag(body, 'stream')
  const options = (own(body, 'stream_options') ?? {}) as Members
  checkKinds(options, STREAM_OPTIONS, 'stream_options.')
  const choices = readCount(body, 'n', MOST_CHOICES) ?? 1
  const limits = [readCount(body, 'max_completion_tokens'), readCount(body, 'max_tokens')].filter((limit) => limit !== null)
  const perChoice = limits.length > 0 ? Math.min(...limits) : null
  return {
    stream,
    choices,
    maxOutputTokens: perChoice === null ? null : Math.min(perChoice * choices, Number.MAX_SAFE_INTEGER),
    call: (cap, ids, now) => chatCall({ body, messages, stream, options, perChoice, choices }, cap, ids, now),
  }
}

function missing(): never {
  throw invalid('messages', 'messages is required.')
}

type Request = { body: Members; messages: Members[]; stream: boolean; options: Members; perChoice: number | null; choices: number }

function chatCall(request: Request, cap: number, ids: Ids, now: number): Call {
  const { messages, stream, options, perChoice, choices } = request
  for (const message of messages) {
    restoreIds(message, ['tool_call_id'], ids)
    for (const call of (own(message, 'tool_calls') ?? []) as Members[]) restoreIds(call, ['id'], ids)
    restoreIds((own(message, 'audio') ?? {}) as Members, ['id'], ids)
  }
  const {
    model: _model,
    max_tokens: legacy,
    max_completion_tokens: current,
    stream: _stream,
    stream_options: _options,
    ...rest
  } = request.body
  const share = Math.max(1, Math.floor(cap / choices))
  const field = typeof legacy === 'number' && typeof current !== 'number' ? 'max_tokens' : 'max_completion_tokens'
  const sent = stream ? { ...rest, stream: true, stream_options: { ...options, include_usage: true } } : rest
  const write = bodyWriter(sent, field, perChoice === null ? share : Math.min(perChoice, share), false)
  const streamOptions = { ids, includeUsage: options['include_usage'] === true, now }
  return {
    wire: 'chat',
    stream,
    body: write,
    open: () => openChatStream(streamOptions),
    answer: (answered) => chatAnswer(answered, ids, now),
  }
}

function chatAnswer(value: unknown, ids: Ids, now: number): JsonAnswer {
  const completion = cleanCompletion(value, ids, now)
  const choices = completion?.['choices'] as Members[] | undefined
  if (!completion || !choices?.every((choice) => isMembers(choice['message'])))
    throw new BadAnswer(`the answer is not a chat completion of ${MODEL}'s wire`)
  const meter = openMeter()
  measure(choices, meter)
  return { body: JSON.stringify(completion), usage: readUsage((value as Members)['usage']), meter }
}
