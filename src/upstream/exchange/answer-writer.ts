/** What writes an answer to the client, as JSON or as a stream of events. Nothing is written before the admission is stored. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { Failure } from '../../domain/errors.ts'

/** The client's side of an exchange. */
export type Client = {
  raw: ServerResponse
  /** The headers that hooks have set; from now on the exchange alone writes the answer. Called once. */
  takeOver(): OutgoingHttpHeaders
  /** Answers with an error instead. Not after `takeOver`. */
  refuse(error: Error): void
  /** A stream ends with a failure event, under the status of a success. */
  failed(failure: Failure): void
  /** The upstream has the whole request: its memory is not needed any more. */
  release(): void
  /** The exchange is over, perhaps after the client has left. */
  ended(): void
}

export type AnswerWriter = {
  /** Whether the answer has begun: a later failure must be an event of it. */
  hasBegun(): boolean
  /** The admission is stored: what was written so far is sent. */
  stored(): void
  write(bytes: string): void
  /** Writes the last bytes and ends the answer. `isEstimated`: they carry a usage that is our estimate. */
  end(bytes: string, isEstimated: boolean): void
  /** Stops all timers and ignores later writes: the client has left, or gets an HTTP error. */
  close(): void
}

export type WriterOptions = {
  /** How long a client may leave a full buffer unread before it is disconnected. */
  stalledMs: number
  /** The header, or trailer field of a stream, that marks an answer whose `usage` is our estimate: `x-svc-usage: estimated`. */
  usageHeader: string
  /** Silence on a stream before it gets a keep-alive comment. */
  keepAliveMs: number
}
