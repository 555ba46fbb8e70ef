/** `POST /v1/chat/completions`: a request, read; and as the chat wire of an upstream takes it. */
import { BadAnswer, MODEL, type Call, type JsonAnswer } from './wire.ts'
import { cleanCompletion, measure } from './chat.ts'
import { openChatStream } from './chat-stream.ts'
import { bodyWriter, invalid, own, readBody, readCount, readFlag, readList, restoreIds, type Draft } from './draft.ts'
import type { Ids } from './ids.ts'
import { openMeter } from './meter.ts'
import { isMembers, type Members } from './shape.ts'
import { readUsage } from './usage.ts'

const MOST_CHOICES = 128

/** Reads a parsed body. Throws `invalid_request` naming the parameter, or `model_not_found`. */
export function readChat(value: unknown): Draft {
  const body = readBody(value)
  const messages = readList(own(body, 'messages') ?? missing(), 'messages')
  if (messages.length === 0) throw invalid('messages', 'messages must not be empty.')
  for (const [index, message] of messages.entries()) {
    if (typeof own(message, 'role') !== 'string') throw invalid(`messages[${index}].role`, `messages[${index}].role must be a string.`)
  }
  const stream = readFlag(body, 'stream')
  const options = own(body, 'stream_options')
  if (options !== undefined && options !== null && !isMembers(options)) throw invalid('stream_options', 'stream_options must be an object.')
  const choices = readCount(body, 'n', MOST_CHOICES) ?? 1
  const limits = [readCount(body, 'max_completion_tokens'), readCount(body, 'max_tokens')].filter((limit) => limit !== null)
  const perChoice = limits.length > 0 ? Math.min(...limits) : null
  return {
    stream,
    choices,
    maxOutputTokens: perChoice === null ? null : Math.min(perChoice * choices, Number.MAX_SAFE_INTEGER),
    call: (cap, ids, now) =>
      chatCall({ body, messages, stream, options: isMembers(options) ? options : {}, perChoice, choices }, cap, ids, now),
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
    const calls = own(message, 'tool_calls')
    if (Array.isArray(calls)) for (const call of calls as unknown[]) if (isMembers(call)) restoreIds(call, ['id'], ids)
    const audio = own(message, 'audio')
    if (isMembers(audio)) restoreIds(audio, ['id'], ids)
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
