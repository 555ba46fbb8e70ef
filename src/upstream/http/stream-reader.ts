/**
 * Reads a streamed response: up to its first event the attempt can still be rejected and retried, then the stream is paused until the client
 * is ready.
 */
import type { Failure } from '../../domain/errors.ts'
import { overloaded } from '../sse/stream-rewriter.ts'
import type { StreamRewriter } from '../wires/wire.ts'
import type { AttemptControl, ResponseReader } from './response-reader.ts'
import { AttemptError, type AnswerSink } from './upstream-answer.ts'

/** Time for an upstream to end the body after its terminal event, so that its connection can be reused. */
const BODY_END_MS = 1000

/** Reads a stream of events: the attempt resolves with the first rewritten event, and rejects when the stream fails before that. */
export function streamReader(stream: StreamRewriter, control: AttemptControl): ResponseReader {
  let sink: AnswerSink | null = null
  /** What arrived before the sink was connected. */
  let queued = ''
  let ending: { failure: Failure | null } | null = null
  let ended = false
  let resolved = false
  let bodyEnded = false
  let lingering: NodeJS.Timeout | null = null

  function end(failure: Failure | null): void {
    if (ended) return
    ended = true
    if (sink) sink.ended(failure)
    else ending = { failure }
  }

  function resolve(): void {
    resolved = true
    control.pause()
    control.resolve({
      kind: 'stream',
      stream,
      pipeTo(to) {
        control.resume()
        sink = to
        if (queued !== '') to.bytes(queued)
        queued = ''
        if (ending) to.ended(ending.failure)
      },
      pause: control.pause,
      resume: control.resume,
      abort() {
        ended = true
        queued = ''
        ending = null
        control.abort(new Error('the answer is not needed any more'))
      },
    })
  }

  function deliver(rewritten: string): void {
    const phase = stream.phase()
    if (!resolved && phase.name === 'broken')
      return control.reject(
        phase.failure.status < 500
          ? phase.failure
          : new AttemptError('stream broke before its first event', 200, phase.failure.facts.cause),
      )
    if (!resolved && rewritten === '') return
    if (!resolved) resolve()
    if (sink && rewritten !== '') sink.bytes(rewritten)
    else queued += rewritten
    if (phase.name === 'open') return
    end(phase.name === 'broken' ? phase.failure : null)
    if (bodyEnded) return
    const isCutOff = phase.name === 'done' && phase.cutsOff
    if (isCutOff) control.abort(new Error('the answer is complete'))
    else lingering = setTimeout(() => control.abort(new Error('the answer is complete')), BODY_END_MS).unref()
  }

  return {
    data(chunk) {
      if (!ended) deliver(stream.push(chunk))
    },
    ended(error) {
      bodyEnded = true
      if (lingering) clearTimeout(lingering)
      if (ended) return
      if (!error) return deliver(stream.end())
      if (resolved) end(overloaded('stream cut off', error))
      else control.reject(new AttemptError('stream cut off before its first event', 200, error))
    },
  }
}
