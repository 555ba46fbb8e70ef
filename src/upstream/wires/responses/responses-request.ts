/** `POST /v1/responses`: validates the request and makes the upstream call. */
import { Failure } from '../../../domain/errors.ts'
import type { Ids } from '../encrypted-ids.ts'
import { checkTools, checkTypes, invalid, readBody, readBoolean, readLimit, type MemberTypes } from '../coding-request-validation.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { clientErrorIn } from '../client-error-mapping.ts'
import { REPLAYED_IDS } from './response-allowed-members.ts'
import { openResponsesStream } from './responses-stream.ts'
import {
  completed,
  meterItems,
  repeatedMembers,
  responseId,
  responseOf,
  translatedMembers,
  type RepeatedMembers,
} from './response-object.ts'
import { isMembers, own, ownText, type Members } from '../allowlist.ts'
import type { Address } from '../../policy/content-parts.ts'
import { cleanItems } from '../../policy/conversation.ts'
import { lists, withoutMembers } from '../../policy/request-policy.ts'
import { estimatedResponseUsage, readUsage } from '../../usage/reported-usage.ts'
import { bodyWriter, obfuscationOf, replaceIdentities, restoreIds } from '../upstream-body.ts'
import { answeringCompaction } from '../../compaction/compaction-answer.ts'
import { TRIGGER, withSummaries } from '../../compaction/compaction-item.ts'
import { summaryRequest, userMessages } from '../../compaction/summary-request.ts'
import { callOver, type CallMakers } from '../../translation/translated-calls.ts'
import { responsesToMessages, type ResponsesAnswer } from '../../translation/responses-to-messages/responses-to-messages.ts'
import { openThinking } from '../messages/sealed-thinking.ts'
import { responsesToChat } from '../../translation/responses-to-chat/responses-to-chat.ts'
import { openReasoning } from '../sealed-members.ts'
import { BadAnswer, type CodingRequest, type JsonAnswer, type UpstreamCall } from '../wire.ts'

const MEMBERS: MemberTypes = {
  input: 'string or objects',
  prompt: 'object',
  instructions: 'string',
  tools: 'objects',
  tool_choice: 'string or object',
  parallel_tool_calls: 'boolean',
  max_tool_calls: 'number',
  text: 'object',
  reasoning: 'object',
  include: 'strings',
  stream_options: 'object',
  temperature: 'number',
  top_p: 'number',
  presence_penalty: 'number',
  frequency_penalty: 'number',
  top_logprobs: 'number',
  metadata: 'object',
  store: 'boolean',
  truncation: 'string',
  prompt_cache_key: 'string',
  safety_identifier: 'string',
  user: 'string',
}
const MESSAGE: MemberTypes = { content: 'string or objects' }
/** Members whose value the gateway sets, or that name what is not stored. */
const SET_HERE = ['model', 'max_output_tokens', 'stream', 'stream_options', 'background', 'previous_response_id', 'conversation']

/** OpenAI's servers refuse a lower limit of tokens, which clients of other wires may set. */
export const LEAST_OUTPUT = 16

/** The members of a request to `/responses/compact`. */
const COMPACTED = [
  'model',
  'instructions',
  'previous_response_id',
  'prompt_cache_key',
  'prompt_cache_options',
  'prompt_cache_retention',
  'service_tier',
]

/** The body of a request to `/responses/compact` as that of a response which compacts its input. Throws `invalid_request`. */
export function compactingBody(value: unknown): Members {
  const body = readBody(value)
  checkTypes(body, { input: 'string or objects' })
  const input = own(body, 'input') ?? []
  const built: Members = {
    input: [...(typeof input === 'string' ? [{ role: 'user', content: input }] : (input as Members[])), { type: TRIGGER }],
  }
  for (const name of COMPACTED) if (own(body, name) !== undefined) built[name] = own(body, name)
  return built
}

/**
 * Validates a parsed body and leaves out of its input what upstreams do not get. Throws `invalid_request` naming the parameter,
 * `model_not_found`, or `previous_response_not_found`, because responses are not stored. `answer`: what a request that compacts its input is answered with.
 */
