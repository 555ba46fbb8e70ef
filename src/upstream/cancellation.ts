/**
 * Cancels a call: an `AbortController` reduced to one listener at a time, which is all that a call needs at any stage, in an object that costs an ordinary request nothing more.
 */

export type Cancellation = {
  /** Why the call is cancelled; null unless it is. */
  reason: Error | null
  /** Called once, when the call is cancelled. */
  listener: ((reason: Error) => void) | null
}

export function openCancellation(): Cancellation {
  return { reason: null, listener: null }
}

/** Cancels the call, unless that was done before. */
export function cancel(cancellation: Cancellation, reason: Error): void {
  if (cancellation.reason) return
  cancellation.reason = reason
  cancellation.listener?.(reason)
}
