/** Log output: lines are written in batches by another thread, so that a reader that stopped reading stops no request. What it cannot take is bounded, and dropped by count. */
import { write as writeAsync, writeSync } from 'node:fs'
import type { Registry } from 'prom-client'
import { metersOf } from '../telemetry/metrics.ts'

export type LogOutput = {
  /** Takes a line; never waits. */
  write(line: string): void
  /** Resolves when every line was written (true), or after `patienceMs` (false). */
  flush(patienceMs: number): Promise<boolean>
  /** Writes what is buffered at once, for the end of a process; gives up where that would wait. */
  flushNow(): void
  /** Exports `tollgate_log_lines_dropped_total`. */
  register(registry: Registry): void
}

/** Characters that start a write; fewer are written after the delay. */
const BATCH = 16 * 1024
const DELAY_MS = 50
/** Characters that are buffered while the reader does not read. */
const MAX_BUFFERED = 4 * 1024 * 1024
/** Pauses before a full pipe is tried again. */
const RETRY_MS_MIN = 1
const RETRY_MS_MAX = 100

/** Writes to a file descriptor. `resumed` is called with their number when lines were dropped and the reader reads again. */
export function openLogOutput(fd: number, resumed: (dropped: number) => void): LogOutput {
  let lines: string[] = []
  let buffered = 0
  let writing: Buffer | null = null
  let timer: NodeJS.Timeout | null = null
  let isClosed = false
  let dropped = 0
  let reported = 0
  const idle: (() => void)[] = []

  function write(line: string): void {
    if (isClosed || buffered + line.length > MAX_BUFFERED) return void dropped++
    lines.push(line)
    buffered += line.length
    if (writing) return
    if (buffered >= BATCH) start()
    else timer ??= setTimeout(start, DELAY_MS)
  }

  /** Takes all buffered lines as one chunk. */
  function take(): Buffer {
    if (timer) clearTimeout(timer)
    timer = null
    const chunk = Buffer.from(lines.join(''))
    lines = []
    buffered = 0
    return chunk
  }

  function start(): void {
    if (writing) return
    if (lines.length === 0 && dropped > reported && !isClosed) report()
    if (lines.length > 0) send(take())
    else for (const resolve of idle.splice(0)) resolve()
  }

  function report(): void {
    const count = dropped - reported
    reported = dropped
    resumed(count)
  }

  function send(chunk: Buffer, retryMs = RETRY_MS_MIN): void {
    writing = chunk
    writeAsync(fd, chunk, (error, count) => {
      // A pipe that is full, or a disk: later. A reader that is gone does not come back.
      if (error && error.code !== 'EPIPE') return void setTimeout(send, retryMs, chunk, Math.min(2 * retryMs, RETRY_MS_MAX))
      isClosed = error !== null
      if (!error && count < chunk.length) return send(chunk.subarray(count))
      writing = null
      start()
    })
  }

  return {
    write,
    flush: (patienceMs) =>
      new Promise((resolve) => {
        const stalled = setTimeout(resolve, patienceMs, false)
        idle.push(() => {
          clearTimeout(stalled)
          resolve(true)
        })
        start()
      }),
    flushNow() {
      // A write that is under way may be the one that never ends.
      if (writing || isClosed) return
      try {
        for (let chunk = take(); chunk.length > 0;) chunk = chunk.subarray(writeSync(fd, chunk))
      } catch {
        // Full or gone: the process ends all the same.
      }
    },
    register: (registry) => {
      metersOf(registry).countedBy(
        'tollgate_log_lines_dropped_total',
        'Log lines that were dropped because standard output was not read.',
        [],
        (counter) => counter.inc(dropped),
      )
    },
  }
}