export function readResponsesRequest(
  value: unknown,
  allowed: ReadonlySet<string>,
  answer: 'response' | 'compaction' = 'response',
): CodingRequest {
  const body = readBody(value)
  checkTypes(body, MEMBERS)
  checkTools(body)
  const input = own(body, 'input') ?? null
  if (input === null && !isMembers(own(body, 'prompt'))) throw invalid('input', 'input is required.')
  if (isMembers(own(body, 'prompt')) && !lists(allowed, 'responses', 'prompt'))
    throw invalid('prompt', 'prompt: stored prompts are not offered. Send the text as instructions and input.')
  const items = Array.isArray(input) ? (input as Members[]) : []
  // Items of other types are up to the model.
  for (const [index, item] of items.entries())
    if ((own(item, 'type') ?? 'message') === 'message') checkTypes(item, MESSAGE, `input[${index}].`)
  const trigger = items.findIndex((item) => own(item, 'type') === TRIGGER)
  if (trigger >= 0 && trigger < items.length - 1) throw invalid(`input[${trigger}]`, `input[${trigger}]: ${TRIGGER} must be the last item.`)
  if (trigger === 0) throw invalid('input', 'input has nothing to compact.')
  const stream = readBoolean(body, 'stream')
  for (const name of ['previous_response_id', 'conversation']) {
    const stored = own(body, name)
    if (stored !== undefined && stored !== null) throw new Failure('previous_response_not_found', { param: name })
  }
  // A background response is returned without its usage and fetched later, at an endpoint that is not offered.
  if (readBoolean(body, 'background'))
    throw invalid('background', 'Background responses are not offered. Send the request without background.')
  const asked = readLimit(body, 'max_output_tokens')
  // One for an answer would cut off the summary.
  const limit = trigger < 0 ? asked : null
  const addresses: Address[] = []
  const cleaned = cleanItems(items, { addresses, allowed })
  if (Array.isArray(input)) body['input'] = cleaned
  if (!lists(allowed, 'responses', 'store')) body['store'] = false
  return {
    stream,
    choices: 1,
    addresses,
    maxOutputTokens: limit,
    repeatsInput: answer === 'compaction',
    call(cap, ids, now, wires) {
      const repeated = repeatedMembers(body, allowed, now())
      const lower = limit === null ? cap : Math.min(limit, cap)
      replaceIdentities(body, ids)
      const items = withSummaries(cleaned, ids)
      if (Array.isArray(input)) body['input'] = items
      const calls = (more: Pick<ResponsesRequest, 'body' | 'items'>) => callsOf({ ...more, stream, repeated }, lower, ids, now)
      if (trigger < 0) return callOver(wires, calls({ body, items }))
      // Without earlier summaries: the new one holds what they say.
      const context = { ids, kept: answer === 'compaction' ? userMessages(cleaned, ids) : null }
      // Copies: a call restores what was sealed in its items.
      const copies = items.map((item) => ({ ...item }))
      const summarizing = callOver(wires, calls(summaryRequest(body, copies)))
      if (!wires.includes('responses')) return answeringCompaction(summarizing, context)
      const compacting = { ...calls({ body, items }).make.responses(), needs: TRIGGER, translated: summarizing }
      return answeringCompaction(compacting, context)
    },
  }
}

type ResponsesRequest = { body: Members; items: Members[]; stream: boolean; repeated: RepeatedMembers }

function callsOf(request: ResponsesRequest, limit: number, ids: Ids, now: () => number): CallMakers {
  const { body, stream, repeated } = request
  return {
    own: 'responses',
    make: {
      responses: () => responsesCall(request, limit, ids, now),
      chat: () => responsesToChat(body, stream, limit, repeated, ids, now),
      messages: () => responsesToMessages(body, { limit, stream, stop: [], ids }, answerIn(translatedMembers(repeated), ids, now)),
    },
  }
}

function responsesCall(request: ResponsesRequest, limit: number, ids: Ids, now: () => number): UpstreamCall {
  const { body, items, stream, repeated } = request
  const restored = items.filter((item) => openReasoning(own(item, 'encrypted_content'), ids) === null)
  for (const item of restored) {
    const sealed = ownText(item, 'encrypted_content')
    if (sealed !== '') ids.opened.set(item, sealed)
    restoreIds(item, REPLAYED_IDS, ids)
  }
  // Reasoning of a translated turn cannot be read by an upstream of this wire.
  const readable = restored.filter((item) => openThinking(own(item, 'encrypted_content')) === null)
  if (items.length > 0) body['input'] = readable
  const rest = withoutMembers(body, SET_HERE)
  const options = obfuscationOf(own(body, 'stream_options'))
  const streamOptions = Object.keys(options).length > 0 ? { stream_options: options } : {}
  const written = bodyWriter(
    'responses',
    stream ? { ...rest, stream: true, ...streamOptions } : rest,
    'max_output_tokens',
    limit,
    true,
    ids,
  )
  return {
    wire: 'responses',
    stream,
    ...written,
    ...answerIn(repeated, ids, now),
    isTranslation: false,
    translated: null,
  }
}

function answerIn(repeated: RepeatedMembers, ids: Ids, now: () => number): ResponsesAnswer {
  return {
    openRewriter: (templates) => openResponsesStream({ ids, repeated, now, templates }),
    rewriteJson: (value) => responsesAnswer(value, repeated, ids, now),
  }
}

function responsesAnswer(value: unknown, repeated: RepeatedMembers, ids: Ids, now: () => number): JsonAnswer {
  if (!isMembers(value) || !Array.isArray(value['output'])) throw new BadAnswer('the answer is not a response')
  const status = value['status'] ?? 'completed'
  if (status !== 'completed' && status !== 'incomplete')
    throw clientErrorIn(value['error']) ?? new BadAnswer('the response did not complete')
  const response = responseOf(completed(value, now), responseId(value['id'], ids), status, repeated, ids)
  const meter = openMeter()
  meterItems(response['output'], meter)
  const usage = readUsage(value['usage'])
  return { body: (estimate) => JSON.stringify(usage ? response : { ...response, usage: estimatedResponseUsage(estimate) }), usage, meter }
}
