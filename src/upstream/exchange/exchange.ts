/**
 * One coding request, from its admission to its settlement: `admitted → sent → answering → ended`. Before these, `read-request.ts` reads it and metering
 * admits it; after them, metering settles it. Each step is a method, called by what it waits for: the upstream, the store, the client or a timer.
 * A JSON answer and a stream differ in their writer and in what may follow a beginning alone.
 */
import type { Write } from '../../backends/store/queued-command.ts'
import { hasClosed } from '../../http/disconnect.ts'
import { Failure, overLimit } from '../../domain/errors.ts'
import { chargeOf, type Usage } from '../../domain/token-windows.ts'
import type { AnswerSource } from '../http/answer.ts'
import type { CallSink, UpstreamLog } from '../selection/retry-and-failover.ts'
import type { Upstreams } from '../upstreams.ts'
import type { OpenReservation, Settlement } from '../usage/reservation.ts'
import type { Ids } from '../wires/encrypted-ids.ts'
import type { CodingRequest, StreamRewriter, UpstreamCall, WireName } from '../wires/wire.ts'
import type { AnswerWriter, Client, WriterOptions } from './answer-writer.ts'
import { chargeOfPrompt, cutOffSettlement, estimateOf, settlementOf, type Charge } from './charge.ts'
import { EventWriter } from './event-writer.ts'
import { JsonWriter } from './json-writer.ts'

/** What all exchanges share. */
export type ExchangeOptions = WriterOptions & {
  upstreams: Pick<Upstreams, 'send' | 'wiresFor'>
  /** Epoch milliseconds. */
  clock: () => number
  metrics: ExchangeMetrics
  /** How long an upstream is read on, in milliseconds: after the client left a plan with `Drain`, and for the usage of an answer that is complete. */
  drainMs: number
  usageMs: number
}

export type ExchangeMetrics = {
  /** From the request to the first attempt at an upstream. */
  overhead(wire: WireName, ms: number): void
  firstToken(wire: WireName, ms: number): void
  /** `tokens` of output arrived within `ms` of the first one. */
  interToken(wire: WireName, tokens: number, ms: number): void
  /** The estimates of an answer whose upstream reported its usage. */
  estimated(estimate: Usage, reported: Usage): void
  /** The client left before the end of a stream. `estimate`: of what was seen. */
  leftEarly(settlement: Settlement, estimate: Usage): void
}

/** An admitted request. `startedMs`: of `performance.now()`. */
export type AdmittedRequest = {
  wire: WireName
  stream: boolean
  promptBytes: number
  ids: Ids
  reservation: OpenReservation
  client: Client
  startedMs: number
  requestId: string
  log: UpstreamLog
}

/** What a stream may bring after its answer was complete and the client left. */
const USAGE_BYTES = 64 * 1024

/** The reservation is told of so many further tokens of output, and not of each event. */
const COVER_TOKENS = 64

export class Exchange implements CallSink, Write {
  readonly #options: ExchangeOptions
  readonly #request: AdmittedRequest
  readonly #charge: Charge
  readonly #settle: (settlement: Settlement | null) => void
  readonly #writer: AnswerWriter
  #firstByteAt = 0
  #state: 'admitted' | 'sent' | 'answering' | 'ended' = 'admitted'
  #isStored = false
  #hasLeft = false
  /** Until the answer begins: it holds the whole request. */
  #call: UpstreamCall | null = null
  #source: AnswerSource | null = null
  #answer: StreamRewriter | null = null
  #readingOn: NodeJS.Timeout | null = null
  #bytesLeft = Infinity
  /** Output tokens of which the reservation need not be told. */
  #coveredUntil = 0

  /** An exchange of an admitted request, which `send` begins. */
  constructor(request: AdmittedRequest, options: ExchangeOptions) {
    const { client, reservation, stream, wire } = request
    this.#request = request
    this.#options = options
    this.#charge = chargeOfPrompt(reservation.admitted, request.promptBytes)
    this.#writer = stream ? new EventWriter(client, this, options, wire === 'messages') : new JsonWriter(client, options)
    this.#settle = reservation.openSettlement()
  }

