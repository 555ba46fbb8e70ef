/** One attempt at one upstream: an HTTP request and its response. Until the answer begins it can be retried; afterwards it cannot. */
import { overloaded } from '../sse/stream-rewriter.ts'
import type { StreamRewriter, UpstreamCall } from '../wires/wire.ts'
import { AttemptError, type Again, type AnswerSink, type AnswerSource } from './answer.ts'
import type { Connection, ResponseHandler } from './connection.ts'
import type { Connections } from './connection-pool.ts'
import { openDeadline } from '../../http/deadlines.ts'
import type { ResponseHead } from './response-head.ts'
import { readerFor, type ErrorReader } from './response-reader.ts'
import type { Upstream } from './upstream.ts'

/** How an attempt turned out; one of both is called, once. */
export type AttemptOutcome = {
  /** The answer has begun: it has something for the client, or is complete. Its text follows to the sink. */
  answered(answer: StreamRewriter): void
  /** With a `Failure` when the request is at fault, with an `AttemptError` when the upstream is. The connection is closed. */
  failed(error: Error): void
}

/** An upstream exceeded one of its timeouts. */
class UpstreamTimeout extends Error {}

/** Time for an upstream to end the body after its terminal event, so that its connection can be reused. */
const BODY_END_MS = 1000

const NOBODY: AnswerSink & AttemptOutcome = { bytes() {}, ended() {}, answered() {}, failed() {} }

/** A class, because it lives as long as its answer: what it needs no longer is a field that is cleared, where a closure would keep it. */
export class Attempt implements ResponseHandler, AnswerSource {
  readonly #upstream: Upstream
  #sink: AnswerSink
  #outcome: AttemptOutcome
  /** Null once the response has begun: it holds the whole request. */
  #call: UpstreamCall | null
  readonly #deadline = openDeadline(() => this.#expired())
  readonly #isStream: boolean
  readonly #hasReasoning: boolean
  readonly #firstByteMs: number
  readonly #idleMs: number
  /** Null once the response has ended: then it is another request's. */
  #connection: Connection | null = null
  #reader: StreamRewriter | ErrorReader | null = null
  /** `told`: the sink knows the end, or has aborted. */
  #state: 'waiting' | 'answering' | 'told' = 'waiting'
  /** The response has ended, or is not read any more. */
  #isClosed = false
  #isPaused = false
  #hasBytes = false

  constructor(upstream: Upstream, call: UpstreamCall, hasReasoning: boolean, sink: AnswerSink, outcome: AttemptOutcome) {
    this.#upstream = upstream
    this.#call = call
    this.#sink = sink
    this.#outcome = outcome
    const { firstByteMs, idleMs } = upstream.settings.timeouts
    this.#isStream = call.stream
    this.#hasReasoning = hasReasoning
    // A JSON answer arrives whole: its first byte takes as long as all of it.
    this.#firstByteMs = call.stream ? firstByteMs : Math.max(firstByteMs, idleMs)
    this.#idleMs = idleMs
  }

