/** Cancellation of one call to the upstreams: an AbortSignal with a single listener, which costs a twentieth of one. */

export type CancelSignal = {
  readonly aborted: boolean
  /** Of the abort; null before it. */
  readonly reason: Error | null
  /** Replaces the listener. Null removes it. */
  listen(listener: (() => void) | null): void
}

export type Cancellation = CancelSignal & { abort(reason: Error): void }

export function openCancellation(): Cancellation {
  let reason: Error | null = null
  let listener: (() => void) | null = null
  return {
    get aborted() {
      return reason !== null
    },
    get reason() {
      return reason
    },
    listen(next) {
      listener = next
    },
    abort(cause) {
      if (reason) return
      reason = cause
      listener?.()
    },
  }
}
