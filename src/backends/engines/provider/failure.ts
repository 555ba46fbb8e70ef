/** From an answer of a provider to the failure of a task. The words of the provider go into the cause, which only the operator's log has; never the key. */
import type { TaskErrorCode } from '../../../domain/task.ts'
import { notMade, type NotMade } from '../engine.ts'
import type { Answer } from './api-requests.ts'

/** Why a run at a provider failed, for the operator. */
export class ProviderError extends Error {
  override readonly name = 'ProviderError'
}

/**
 * An error of a provider, classified. `refused`: because of the content, so another attempt is refused as well. `exhausted`: the operator's
 * account has no credit left. A task error code: the input is at fault.
 */
export type Complaint = {
  text: string
  fault: 'refused' | 'exhausted' | Extract<TaskErrorCode, 'unsupported_input' | 'input_too_large'> | null
}

/** The words of a provider are cut here. */
const TEXT_CHARACTERS = 300

/**
 * The failure that an answer means. What may pass by itself is retryable: no connection, 408, 409, 425, 429, 5xx. What only the operator
 * can mend (401, 402, 403, 404, no credit, a request that is not understood) is not: further attempts would fail alike and keep the
 * tenant's money held meanwhile. A 429 or 503 with `Retry-After` carries its time: nothing was begun, and the task waits that long.
 */
export function failureOf(what: string, answer: Answer, complaintOf: (body: unknown) => Complaint): NotMade {
  if (answer.outcome === 'failed') {
    const cause = new ProviderError(`${what} failed: ${answer.reason}`, { cause: answer.cause })
    if (answer.reason === 'timeout') return notMade('provider_timeout', true, cause)
    return notMade('provider_error', answer.reason === 'network', cause)
  }
  const { status, body } = answer
  const { text, fault } = complaintOf(body)
  // With 401 and 403 some providers quote a part of the key.
  const words = status === 401 || status === 403 ? '' : text.slice(0, TEXT_CHARACTERS)
  const cause = new ProviderError(`${what} was answered with ${status}${words && `: ${words}`}`)
  if (fault === 'refused') return notMade('provider_rejected', false, cause)
  if (fault === 'exhausted') return notMade('provider_error', false, cause)
  if (fault !== null) return notMade(fault, false, cause)
  if (status === 408 || status === 504) return notMade('provider_timeout', true, cause)
  const failure = notMade('provider_error', (status >= 200 && status < 300) || [409, 425, 429].includes(status) || status >= 500, cause)
  const isBusy = answer.retryAfterMs !== null && (status === 429 || status === 503)
  return isBusy ? { ...failure, retryAfterMs: answer.retryAfterMs ?? 0 } : failure
}

/** A failure that is found in what a provider gave, or before it was called. */
export function faulty(text: string, retryable: boolean): NotMade {
  return notMade('provider_error', retryable, new ProviderError(text))
}

/** Whether an answer is a 2xx with a JSON object. */
export function isGood(answer: Answer): answer is Extract<Answer, { outcome: 'answered' }> & { body: Record<string, unknown> } {
  return (
    answer.outcome === 'answered' &&
    answer.status >= 200 &&
    answer.status < 300 &&
    typeof answer.body === 'object' &&
    answer.body !== null &&
    !Array.isArray(answer.body)
  )
}
