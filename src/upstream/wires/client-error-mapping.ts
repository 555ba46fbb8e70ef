/**
 * Which upstream errors (400, 413, 422, errors inside a stream) are the client's fault, and the code and sentence that the client gets. All
 * other errors are the upstream's: see `selection/retry-and-failover.ts`.
 */
import { Failure, type FaultCode } from '../../domain/errors.ts'
import { DOCUMENTED_MEMBERS } from '../policy/documented-members.ts'
import { isMembers, ownText, parsedJson, type Members } from './allowlist.ts'
import type { UpstreamCall } from './wire.ts'

/** Codes and types of upstream errors about a request → our code. */
const CLIENT_ERROR_CODES: Record<string, FaultCode> = {
  context_length_exceeded: 'context_length_exceeded',
  exceed_context_size_error: 'context_length_exceeded',
  string_above_max_length: 'context_length_exceeded',
  content_filter: 'content_filter',
  content_policy_violation: 'content_filter',
  moderation_blocked: 'content_filter',
  responsible_ai_policy_violation: 'content_filter',
  invalid_prompt: 'content_filter',
  invalid_image: 'invalid_image',
  invalid_image_format: 'invalid_image',
  invalid_image_url: 'invalid_image',
  invalid_base64_image: 'invalid_image',
  image_parse_error: 'invalid_image',
  image_too_large: 'invalid_image',
  image_too_small: 'invalid_image',
  unsupported_image_media_type: 'invalid_image',
  failed_to_download_image: 'invalid_image',
}

/** For servers that send no code for it: vLLM and SGLang, llama.cpp, Anthropic, Gemini, xAI, Kimi, Qwen, GLM, TGI. */
const CONTEXT_TOO_LONG =
  /context (?:length|window|size|limit)|(?:prompt|input) is too long|too many (?:input )?tokens|maximum prompt length|token count\W.{0,40}exceeds|exceeded model token limit|range of input length|prompt exceeds max|tokens \+ `?max_new_tokens/i
/** Of a message. The rest may quote the client's text and schemas. */
const OWN_WORDS = 300
/** A refused API key, and an account without money or rights, are the operator's fault, also with status 400. Only the beginning of the message counts. */
const OPERATOR_FAULT =
  /^\W*(?:(?:incorrect |invalid |missing |expired |no )?api[ _-]?key\b|your (?:credit balance|account)\b|you have reached your specified api usage|this organization has been disabled|user location is not supported|(?:access denied.{0,40}|insufficient )(?:account|balance|credit|quota|funds))/i
const OPERATOR_CODES = new Set([
  'invalid_api_key',
  'Arrearage',
  'insufficient_quota',
  'billing_not_active',
  'billing_error',
  'account_deactivated',
])

/** Names of request members that may appear in `param`; an upstream's other words do not pass. */
const KNOWN_PARAMS = new Set(
  `messages input tools tool_choice tool_calls tool_call_id functions function_call function name parameters description strict
  content role type text refusal image_url url detail input_audio data format file file_id filename file_data audio voice modalities
  prediction response_format json_schema schema temperature top_p n stop stream stream_options include_usage max_tokens
  max_completion_tokens max_output_tokens max_tool_calls presence_penalty frequency_penalty logit_bias logprobs top_logprobs seed
  user store metadata parallel_tool_calls reasoning reasoning_effort effort summary verbosity service_tier instructions include
  truncation prompt_cache_key safety_identifier call_id output arguments id encrypted_content web_search_options`.split(/\s+/),
)

/** Of servers of thinking models: Kimi, DeepSeek, and others that run theirs. */
const NEEDS_REASONING = /(?=.*reasoning_content)(?=.*(?:missing|must|required|passed back))/is
const REFUSES_REASONING = /unsupported|not supported|unrecognized|unknown|unexpected|extra|not permitted|not allowed|must not/i

/**
 * Maps a response other than 200 to a call. `hasReasoning`: each turn was sent with its reasoning. Returns the failure for the client when the request is at
 * fault, `needs reasoning` when a chat was refused for a turn without its `reasoning_content`, or null when the upstream is at fault: it is unavailable,
 * overloaded, or refuses our key, model or path.
 */
export function clientErrorOf(
  status: number,
  body: string,
  { wire, isTranslation }: Pick<UpstreamCall, 'wire' | 'isTranslation'>,
  hasReasoning: boolean,
): Failure | 'needs reasoning' | null {
  if (status !== 400 && status !== 413 && status !== 422) return null
  const error = errorIn(parsedJson(body)) ?? {}
  const message = (ownText(error, 'message') || body).slice(0, OWN_WORDS)
  const isOfChat = wire === 'chat' && status !== 413 && !hasReasoning
  if (isOfChat && NEEDS_REASONING.test(message) && !REFUSES_REASONING.test(message)) return 'needs reasoning'
  const failure = status === 413 ? new Failure('payload_too_large') : refusalOf(error, message, isTranslation)
  return failure && Object.assign(failure, { cause: new Error(`status ${status}${namesIn(error)}`) })
}

/** What tells the upstream's error and cannot quote the request: its code and type. For the log. */
function namesIn({ code, type }: Members): string {
  const named = (value: unknown) => /^[\w.-]{1,64}$/.test(String(value ?? ''))
  return `${named(code) ? `, code ${String(code)}` : ''}${named(type) ? `, type ${String(type)}` : ''}`
}

function refusalOf(error: Members, message: string, isTranslation: boolean): Failure | null {
  const mapped = clientErrorIn(error)
  if (mapped) return mapped
  const param = paramOf(error['param'])
  const isOfOperator = [error['code'], error['type']].some((one) => OPERATOR_CODES.has(String(one))) || OPERATOR_FAULT.test(message)
  if (isOfOperator || param === null) return null
  if (CONTEXT_TOO_LONG.test(message)) return new Failure('context_length_exceeded')
  const isOfClient = param !== undefined && (!isTranslation || Object.values(DOCUMENTED_MEMBERS).every((members) => members.has(param)))
  return new Failure(
    'invalid_request',
    isOfClient
      ? { param, message: `The model does not accept this request: see ${param}.` }
      : { message: 'The model does not accept this request.' },
  )
}

/** Maps an error object, also of a stream or of a 200. Returns null unless its code or type is known to be about the request. */
export function clientErrorIn(error: unknown): Failure | null {
  if (!isMembers(error)) return null
  for (const name of [error['code'], error['type']]) {
    if (typeof name === 'string' && Object.hasOwn(CLIENT_ERROR_CODES, name) && CLIENT_ERROR_CODES[name])
      return new Failure(CLIENT_ERROR_CODES[name])
  }
  return null
}

/** The error object in the shapes that servers use: `{error: {…}}`, `[{error: {…}}]`, or its members at the top level. */
function errorIn(body: unknown): Members | null {
  const first = Array.isArray(body) ? (body[0] as unknown) : body
  if (!isMembers(first)) return null
  if (typeof first['error'] === 'string') return { message: first['error'] }
  return isMembers(first['error']) ? first['error'] : first
}

/** The path if every word of it is a known member; undefined if not; null if it names a member that we set ourselves. */
function paramOf(param: unknown): string | undefined | null {
  if (typeof param !== 'string') return undefined
  if (param === 'model') return null
  const words = param.split(/[.[\]]+/).filter((word) => word !== '')
  return param.length <= 100 && words.length > 0 && words.every((word) => KNOWN_PARAMS.has(word) || /^\d{1,5}$/.test(word))
    ? param
    : undefined
}
