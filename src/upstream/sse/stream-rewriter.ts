/**
 * Rewrites an upstream's event stream: chunks in, whole events out, and a phase (open, done or broken). Any error breaks the stream, never
 * the process.
 */
import { overLimit, type Failure } from '../../domain/errors.ts'
import { openSseParser, textOf } from './sse-parser.ts'
import { isMembers, type Members } from '../wires/allowlist.ts'
import { BadAnswer, type Phase, type StreamRewriter } from '../wires/wire.ts'

/** How much more of a model's text is read for its usage after a stop sequence. */
const TEXT_AFTER_STOP = 64 * 1024

/** The model still writes. */
const WRITING: Phase = { name: 'open' }
const STOPPED: Phase = { name: 'open', answer: 'stopped' }

/** What the handler of an event may do. */
export type RewriterOutput = {
  /** Bytes, as text read as latin1. */
  write(bytes: string): void
  /** Whether the answer is complete but for its usage and terminal event. */
  answer(state: 'complete' | undefined): void
  /** The answer was stopped here, and the model, which does not know it, wrote so many more characters: it is read on for its usage. Such an answer cannot fail any more. */
  readOn(characters: number): void
  /** The wire's terminal event was written. `cutsOff`: the upstream has more, which is not needed. */
  done(cutsOff?: boolean): void
  fail(failure: Failure): void
}

/** Calls `onEvent` with each event until the stream is done or broken. An error that it throws breaks the stream. */
export function openStreamRewriter(
  onEvent: (data: string, name: string, output: RewriterOutput) => void,
): Pick<StreamRewriter, 'push' | 'end' | 'phase'> {
  let phase: Phase = WRITING
  let written = ''
  let afterStop = 0
  const output: RewriterOutput = {
    write: (bytes) => (written += bytes),
    answer(state) {
      if (phase.name === 'open' && phase.answer !== state) phase = state ? { name: 'open', answer: state } : WRITING
    },
    readOn(characters) {
      afterStop += characters
      if (afterStop > TEXT_AFTER_STOP) output.done(true)
      else phase = STOPPED
    },
    done: (cutsOff = false) => (phase = { name: 'done', cutsOff }),
    fail(failure) {
      if (phase.name === 'open' && phase.answer === 'stopped') output.done(true)
      else phase = { name: 'broken', failure }
    },
  }
  const parser = openSseParser((data, name) => {
    if (phase.name === 'open') onEvent(data, name, output)
  })

  /** Returns the bytes written by the step, also when it throws. */
  function run(step: () => void): string {
    written = ''
    try {
      if (phase.name === 'open') step()
    } catch (cause) {
      output.fail(overloaded('the stream is not the wire', cause))
    }
    return written
  }

  return {
    push: (chunk) => run(() => parser.push(chunk)),
    end: () =>
      run(() => {
        parser.end()
        if (phase.name === 'open') throw new BadAnswer('the stream ended without its terminal event')
      }),
    phase: () => phase,
  }
}

/** The event in the data of one. Throws `BadAnswer` for one that is no object, a SyntaxError for what is no JSON. */
export function eventIn(data: string): Members {
  const event: unknown = JSON.parse(textOf(data))
  if (!isMembers(event)) throw new BadAnswer('an event is not an object')
  return event
}

/** The failure of an answer that has begun. `message` and `cause` are for the log only. */
export function overloaded(message: string, cause: unknown): Failure {
  return overLimit('upstreams', { retryAfterSeconds: 5, cause: new Error(message, { cause }) })
}
