/** First-byte and idle timeouts of an upstream's response. Time in which we have paused reading does not count. */

/** Milliseconds: until the first byte of the body, and between any two reads. */
export type ResponseTimeouts = { firstByteMs: number; idleMs: number }

/** An upstream exceeded one of its timeouts. */
export class UpstreamTimeout extends Error {}

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
  let timer = setTimeout(expire, firstByteMs)

  function expire(): void {
    expired(new UpstreamTimeout(started ? `idle timeout after ${idleMs} ms` : `first-byte timeout after ${firstByteMs} ms`))
  }

  function restart(): void {
    clearTimeout(timer)
    timer = setTimeout(expire, started ? idleMs : firstByteMs)
  }

  return {
    received(): void {
      const first = !started
      started = true
      if (paused) return
      if (first) restart()
      else timer.refresh()
    },
    pause(): void {
      paused = true
      clearTimeout(timer)
    },
    resume(): void {
      if (paused) restart()
      paused = false
    },
    stop: () => clearTimeout(timer),
  }
}
