/** Errors of Anthropic's Messages wire: which requests are of it, and the type and status of every failure on it. */
import type { Failure } from '../domain/errors.ts'

/** Whether the answers of a route have the form of the Messages wire: all, or those to requests with a header of the wire. */
export type MessagesForm = 'always' | 'by version'

/** Whether a request gets answers of the Messages wire, and may send its key as `x-api-key`. */
export function speaksMessages(form: MessagesForm | undefined, headers: Record<string, unknown>): boolean {
  return form === 'always' || (form === 'by version' && headers['anthropic-version'] !== undefined)
}

/** By our status. The wire's own status for overload is 529, which its clients retry with patience. */
const TYPES: Record<number, readonly [status: number, type: string]> = {
  401: [401, 'authentication_error'],
  402: [402, 'billing_error'],
  403: [403, 'permission_error'],
  404: [404, 'not_found_error'],
  408: [408, 'timeout_error'],
  413: [413, 'request_too_large'],
  429: [429, 'rate_limit_error'],
  503: [529, 'overloaded_error'],
  504: [504, 'timeout_error'],
}

/** The HTTP status of a failure on this wire. */
export function messageErrorStatus({ status }: Failure): number {
  return TYPES[status]?.[0] ?? status
}

/** The body of a failure: `{type: error, error: {type, message}, request_id}`. */
export function messageErrorBody(failure: Failure, requestId: string | null = null): Record<string, unknown> {
  const type = TYPES[failure.status]?.[1] ?? (failure.status < 500 ? 'invalid_request_error' : 'api_error')
  return { type: 'error', error: { type, message: sentenceOf(failure) }, request_id: requestId }
}

/** Clients of this wire compact a conversation when they read these words. */
function sentenceOf({ code, message }: Failure): string {
  return code === 'context_length_exceeded' ? `prompt is too long: ${message}` : message
}

/** Whether its SDKs may send the request again: `x-should-retry`. */
export function mayRetry({ status, type }: Failure): boolean {
  return status >= 500 || (status === 429 && type !== 'usage_limit_reached')
}
