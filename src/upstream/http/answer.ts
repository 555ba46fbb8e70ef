/** What an upstream answers: text for the client as it comes, or an error of the upstream. */
import type { Failure } from '../../domain/errors.ts'

/** Where the text of an answer goes. It may abort in any call. */
export type AnswerSink = {
  /** Bytes, as text read as latin1. */
  bytes(text: string): void
  /** Called last and once: with null after the wire's terminal event. */
  ended(failure: Failure | null): void
}

/** Where it comes from. */
export type AnswerSource = {
  pause(): void
  resume(): void
  /** Closes the connection to the upstream at once; the sink is not called any more. */
  abort(): void
}

/**
 * How the request may be sent again. `at once`: a connection broke that had been idle, and the upstream knows nothing of it. `with reasoning`: the upstream
 * refused it for a turn that came back without its reasoning. `never`: the upstream has all of it, and may still be at work.
 */
export type Again = 'at once' | 'with reasoning' | 'as an attempt' | 'never'

/** The upstream failed to answer, or answered something that is not the wire. `status` is 0 when there was no response. */
export class AttemptError extends Error {
  readonly status: number
  readonly retryAfterMs: number | null
  readonly again: Again

  constructor(message: string, status: number, cause?: unknown, retryAfterMs: number | null = null, again: Again = 'as an attempt') {
    super(message, { cause })
    this.name = 'AttemptError'
    this.status = status
    this.retryAfterMs = retryAfterMs
    this.again = again
  }
}
