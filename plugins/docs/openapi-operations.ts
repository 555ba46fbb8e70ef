/** OpenAPI operations: id, summary, responses and specific errors of every route. `test/plugins/docs.test.ts` fails for a route that is missing here. */
import { Type, type TSchema } from 'typebox'
import type { FailureCode } from '../../src/domain/errors.ts'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { Bodies } from './response-schemas.ts'

export const TAGS = {
  Generations: 'Images, video and music from a prompt.',
  Operations: 'Edits of media that are there already.',
  Webhooks: 'The event log, and attempts outside the schedule.',
  Account: 'What plans granted and what was used.',
  Files: 'Results, by signed link.',
  MCP: 'The Media API for MCP clients.',
  Coding: 'The OpenAI-compatible endpoint.',
  Plugins: 'Routes of third-party plugins.',
} as const

export type Answer = {
  description: string
  /** Schemas by content type; none for an answer without a body. */
  content?: Record<string, TSchema>
  /** `Brand` in a name stands for the brand. */
  headers?: Record<string, object>
}

export type Operation = {
  /** Method name in generated clients. */
  operationId: string
  summary: string
  description?: string
  tags: [keyof typeof TAGS]
  answers: Record<string, Answer>
  failures?: FailureCode[]
  /** Headers of its 429. */
  limitHeaders?: Record<string, object>
  /** For routes that parse their bodies themselves. */
  body?: TSchema
  /** Example body. */
  example?: object
  headers?: TSchema
}

const json = (description: string, schema: TSchema, headers?: Record<string, object>): Answer => ({ description, content: { 'application/json': schema }, ...(headers ? { headers } : {}) })
const header = (description: string, type = 'string') => ({ type, description })

const creationHeaders = Type.Object({
  'Idempotency-Key': Type.Optional(Type.String({ pattern: FIELD_PATTERNS.idempotencyKey.pattern, description: 'The same key with the same body is the same task.' })),
  Prefer: Type.Optional(Type.String({ description: 'wait=N holds the answer until the task has ended, for up to N seconds; N is at most 60.' })),
})
const rateHeaders = { RateLimit: header("What the plan's rate leaves."), 'RateLimit-Policy': header("The plan's rate.") }
const createdHeaders = { Location: header('Address of the task.'), 'Preference-Applied': header('wait=N, if the answer was held for it.'), ...rateHeaders }
const created: Record<string, Answer> = {
  200: json('The task that this Idempotency-Key made before, a task that ended within Prefer: wait, or the quote of a dry run, which has no headers.', Bodies.taskOrQuote, { 'Idempotency-Replayed': header('true for a task that was there.'), ...createdHeaders }),
  202: json('The task, queued.', Bodies.task, createdHeaders),
}
const creationFailures: FailureCode[] = ['not_supported', 'url_not_allowed', 'insufficient_balance', 'max_cost_exceeded', 'idempotency_key_reused', 'queue_full']

/** The routes that generations and operations share. */
function taskOperations(path: string, tag: 'Generations' | 'Operations', one: 'generation' | 'operation', example: object): Record<string, Operation> {
  const tags: [typeof tag] = [tag]
  const name = one === 'generation' ? 'Generation' : 'Operation'
  const article = one === 'generation' ? 'a' : 'an'
  const base = `/api/v1/${path}`
  return {
    [`POST ${base}`]: { operationId: `create${name}`, summary: `Create ${article} ${one}`, tags, example, headers: creationHeaders, answers: created, failures: creationFailures, limitHeaders: rateHeaders },
    [`GET ${base}`]: { operationId: `list${name}s`, summary: `List ${path}, newest first`, tags, answers: { 200: json('A page.', Bodies.tasks) } },
    [`GET ${base}/:id`]: {
      operationId: `get${name}`,
      summary: `Get ${article} ${one}`,
      description: 'A failed task is a 200 as well, with its status and error.',
      tags,
      headers: Type.Object({ 'If-None-Match': Type.Optional(Type.String({ description: 'The ETag of an earlier answer, for cheap polling.' })) }),
      answers: { 200: json('The task.', Bodies.task, { ETag: header('Changes with the task.') }), 304: { description: 'The task has not changed.' } },
      failures: ['not_found'],
    },
    [`POST ${base}/:id/cancel`]: { operationId: `cancel${name}`, summary: `Cancel ${article} ${one}`, description: 'The hold is released at once. A task whose run has begun may cost a share of its estimate: `actual_cost` says so.', tags, answers: { 200: json('The canceled task.', Bodies.task) }, failures: ['not_found', 'already_final'] },
    [`GET ${base}/:id/deliveries`]: { operationId: `list${name}Deliveries`, summary: 'List the webhook deliveries', tags, answers: { 200: json('Every delivery with its attempts.', Bodies.deliveries) }, failures: ['not_found'] },
    [`GET ${base}/:id/events`]: {
      operationId: `stream${name}Events`,
      summary: `Follow ${article} ${one}`,
      description: 'Server-Sent Events: the history, then each change, until the task has ended.',
      tags,
      headers: Type.Object({ 'Last-Event-ID': Type.Optional(Type.String({ description: 'The id of the last event that was received: the stream goes on after it.' })) }),
      answers: { 200: { description: 'The events.', content: { 'text/event-stream': Bodies.events } }, 204: { description: 'The task has ended, and nothing happened after that event.' } },
      failures: ['not_found', 'invalid_request', 'concurrency_limit'],
    },
  }
}