  /** Sends the call with this body. Timeouts hold for the whole response; time in which it is paused does not count. */
  send(connections: Connections, body: string | Buffer[]): void {
    const { pool, head } = this.#upstream
    if (!this.#call) return
    this.#deadline.move(this.#firstByteMs)
    this.#connection = pool.send(head(this.#call), body, this, connections)
  }

  pause(): void {
    if (this.#isClosed) return
    this.#isPaused = true
    this.#deadline.clear()
    this.#connection?.pause()
  }

  resume(): void {
    if (this.#isClosed || !this.#isPaused) return
    this.#isPaused = false
    this.#deadline.move(this.#state === 'told' ? BODY_END_MS : this.#hasBytes ? this.#idleMs : this.#firstByteMs)
    this.#connection?.resume()
  }

  abort(): void {
    this.#release()
    this.#close(new Error('the answer is not needed any more'))
  }

  responseBegun(head: ResponseHead): void {
    const call = this.#call
    if (this.#isClosed || !call) return
    this.#call = null
    try {
      this.#reader = readerFor(head, call, this.#upstream, this.#hasReasoning)
    } catch (error) {
      this.#fail(error as Error)
    }
  }

  responseData(bytes: Buffer): void {
    if (this.#isClosed || this.#state === 'told' || !this.#reader) return
    this.#hasBytes = true
    if (!this.#isPaused) this.#deadline.move(this.#idleMs)
    const read = this.#reader.push(bytes)
    if (typeof read === 'string') this.#deliver(this.#reader as StreamRewriter, read)
    else if (!read) this.#fail((this.#reader as ErrorReader).end())
  }

  responseEnded(): void {
    if (this.#isClosed) return
    this.#over()
    if (this.#state === 'told' || !this.#reader) return
    const read = this.#reader.end()
    if (typeof read === 'string') this.#deliver(this.#reader as StreamRewriter, read)
    else this.#fail(read)
  }

  responseFailed(error: Error, onIdleConnection: boolean): void {
    if (this.#isClosed) return
    this.#over()
    this.#break(error, onIdleConnection ? 'at once' : 'as an attempt')
  }

  #deliver(answer: StreamRewriter, text: string): void {
    const phase = answer.phase()
    if (this.#state === 'waiting') {
      if (phase.name === 'broken' && !phase.isAnswer) {
        const { failure } = phase
        return this.#fail(failure.status < 500 ? failure : new AttemptError('the answer broke before it began', 200, failure.facts.cause))
      }
      if (text === '' && phase.name === 'open') return
      this.#state = 'answering'
      const outcome = this.#outcome
      // It knows the whole request.
      this.#outcome = NOBODY
      outcome.answered(answer)
    }
    if (text !== '') this.#sink.bytes(text)
    if (phase.name === 'open' || this.#isTold()) return
    const sink = this.#sink
    this.#release()
    sink.ended(phase.name === 'broken' ? phase.failure : null)
    if (phase.name === 'done' && phase.cutsOff) this.#close(new Error('the answer is complete'))
    // Nobody resumes it after its end.
    else if (this.#isPaused) this.resume()
    else if (!this.#isClosed) this.#deadline.move(BODY_END_MS)
  }

  /** A method, because the sink may have aborted meanwhile. */
  #isTold(): boolean {
    return this.#state === 'told'
  }

  #expired(): void {
    if (this.#state === 'told') return this.#close(new Error('the answer is complete'))
    const reason = new UpstreamTimeout(
      this.#hasBytes ? `idle timeout after ${this.#idleMs} ms` : `first-byte timeout after ${this.#firstByteMs} ms`,
    )
    const isAtWork = !this.#isStream && this.#connection?.isSent()
    this.#close(reason)
    this.#break(reason, isAtWork ? 'never' : 'as an attempt')
  }

  /** The connection broke. */
  #break(error: Error, again: Again): void {
    if (this.#state === 'waiting')
      this.#fail(
        this.#reader
          ? new AttemptError('response cut off', 200, error, null, again)
          : new AttemptError('no response', 0, error, null, again),
      )
    else if (this.#state === 'answering') {
      const sink = this.#sink
      this.#release()
      sink.ended(overloaded('stream cut off', error))
    }
  }

  #fail(error: Error): void {
    const outcome = this.#outcome
    this.#release()
    this.#close(error)
    outcome.failed(error)
  }

  #close(reason: Error): void {
    if (this.#isClosed) return
    const connection = this.#connection
    this.#over()
    connection?.destroy(reason)
  }

  #over(): void {
    this.#isClosed = true
    this.#connection = null
    this.#deadline.clear()
  }

  /** What holds the attempt longer than its answer lasts does not hold these. */
  #release(): void {
    this.#state = 'told'
    this.#sink = this.#outcome = NOBODY
    this.#reader = null
  }
}
