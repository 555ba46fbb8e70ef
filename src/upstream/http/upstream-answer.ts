/** What one attempt at an upstream yields: a JSON answer, a stream, or an error of the upstream. */
import type { Failure } from '../../domain/errors.ts'
import { isErrorOfIdleConnection } from './connection-pool.ts'
import type { JsonAnswer, StreamRewriter } from '../wires/wire.ts'

/** An answer that has begun. */
export type UpstreamAnswer = { kind: 'json'; answer: JsonAnswer } | AnswerStream

export type AnswerStream = {
  kind: 'stream'
  stream: StreamRewriter
  /**
   * Starts delivery to the sink; called once. `ended` is called last and once, with null after the wire's terminal event. After `abort`
   * the sink is not called any more.
   */
  pipeTo(sink: AnswerSink): void
  pause(): void
  resume(): void
  /** Closes the connection to the upstream at once. */
  abort(): void
}

/** `bytes` is text read as latin1. */
export type AnswerSink = { bytes(text: string): void; ended(failure: Failure | null): void }

/** The upstream failed to answer, or answered something that is not the wire. `status` is 0 when there was no response. */
export class AttemptError extends Error {
  readonly status: number
  readonly retryAfterMs: number | null
  /** There was no response because a connection failed that had been idle. */
  readonly onIdleConnection: boolean

  constructor(message: string, status: number, cause?: unknown, retryAfterMs: number | null = null) {
    super(message, { cause })
    this.name = 'AttemptError'
    this.status = status
    this.retryAfterMs = retryAfterMs
    this.onIdleConnection = status === 0 && isErrorOfIdleConnection(cause)
  }
}