const windowFailures: FailureCode[] = ['session_limit_reached', 'weekly_limit_reached', 'key_limit_reached', 'window_reserved', 'concurrency_limit']
const upstreamFailures: FailureCode[] = ['model_not_found', 'unsupported_parameter', 'context_length_exceeded', 'content_filter', 'invalid_image', 'server_overloaded']
const USAGE_RECORDS = 'CloudEvents of what was charged, with USAGE_DAYS; without it none are made, and the list is empty. Go on with next_cursor: a reader that follows it misses nothing.'
const open = { additionalProperties: true }
const file = { content: Object.fromEntries(['image/*', 'video/*', 'audio/*'].map((type) => [type, { schema: Bodies.bytes }])) } as unknown as TSchema
const model = Type.Literal('svc-code')
const usageHeader = { 'X-Brand-Usage': header('estimated, if the gateway has counted the tokens; of a stream, a trailer field.') }
const streamed = (description: string, schema: TSchema): Record<string, Answer> => ({ 200: { description, content: { 'application/json': schema, 'text/event-stream': Bodies.events }, headers: usageHeader } })

export const OPERATIONS: Record<string, Operation> = {
  ...taskOperations('generations', 'Generations', 'generation', { kind: 'image', prompt: 'A lighthouse at dawn' }),
  ...taskOperations('operations', 'Operations', 'operation', { operation: 'background_remove', media_url: 'https://example.com/cup.png' }),
  'POST /api/v1/uploads': {
    operationId: 'createUpload',
    summary: 'Upload a file',
    description: 'The body is an image, a video or an audio file of at most 100 MiB, with Content-Length; its content decides what it is. Operations take media_url until expires_at.',
    tags: ['Operations'],
    body: file,
    answers: { 201: json('The upload.', Bodies.upload) },
    failures: ['invalid_request', 'upload_limit', 'concurrency_limit'],
  },
  'DELETE /api/v1/uploads/:id': { operationId: 'deleteUpload', summary: 'Delete an upload', tags: ['Operations'], answers: { 204: { description: 'The upload is gone.' } }, failures: ['not_found'] },
  'PUT /files/:id': {
    operationId: 'putFile',
    summary: 'Upload a file by a signed address',
    description: 'Target of the address that the MCP tool create_upload gives.',
    tags: ['Files'],
    body: file,
    answers: { 201: json('The upload.', Bodies.upload) },
    failures: ['invalid_request', 'invalid_signature', 'result_expired', 'unsupported_media_type', 'payload_too_large', 'request_timeout', 'upload_limit', 'concurrency_limit'],
  },
  'GET /api/v1/usage/records': { operationId: 'listUsageRecords', summary: 'Read the usage records of the plan, oldest first', description: USAGE_RECORDS, tags: ['Account'], answers: { 200: json('A page.', Bodies.usageRecords) } },
  'GET /api/v1/events': {
    operationId: 'listEvents',
    summary: 'Read the event log, oldest first',
    description: 'Every event of the tenant, with or without a webhook. Go on with next_cursor, which is never null: a reader that follows it misses nothing.',
    tags: ['Webhooks'],
    answers: { 200: json('A page.', Bodies.eventLog) },
  },
  'POST /api/v1/deliveries/:id/redeliver': {
    operationId: 'redeliver',
    summary: 'Redeliver a webhook',
    description: 'One more attempt now, outside the schedule, with the same body and webhook-id. While an attempt is due or under way, none is added.',
    tags: ['Webhooks'],
    answers: { 202: json('The delivery.', Bodies.delivery) },
    failures: ['not_found', 'redelivery_limit'],
  },
  'POST /api/v1/deliveries/replay': {
    operationId: 'replayDeliveries',
    summary: 'Redeliver the webhooks of a time range',
    description: 'Examines up to 500 deliveries, oldest first; while has_more is true, the rest follows with the cursor.',
    tags: ['Webhooks'],
    example: { since: '2026-11-20T00:00:00Z', until: '2026-11-21T00:00:00Z', status: 'failed' },
    answers: { 202: json('How many became due.', Bodies.replay) },
  },
  'GET /api/v1/capabilities': {
    operationId: 'getCapabilities',
    summary: 'Get what can be made, and on what terms',
    description: 'Kinds and operations that can be had now, with formats, limits and the prices of the plan.',
    tags: ['Account'],
    answers: { 200: json('The capabilities.', Bodies.capabilities) },
    failures: ['plan_inactive'],
  },
  'GET /api/v1/usage': { operationId: 'getMediaUsage', summary: 'Get the usage of the running period', tags: ['Account'], answers: { 200: json('The usage.', Bodies.mediaUsage) }, failures: ['plan_inactive'] },
  'GET /files/:id': {
    operationId: 'getFile',
    summary: 'Get the bytes of a result',
    description: 'Target of the signed links of results, which are valid until expires_at. Supports range requests.',
    tags: ['Files'],
    headers: Type.Object({ Range: Type.Optional(Type.String({ description: 'One range of bytes.' })), 'If-None-Match': Type.Optional(Type.String()) }),
    answers: {
      200: { description: 'The file.', content: { 'image/*': Bodies.bytes, 'video/*': Bodies.bytes, 'audio/*': Bodies.bytes } },
      206: { description: 'The range.', content: { 'image/*': Bodies.bytes, 'video/*': Bodies.bytes, 'audio/*': Bodies.bytes } },
      304: { description: 'The file has not changed.' },
    },
    failures: ['invalid_signature', 'result_expired', 'range_not_satisfiable', 'concurrency_limit'],
  },
  'POST /mcp': {
    operationId: 'callMcp',
    summary: 'Speak MCP',
    description: 'Streamable HTTP without sessions, for the protocol revisions 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05 and 2024-10-07. An error of a tool is a tool error with the same code and message. Other methods than POST are 405.',
    tags: ['MCP'],
    example: { jsonrpc: '2.0', id: 1, method: 'tools/list' },
    headers: Type.Object({ Accept: Type.String({ description: 'application/json, text/event-stream' }), 'MCP-Protocol-Version': Type.Optional(Type.String()) }),
    answers: {
      200: { description: 'A JSON-RPC response, or a stream that ends with it.', content: { 'application/json': Bodies.jsonRpc, 'text/event-stream': Bodies.events } },
      202: { description: 'The notification was accepted.' },
      400: json('`invalid_json`, `invalid_request`: the body is not one message. Otherwise a JSON-RPC error: the message, its headers or its revision is at fault, or needs the Tasks extension.', Type.Union([Type.Ref('Error#'), Bodies.jsonRpc])),
      404: json('A JSON-RPC error: from revision 2026-07-28 on, the method is unknown.', Bodies.jsonRpc),
      406: json('A JSON-RPC error: up to revision 2025-11-25, Accept must name application/json and text/event-stream.', Bodies.jsonRpc),
    },
    failures: ['origin_not_allowed'],
  },
  'POST /v1/chat/completions': {
    operationId: 'createChatCompletion',
    summary: 'Create a chat completion',
    description: "As OpenAI's; members that are not listed here are passed on.",
    tags: ['Coding'],
    body: Type.Object({ model, messages: Type.Array(Type.Object({ role: Type.String() }, open)), stream: Type.Optional(Type.Boolean()) }, open),
    example: { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] },
    answers: streamed('The completion, or its chunks with stream: true.', Bodies.chatCompletion),
    failures: [...windowFailures, ...upstreamFailures],
  },
  'POST /v1/responses': {
    operationId: 'createResponse',
    summary: 'Create a response',
    description: "As OpenAI's; members that are not listed here are passed on. Responses are not stored.",
    tags: ['Coding'],
    body: Type.Object({ model, input: Type.Union([Type.String(), Type.Array(Type.Object({}, open))]), stream: Type.Optional(Type.Boolean()) }, open),
    example: { model: 'svc-code', input: 'Hello' },
    answers: streamed('The response, or its events with stream: true.', Bodies.response),
    failures: [...windowFailures, ...upstreamFailures, 'summary_incomplete', 'previous_response_not_found'],
  },
  'POST /v1/responses/compact': {
    operationId: 'compactResponse',
    summary: 'Compact a conversation',
    description: "As OpenAI's: the messages of the user and one item that stands for the rest, for the input of the next response.",
    tags: ['Coding'],
    body: Type.Object({ model, input: Type.Union([Type.String(), Type.Array(Type.Object({}, open))]), instructions: Type.Optional(Type.String()) }, open),
    example: { model: 'svc-code', input: 'Hello' },
    answers: { 200: json('The compacted conversation.', Type.Object({ id: Type.String(), object: Type.Literal('response.compaction'), created_at: Type.Integer(), output: Type.Array(Type.Object({}, open)) }, open), usageHeader) },
    failures: [...windowFailures, ...upstreamFailures, 'summary_incomplete', 'previous_response_not_found'],
  },
  'POST /v1/messages': {
    operationId: 'createMessage',
    summary: 'Create a message',
    description: "As Anthropic's, also its errors; the key may be in x-api-key. Members that are not listed here have no effect unless the model has them.",
    tags: ['Coding'],
    body: Type.Object({ model, max_tokens: Type.Integer(), messages: Type.Array(Type.Object({ role: Type.String() }, open)), stream: Type.Optional(Type.Boolean()) }, open),
    example: { model: 'svc-code', max_tokens: 1024, messages: [{ role: 'user', content: 'Hello' }] },
    answers: streamed('The message, or its events with stream: true.', Type.Object({ type: Type.Literal('message') }, open)),
    failures: [...windowFailures, ...upstreamFailures],
  },
  'POST /v1/messages/count_tokens': {
    operationId: 'countMessageTokens',
    summary: 'Count the tokens of a message request',
    description: 'An estimate. No window is charged.',
    tags: ['Coding'],
    body: Type.Object({ model, messages: Type.Array(Type.Object({ role: Type.String() }, open)) }, open),
    example: { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] },
    answers: { 200: json('The count.', Type.Object({ input_tokens: Type.Integer() })) },
    failures: ['invalid_request', 'model_not_found'],
  },
  'POST /v1/responses/input_tokens': {
    operationId: 'countInputTokens',
    summary: 'Count the tokens of a response request',
    description: 'An estimate. No window is charged.',
    tags: ['Coding'],
    body: Type.Object({ model, input: Type.Union([Type.String(), Type.Array(Type.Object({}, open))]) }, open),
    example: { model: 'svc-code', input: 'Hello' },
    answers: { 200: json('The count.', Type.Object({ object: Type.Literal('response.input_tokens'), input_tokens: Type.Integer() })) },
    failures: ['invalid_request', 'model_not_found'],
  },
  'GET /v1/responses': { operationId: 'refuseWebSocket', summary: 'Refuse WebSocket', description: 'The WebSocket transport is not offered.', tags: ['Coding'], answers: {}, failures: ['upgrade_required', 'method_not_allowed'] },
  'GET /v1/models': { operationId: 'listModels', summary: 'List the models', tags: ['Coding'], answers: { 200: json('The one model.', Bodies.models) } },
  'GET /v1/models/:model': { operationId: 'getModel', summary: 'Get the model', tags: ['Coding'], answers: { 200: json('The model.', Bodies.model) }, failures: ['invalid_request', 'model_not_found'] },
  'GET /v1/usage/records': { operationId: 'listCodingUsageRecords', summary: 'Read the usage records of the plan, oldest first', description: USAGE_RECORDS, tags: ['Account'], answers: { 200: json('A page.', Bodies.usageRecords) } },
  'GET /v1/usage': { operationId: 'getCodingUsage', summary: 'Get the use of the token windows', tags: ['Account'], answers: { 200: json('The windows.', Bodies.codingUsage) }, failures: ['plan_inactive'] },
}
