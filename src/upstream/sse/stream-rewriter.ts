/**
 * What the streams of both wires share: events in, whole events out, and one of three phases. Whatever goes wrong on the way breaks the
 * stream, never the process.
 */
import { Failure } from '../../domain/errors.ts'
import { openSse } from './sse-parser.ts'
import { BadAnswer, type Phase, type StreamRebuilder } from '../wires/wire.ts'

/** Where an event's handler puts what it makes. */
export type Out = {
  /** Bytes, as text read as latin1. */
  write(bytes: string): void
  /** The wire's terminal event was written. */
  done(): void
  broke(failure: Failure): void
}

/** `take` gets each event until the stream is done or broken; what it throws breaks the stream. */
export function openRebuilder(take: (data: string, name: string, out: Out) => void): Pick<StreamRebuilder, 'push' | 'end' | 'phase'> {
  let phase: Phase = { name: 'open' }
  let made = ''
  const out: Out = {
    write: (bytes) => (made += bytes),
    done: () => (phase = { name: 'done' }),
    broke: (failure) => (phase = { name: 'broken', failure }),
  }
  const sse = openSse((data, name) => {
    if (phase.name === 'open') take(data, name, out)
  })

  /** Runs what may throw, and gives the bytes that were made until then. */
  function run(step: () => void): string {
    made = ''
    try {
      if (phase.name === 'open') step()
    } catch (cause) {
      out.broke(overloaded('the stream is not the wire', cause))
    }
    return made
  }

  return {
    push: (chunk) => run(() => sse.push(chunk)),
    end: () =>
      run(() => {
        sse.end()
        if (phase.name === 'open') throw new BadAnswer('the stream ended without its last event')
      }),
    phase: () => phase,
  }
}

/** The failure of an upstream that has begun to answer. What happened is only for the log. */
export function overloaded(what: string, cause: unknown): Failure {
  return new Failure('server_overloaded', { retryAfterSeconds: 5, cause: new Error(what, { cause }) })
}
