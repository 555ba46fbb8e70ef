/** `POST /v1/responses`: a request, read; and as the responses wire of an upstream takes it. */
import { Failure } from '../../domain/errors.ts'
import { bodyWriter, own, readBody, readCount, readFlag, restoreIds, type Draft } from './request-body.ts'
import type { Ids } from './encrypted-ids.ts'
import { checkKinds, invalid, type Kinds } from './member-types.ts'
import { openMeter } from '../usage/output-meter.ts'
import { judgeError } from '../selection/error-classification.ts'
import { REPLAYED_IDS } from './response-items.ts'
import { openResponsesStream } from './responses-stream.ts'
import { echoOf, measureItems, openResponse, responseOf, type Echo } from './response-object.ts'
import { isMembers, type Members } from './member-allowlist.ts'
import { readUsage } from '../usage/reported-usage.ts'
import { BadAnswer, type Call, type JsonAnswer } from './wire.ts'

const MEMBERS: Kinds = {
  input: 'text or objects',
  prompt: 'object',
  instructions: 'text',
  tools: 'objects',
  tool_choice: 'text or object',
  parallel_tool_calls: 'flag',
  max_tool_calls: 'number',
  text: 'object',
  reasoning: 'object',
  include: 'texts',
  stream_options: 'object',
  temperature: 'number',
  top_p: 'number',
  presence_penalty: 'number',
  frequency_penalty: 'number',
  top_logprobs: 'number',
  metadata: 'object',
  store: 'flag',
  truncation: 'text',
  prompt_cache_key: 'text',
  safety_identifier: 'text',
}
const MESSAGE: Kinds = { content: 'text or objects' }

/**
 * Reads a parsed body. Throws `invalid_request` naming the parameter, `model_not_found`, or `previous_response_not_found`: nothing is kept
 * between requests.
 */
export function readResponses(value: unknown): Draft {
  const body = readBody(value)
  checkKinds(body, MEMBERS)
  const input = own(body, 'input') ?? null
  if (input === null && !isMembers(own(body, 'prompt'))) throw invalid('input', 'input is required.')
  const items = Array.isArray(input) ? (input as Members[]) : []
  // Items of other types are not ours to know.
  for (const [index, item] of items.entries())
    if ((own(item, 'type') ?? 'message') === 'message') checkKinds(item, MESSAGE, `input[${index}].`)
  const stream = readFlag(body, 'stream')
  for (const name of ['previous_response_id', 'conversation']) {
    const kept = own(body, name)
    if (kept !== undefined && kept !== null) throw new Failure('previous_response_not_found', { param: name })
  }
  // The answer of a background response comes without its usage and is fetched later, from an address that is not offered.
  if (readFlag(body, 'background'))
    throw invalid('background', 'Background responses are not offered. Send the request without background.')
  const limit = readCount(body, 'max_output_tokens')
  return { stream, choices: 1, maxOutputTokens: limit, call: (cap, ids, now) => responsesCall(body, items, stream, limit, cap, ids, now) }
}

function responsesCall(body: Members, items: Members[], stream: boolean, limit: number | null, cap: number, ids: Ids, now: number): Call {
  const echo = echoOf(body)
  for (const item of items) restoreIds(item, REPLAYED_IDS, ids)
  const {
    model: _model,
    max_output_tokens: _limit,
    stream: _stream,
    background: _background,
    previous_response_id: _previous,
    conversation: _conversation,
    ...rest
  } = body
  const write = bodyWriter(
    stream ? { ...rest, stream: true } : rest,
    'max_output_tokens',
    limit === null ? cap : Math.min(limit, cap),
    true,
  )
  const options = { ids, echo, now }
  return {
    wire: 'responses',
    stream,
    body: write,
    open: () => openResponsesStream(options),
    answer: (value) => responsesAnswer(value, echo, ids, now),
  }
}

function responsesAnswer(value: unknown, echo: Echo, ids: Ids, now: number): JsonAnswer {
  if (!isMembers(value) || !Array.isArray(value['output'])) throw new BadAnswer('the answer is not a response')
  const status = value['status'] ?? 'completed'
  if (status !== 'completed' && status !== 'incomplete') throw judgeError(value['error']) ?? new BadAnswer('the response did not complete')
  const response = responseOf(value, openResponse(value, ids, now), status, echo, ids)
  const meter = openMeter()
  measureItems(response['output'], meter)
  return { body: JSON.stringify(response), usage: readUsage(value['usage']), meter }
}
