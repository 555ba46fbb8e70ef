/** Failures: the catalogue, and those of limits and backends. */
import { LIMITS, type Limit, type LimitCode } from './limits.ts'

/**
 * Error catalogue: code, HTTP status, OpenAI error type and public sentence of every failure that a client can get.
 * `docs/errors.md` is generated from this list. The cause of a `Failure` is only logged.
 */
export const FAILURES = {
  invalid_api_key: [
    401,
    'authentication_error',
    'The API key is missing, malformed, unknown, expired or revoked. Send it as `Authorization: Bearer <API_KEY>`.',
  ],
  not_signed_in: [401, 'authentication_error', 'You are not signed in, or your session has ended. Sign in again.'],
  wrong_product: [
    403,
    'permission_error',
    'This API key belongs to the other product. Media API keys serve /api/v1 and /mcp, Coding Plan API keys serve /v1.',
  ],
  key_suspended: [
    403,
    'permission_error',
    'This API key is suspended, or its plan does not accept it. The status of the key has the reason: ask the person who manages your plan.',
  ],
  plan_not_allowed: [403, 'permission_error', 'The plan of this API key does not include this address.'],
  origin_not_allowed: [403, 'permission_error', 'Requests from this web origin, or under this Host name, are not allowed.'],
  csrf: [
    403,
    'permission_error',
    'The dashboard accepts changes from its own pages only. Send the header X-Tollgate-CSRF: 1 from the same origin.',
  ],
  tenant_not_allowed: [403, 'permission_error', 'Your account may not act for this tenant.'],
  key_management_off: [
    403,
    'permission_error',
    'API keys cannot be changed here. The person who manages your plan changes them with the ApiKey resource.',
  ],
  plan_inactive: [403, 'permission_error', 'The plan of this API key is not active. Nothing was charged.'],
  insufficient_balance: [402, 'insufficient_quota', 'The balance does not cover the estimated cost. Nothing was charged.'],
  max_cost_exceeded: [402, 'insufficient_quota', 'The estimated cost is above the given max_cost. Nothing was charged.'],
  not_found: [404, 'invalid_request_error', 'There is nothing at this address.'],
  model_not_found: [404, 'invalid_request_error', 'The model does not exist. The only model is svc-code.'],
  method_not_allowed: [
    405,
    'invalid_request_error',
    'This address does not support that method. The Allow header lists those that it supports.',
  ],
  already_final: [409, 'invalid_request_error', 'The task has already ended.'],
  redelivery_limit: [409, 'invalid_request_error', 'The limit of redeliveries of this webhook is reached.'],
  conflict: [409, 'invalid_request_error', 'The resource was changed in the meantime. Read it again and repeat the change.'],
  tenant_changed: [409, 'invalid_request_error', 'Your session is for a different tenant than the page shows. Reload the page.'],
  invalid_request: [400, 'invalid_request_error', 'The request is not valid.'],
  invalid_json: [400, 'invalid_request_error', 'The request body is not valid JSON.'],
  url_not_allowed: [400, 'invalid_request_error', 'This URL is not allowed.'],
  not_supported: [400, 'invalid_request_error', 'The service does not offer this kind or operation.'],
  unsupported_parameter: [400, 'invalid_request_error', 'The model does not support this parameter on this endpoint at present.'],
  previous_response_not_found: [
    400,
    'invalid_request_error',
    'Responses are not stored. Send the whole conversation as input, without previous_response_id.',
  ],
  context_length_exceeded: [
    400,
    'invalid_request_error',
    'The conversation is longer than the context of the model. Shorten it and try again.',
  ],
  content_filter: [400, 'invalid_request_error', 'The request was refused by the content filter.'],
  invalid_image: [400, 'invalid_request_error', 'An image of the request could not be read.'],
  summary_incomplete: [
    422,
    'invalid_request_error',
    'The model did not complete the summary of this conversation. Its output is charged. Shorten the conversation, or try again.',
  ],
  unsupported_media_type: [415, 'invalid_request_error', 'Send the body as Content-Type: application/json.'],
  payload_too_large: [413, 'invalid_request_error', 'The request body is too large.'],
  range_not_satisfiable: [416, 'invalid_request_error', 'The range lies outside the file.'],
  request_timeout: [408, 'invalid_request_error', 'The request body did not arrive in time.'],
  expectation_failed: [
    417,
    'invalid_request_error',
    'The value of the Expect header is not supported. Leave it out, or send 100-continue.',
  ],
  header_too_large: [431, 'invalid_request_error', 'The request headers are too large.'],
  idempotency_key_reused: [422, 'invalid_request_error', 'This Idempotency-Key was used with another request body.'],
  upgrade_required: [426, 'invalid_request_error', 'WebSocket is not offered here. Use HTTPS with stream: true.'],
  invalid_signature: [403, 'permission_error', 'The signature of this link is not valid.'],
  result_expired: [410, 'invalid_request_error', 'This result is no longer kept.'],
  upload_limit: [
    429,
    'rate_limit_exceeded',
    'The limit of stored uploads is reached. Delete uploads by their ids, or wait until one expires.',
  ],
  queue_full: [429, 'rate_limit_exceeded', 'The queue of the plan is full. Try again when some of its tasks have ended.'],
  rate_limited: [429, 'rate_limit_exceeded', 'Too many requests. Slow down and try again.'],
  window_reserved: [429, 'rate_limit_exceeded', 'Requests in flight have reserved the rest of the token window. Try again in a moment.'],
  concurrency_limit: [429, 'rate_limit_exceeded', 'The plan has reached its limit of requests in flight. Try again when one has ended.'],
  session_limit_reached: [429, 'usage_limit_reached', 'The session token window is used up.'],
  weekly_limit_reached: [429, 'usage_limit_reached', 'The weekly token window is used up.'],
  key_limit_reached: [429, 'usage_limit_reached', 'The share of this API key in the weekly token window is used up.'],
  server_overloaded: [503, 'server_error', 'The service is overloaded. Try again in a moment.'],
  unavailable: [503, 'server_error', 'The service is not available at the moment. Nothing was accepted or charged. Try again in a moment.'],
  bad_gateway: [502, 'server_error', 'The service at this address failed. Nothing was charged.'],
  gateway_timeout: [504, 'server_error', 'The service at this address did not answer in time. Nothing was charged.'],
  internal: [500, 'server_error', 'Something went wrong on our side.'],
} as const satisfies Record<string, readonly [status: number, type: string, sentence: string]>

