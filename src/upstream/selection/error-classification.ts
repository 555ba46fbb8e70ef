/**
 * An upstream's error, judged: either the request is at fault, which the client is told in our words, or the upstream is, which is ours to
 * mend.
 */
import { Failure, type FailureCode } from '../../domain/errors.ts'
import { isMembers, type Members } from '../wires/member-allowlist.ts'

/** Codes and types of errors about a request, by what we call them. */
const KNOWN: Record<string, FailureCode> = {
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

/** Some servers say this in words only. */
const TOO_LONG = /maximum context length|context[ _](?:length|window|size)|(?:prompt|input) is too long|too many (?:input )?tokens/i
/**
 * A refused key is our trouble even where it comes as a 400. Only the beginning counts: further on, a message may quote what the client
 * wrote.
 */
const OUR_KEY = /^\W*(?:incorrect |invalid |missing |expired |no )?api[ _-]?key\b/i

/** Members of a request that a client may be pointed to. Only these words pass. */
const PARAMS = new Set(
  `messages input tools tool_choice tool_calls tool_call_id functions function_call function name parameters description strict
  content role type text refusal image_url url detail input_audio data format file file_id filename file_data audio voice modalities
  prediction response_format json_schema schema temperature top_p n stop stream stream_options include_usage max_tokens
  max_completion_tokens max_output_tokens max_tool_calls presence_penalty frequency_penalty logit_bias logprobs top_logprobs seed
  user store metadata parallel_tool_calls reasoning reasoning_effort effort summary verbosity service_tier instructions include
  truncation prompt_cache_key safety_identifier call_id output arguments id encrypted_content web_search_options`.split(/\s+/),
)

/**
 * Judges an answer that is not a 200. Returns the failure for the client when the request is at fault, or null when the upstream is: it is
 * away, busy, or does not take our key, our model or our path.
 */
export function judge(status: number, body: string): Failure | null {
  if (status === 413) return new Failure('payload_too_large')
  if (status !== 400 && status !== 422) return null
  const error = errorIn(parsed(body)) ?? {}
  const named = judgeError(error)
  if (named) return named
  const message = wordsOf(error) || body
  const param = paramOf(error['param'])
  if (error['code'] === 'invalid_api_key' || OUR_KEY.test(message) || param === null) return null
  if (TOO_LONG.test(message)) return new Failure('context_length_exceeded')
  return new Failure('invalid_request', {
    message: param === undefined ? 'The model does not accept this request.' : `The model does not accept this request: see ${param}.`,
    ...(param === undefined ? {} : { param }),
  })
}

/** Judges an error that came inside of a stream or a 200: only what is known to be about the request is. */
export function judgeError(error: unknown): Failure | null {
  if (!isMembers(error)) return null
  for (const name of [error['code'], error['type']]) {
    if (typeof name === 'string' && Object.hasOwn(KNOWN, name) && KNOWN[name]) return new Failure(KNOWN[name])
  }
  return null
}

/** The error object in the shapes that are in use: `{error: {…}}`, `[{error: {…}}]`, or the members at the top. */
function errorIn(body: unknown): Members | null {
  const first = Array.isArray(body) ? (body[0] as unknown) : body
  if (!isMembers(first)) return null
  if (typeof first['error'] === 'string') return { message: first['error'] }
  return isMembers(first['error']) ? first['error'] : first
}

function wordsOf(error: Members): string {
  return typeof error['message'] === 'string' ? error['message'] : ''
}

/** The path if every word of it is a request's own; undefined if there is none to show; null if it is about what we set ourselves. */
function paramOf(param: unknown): string | undefined | null {
  if (typeof param !== 'string') return undefined
  if (param === 'model') return null
  const words = param.split(/[.[\]]+/).filter((word) => word !== '')
  return param.length <= 100 && words.length > 0 && words.every((word) => PARAMS.has(word) || /^\d{1,5}$/.test(word)) ? param : undefined
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body) as unknown
  } catch {
    return null
  }
}
