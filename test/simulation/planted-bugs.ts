/** Mutation testing of the simulation: plants a bug in the sources as they are loaded, and runs the simulation on them in a thread. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Bug } from './bugs.ts'

export const ROOT = join(import.meta.dirname, '../..')

/** `tried`: number of seeds run, including the one that failed. */
export type Detection = { bug: Bug } & (
  | { outcome: 'found'; seed: number; tried: number; sentence: string }
  | { outcome: 'missed' | 'broken'; output: string }
)

/** The text of the file with the bug. Throws when `from`, however it is broken into lines, is not in the file exactly once. */
export function planted(bug: Bug): string {
  const letters = [...bug.from.replace(/\s+/g, '')].map((letter) => letter.replace(/\W/, '\\$&'))
  const parts = readFileSync(join(ROOT, bug.file), 'utf8').split(new RegExp(letters.join('\\s*')))
  if (parts.length !== 2) throw new Error(`"${bug.name}": ${bug.file} contains the text ${parts.length - 1} times: ${bug.from}`)
  return parts.join(bug.to)
}

/**
 * Runs each bug with the seeds in which it must be found, in threads that each load the packages, and calls `detected` after each. `server` as in `SeedOptions`.
 */
export async function detectBugs(bugs: readonly Bug[], server: string | null, detected: (detection: Detection) => void, threads = 2): Promise<void> {
  // Those that take longest first: as the last one, such a bug would leave the other threads without work.
  const remaining = bugs.toSorted((a, b) => b.within - a.within)
  async function lane(): Promise<void> {
    const open = () => new Worker(join(import.meta.dirname, 'planted-bug-thread.ts'), { workerData: server, execArgv: ['--no-warnings'] })
    let thread = open()
    for (let bug = remaining.shift(); bug; bug = remaining.shift()) {
      thread.postMessage(bug)
      // A bug may break the thread: the next one gets another.
      const [detection] = await once(thread, 'message').catch((error: unknown) => {
        thread = open()
        return [{ bug, outcome: 'broken', output: String(error) }]
      })
      detected(detection as Detection)
    }
    await thread.terminate()
  }
  await Promise.all(Array.from({ length: threads }, lane))
}
