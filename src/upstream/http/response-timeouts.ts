/** First-byte and idle timeouts of an upstream's response. Time in which we have paused reading does not count. */
import { openDeadline } from './deadlines.ts'

/** Milliseconds: until the first byte of the body, and between any two reads. */
export type ResponseTimeouts = { firstByteMs: number; idleMs: number }

/** An upstream exceeded one of its timeouts. */
class UpstreamTimeout extends Error {}

export type ResponseTimer = {
  /** Bytes of the body arrived. */
  received(): void
  pause(): void
  resume(): void
  stop(): void
}

/** Starts with the first-byte timeout. Calls `expired` with the reason. */
export function openResponseTimer({ firstByteMs, idleMs }: ResponseTimeouts, expired: (reason: UpstreamTimeout) => void): ResponseTimer {
  let started = false
  let paused = false
  const deadline = openDeadline(() =>
    expired(new UpstreamTimeout(started ? `idle timeout after ${idleMs} ms` : `first-byte timeout after ${firstByteMs} ms`)),
  )
  const restart = () => deadline.move(started ? idleMs : firstByteMs)
  restart()

  return {
    received(): void {
      started = true
      if (!paused) restart()
    },
    pause(): void {
      paused = true
      deadline.clear()
    },
    resume(): void {
      if (paused) restart()
      paused = false
    },
    stop: deadline.clear,
  }
}