export type FailureCode = keyof typeof FAILURES

/** A code that no limit answers. */
export type FaultCode = Exclude<FailureCode, LimitCode>

/** One faulty member of a request: `path` is a JSON Pointer (RFC 6901) into the body. */
export type FieldError = { path: string; code: string; message: string }

/** `error.param` of a path of names and indices, in OpenAI's form: `messages[0].content`. Null for the whole body. */
export function paramOf(path: readonly (string | number)[]): string | null {
  const steps = path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`))
  return steps.join('').replace(/^\./, '').toWellFormed() || null
}

/** The steps of a JSON Pointer (RFC 6901); those of digits are taken for indices. */
export function stepsOf(pointer: string): (string | number)[] {
  const steps = pointer.split('/').slice(1)
  return steps.map((step) => (/^\d+$/.test(step) ? Number(step) : step.replaceAll('~1', '/').replaceAll('~0', '~')))
}

/** `error.param` of a JSON Pointer. */
export const paramOfPointer = (pointer: string): string | null => paramOf(stepsOf(pointer))

export type FailureFacts = {
  /** Replaces the sentence of the catalogue with a more specific, equally public one. */
  message?: string
  /** The parameter at fault, as OpenAI's `error.param`. */
  param?: string | null
  /** The faulty places, for `invalid_request`. */
  errors?: FieldError[]
  /** Members that stand beside `error` in the body, such as `required` and `available`. */
  beside?: Record<string, unknown>
  /** Members inside `error`, such as `resets_at`. */
  inside?: Record<string, unknown>
  headers?: Record<string, string>
  /** Whole seconds for `Retry-After`. */
  retryAfterSeconds?: number
  /** Which limit refused. */
  limit?: Limit
  /** The cause: logged, never sent to the client. */
  cause?: unknown
}

/** A failure for the client. Throw it anywhere below a request; `plugins/errors` writes the body. Those of a limit are made by `overLimit`. */
export class Failure extends Error {
  readonly code: FailureCode
  readonly status: number
  readonly type: string
  readonly facts: FailureFacts

  constructor(code: FaultCode, facts?: FailureFacts)
  constructor(code: FailureCode, facts: FailureFacts & { limit: Limit })
  constructor(code: FailureCode, facts: FailureFacts = {}) {
    const [status, type, sentence] = FAILURES[code]
    super(facts.message ?? sentence, facts.cause === undefined ? undefined : { cause: facts.cause })
    this.name = 'Failure'
    this.code = code
    this.status = status
    this.type = type
    this.facts = facts
  }
}

/** The failure of a request that a limit refuses. */
export function overLimit(limit: Limit, facts: FailureFacts = {}): Failure {
  return new Failure(LIMITS[limit][0], { ...facts, limit })
}

/** A backend is unavailable: its server is down, slow or refuses us. Answered as 503 `unavailable`; the cause is only logged. */
export class Unavailable extends Error {
  readonly backend: string
  /** What a client may know of it. */
  readonly limit: Limit

  constructor(backend: string, cause: unknown, limit: Limit = backend === 'store' || backend === 'files' ? backend : 'backend') {
    super(`the ${backend} is unavailable`, { cause })
    this.name = 'Unavailable'
    this.backend = backend
    this.limit = limit
  }
}

/**
 * A record has too many concurrent changes, or a format of a newer program, while its backend answers. For a client the same as
 * `Unavailable`; a caller with other records continues with them.
 */
export class Busy extends Unavailable {
  constructor(backend: string, cause: unknown) {
    super(backend, cause, 'store_record')
    this.message = `a record of the ${backend} is busy`
    this.name = 'Busy'
  }
}

/** A backend takes no writes until somebody mends it, such as a full disk: waiting does not help. For a client the same as `Unavailable`. */
export class Unwritable extends Unavailable {}

/** The cause of an `Unavailable` whose server refuses the request. Retrying does not help until somebody changes something there. */
export class Refused extends Error {}