  /** admitted → sent: to the upstreams at once, while the admission is being stored. */
  send(request: CodingRequest): void {
    const { client, reservation, wire, ids, startedMs } = this.#request
    const { upstreams, clock, metrics } = this.#options
    if (hasClosed(client.raw)) return this.#over(null)
    client.raw.once('close', () => this.#closed())
    try {
      this.#call = request.call(reservation.admitted.maxOutputTokens, ids, () => Math.floor(clock() / 1000), upstreams.wiresFor(wire))
    } catch (error) {
      this.#over(null)
      return client.refuse(error as Error)
    }
    this.#state = 'sent'
    metrics.overhead(wire, performance.now() - startedMs)
    reservation.whenStored(this)
    this.#source = upstreams.send(this.#call, this, this.#request.log)
  }

  /** sent → answering: from here on there is no retry, and a failure of a stream is an event of it. */
  answered(answer: StreamRewriter): void {
    const { client, stream, wire, startedMs } = this.#request
    this.#state = 'answering'
    this.#call = null
    this.#answer = answer
    this.#firstByteAt = this.#options.clock()
    client.release()
    if (stream) this.#options.metrics.firstToken(wire, performance.now() - startedMs)
    if (!this.#isStored) this.pause()
  }

  /** answering: text of the answer. */
  bytes(text: string): void {
    const { meter, phase } = this.#answer as StreamRewriter
    const { reservation } = this.#request
    const output = meter.estimateTokens()
    if (output >= this.#coveredUntil) {
      this.#coveredUntil = output + COVER_TOKENS
      reservation.cover(chargeOf(estimateOf(this.#charge, output), reservation.admitted.weights), () => this.#gone())
    }
    this.#writer.write(text)
    if (this.#hasLeft && (this.#bytesLeft -= text.length) < 0) return this.#stop()
    const now = phase()
    if (now.name === 'open' && now.answer === 'stopped') this.#awaitUsage()
  }

  /** answering → ended. */
  ended(failure: Failure | null): void {
    const phase = (this.#answer as StreamRewriter).phase()
    // The client has the whole of an answer that was stopped here.
    if (phase.name === 'open' && phase.answer === 'stopped') return this.#stop()
    if (failure)
      this.#request.log.error(
        { event: 'upstream_stream_failed', err: failure.facts.cause ?? failure, code: failure.code },
        'upstream stream failed',
      )
    this.#end(failure, phase.name === 'done' && phase.cutsOff)
  }

  /** sent → ended: no upstream has answered. Nothing is charged. */
  failed(error: Error): void {
    const begun = this.#writer.hasBegun() ? this.#call : null
    this.#over(null)
    if (!begun) return this.#refuse(error)
    this.#break(begun.openRewriter(), error instanceof Failure ? error : new Failure('internal'))
  }

  pause(): void {
    this.#source?.pause()
  }

  resume(): void {
    this.#source?.resume()
  }

  /** The admission is stored: the answer may go out. */
  stored(): void {
    this.#isStored = true
    // First, because what the writer sends may fill the client's buffer, and pause again.
    this.resume()
    this.#writer.stored()
  }

  /** The admission could not be stored: no success is answered, and nothing charged. */
  lost(error: unknown): void {
    if (this.#state !== 'ended') {
      this.#source?.abort()
      this.#over(null)
    }
    this.#refuse(error as Error)
  }

  /** The client has left before the end of its answer: the upstream is stopped, or read on for the usage. */
  #closed(): void {
    if (this.#state === 'ended' || this.#request.client.raw.writableFinished) return
    this.#hasLeft = true
    this.#writer.close()
    this.resume()
    // What was waiting may have been its end.
    if (!this.#source) return
    const phase = this.#answer?.phase()
    if (phase?.name === 'open' && phase.answer) this.#awaitUsage()
    else if (this.#request.reservation.admitted.onAbort === 'Cancel') this.#stop()
    else this.#readingOn = setTimeout(() => this.#stop(), this.#options.drainMs)
  }

  /** The model has finished, or the client has all that it asked for: the upstream is read on, so that its usage is charged. */
  #awaitUsage(): void {
    if (this.#bytesLeft === Infinity) this.#bytesLeft = USAGE_BYTES
    this.#readingOn ??= setTimeout(() => this.#stop(), this.#options.usageMs)
  }

  /** The upstream is not needed any more. */
  #stop(): void {
    if (this.#state === 'ended') return
    this.#source?.abort()
    if (this.#answer) this.#end(null, true)
    else this.#over({ usage: estimateOf(this.#charge, 0), estimated: true })
  }

  /** The reservation was settled meanwhile, by a sweep. */
  #gone(): void {
    if (this.#state === 'ended') return
    this.#source?.abort()
    this.ended(overLimit('reservation', { cause: new Error('the reservation of the stream was settled meanwhile') }))
  }

  #end(failure: Failure | null, isCutOff: boolean): void {
    const answer = this.#answer as StreamRewriter
    this.#close()
    if (failure && this.#request.stream) this.#break(answer, failure)
    else if (failure) this.#refuse(failure)
    const phase = answer.phase()
    const hasAnswered = phase.name === 'broken' && phase.isAnswer
    const settlement = this.#settlementOf(answer, failure !== null && !hasAnswered, isCutOff)
    if (!(settlement instanceof Promise)) return this.#conclude(answer, settlement, isCutOff)
    settlement
      .then((counted) => this.#conclude(answer, counted, isCutOff))
      .catch(() => {
        // The output cannot be counted.
        this.#settle(null)
        if (this.#writer.hasBegun()) this.#break(answer, new Failure('internal'))
        else this.#refuse(new Failure('internal'))
      })
  }

  /** Nothing is charged for an answer that failed before any output. */
  #settlementOf({ usage, meter }: StreamRewriter, failed: boolean, isCutOff: boolean): Settlement | null | Promise<Settlement> {
    const reported = usage()
    if (isCutOff) return cutOffSettlement(this.#charge, reported, meter)
    const hasOutput = (reported?.output ?? 0) > 0 || meter.estimateTokens() > 0
    return failed && !hasOutput ? null : settlementOf(this.#charge, reported, meter)
  }

  #conclude(answer: StreamRewriter, settlement: Settlement | null, isCutOff: boolean): void {
    this.#settle(settlement)
    this.#writer.end(settlement ? answer.terminalEvents(settlement.usage) : '', settlement?.estimated ?? false)
    if (!settlement) return
    const { wire, stream } = this.#request
    const { metrics, clock } = this.#options
    const estimate = estimateOf(this.#charge, answer.meter.estimateTokens())
    if (!settlement.estimated) metrics.estimated(estimate, settlement.usage)
    if (!stream) return
    metrics.interToken(wire, settlement.usage.output, clock() - this.#firstByteAt)
    if (this.#hasLeft || isCutOff) metrics.leftEarly(settlement, estimate)
  }

  #break(answer: StreamRewriter, failure: Failure): void {
    this.#request.client.failed(failure)
    this.#writer.end(answer.fail(failure, this.#request.requestId), false)
  }

  #refuse(error: Error): void {
    this.#writer.close()
    if (!this.#hasLeft) this.#request.client.refuse(error)
  }

  #over(settlement: Settlement | null): void {
    this.#close()
    this.#settle(settlement)
  }

  #close(): void {
    this.#state = 'ended'
    this.#call = null
    this.#source = null
    if (this.#readingOn) clearTimeout(this.#readingOn)
    this.#request.client.ended()
  }
}
