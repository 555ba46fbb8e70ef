/** `trim` and `merge` of the local engine against ffmpeg called bare with the same encoders, in turns: processor time of the child processes, and time on a clock. */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { available, type Programs } from '../src/backends/engines/local/ffmpeg/available.ts'
import { FORMATS } from '../src/backends/engines/local/ffmpeg/formats.ts'
import { merge } from '../src/backends/engines/local/ffmpeg/merge.ts'
import { trim } from '../src/backends/engines/local/ffmpeg/trim.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

const run = promisify(execFile)
const LIMITS = { pixels: 16_000_000, durationMs: 600_000, bytes: 2 ** 30 }
const { video, audio, container } = FORMATS.mp4
const ENCODED = [...(video ?? []), ...audio, ...container]

type Taken = { processorMs: number; clockMs: number }
type Case = { name: string; bare: string[]; ours: (scratch: string) => Promise<{ outcome: string }> }

export async function films(_stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const found = await available()
  if (found.outcome === 'missing') throw new Error(found.message)
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  try {
    const rows: Table['rows'] = []
    for (const { name, bare, ours } of await cases(folder, found.programs)) rows.push([name, ...(await compared(folder, rounds, found.programs, bare, ours))])
    return { title: 'Films against bare ffmpeg (milliseconds of processor time; on a clock)', head: ['', 'bare', 'ours', 'more', 'by round', 'bare, on a clock', 'ours'], rows }
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function cases(folder: string, programs: Programs): Promise<Case[]> {
  const film = join(folder, 'film.mp4')
  const source = ['-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=10', '-f', 'lavfi', '-i', 'sine=f=440:r=44100:d=10']
  await run(programs.ffmpeg, ['-v', 'error', ...source, ...ENCODED, '-g', '50', film])
  const job = (scratch: string) => ({ programs, scratch, limits: LIMITS, signal: new AbortController().signal, progress: () => {} })
  const cut = (mode: 'accurate' | 'fast') => (scratch: string) => trim({ ...job(scratch), inputs: [film], request: { kind: 'trim', startMs: 3000, endMs: 9000, mode, format: 'mp4' } })
  const joined = '[0:v][0:a][1:v][1:a]concat=n=2:v=1:a=1[v][a]'
  return [
    { name: 'trim 6 of 10 s, 640 × 360, accurate', bare: ['-ss', '3', '-t', '6', '-i', film, ...ENCODED], ours: cut('accurate') },
    { name: 'the same, fast', bare: ['-ss', '3', '-t', '6', '-i', film, '-c', 'copy', ...container], ours: cut('fast') },
    {
      name: 'merge 2 films of 10 s, 640 × 360',
      bare: ['-i', film, '-i', film, '-filter_complex', joined, '-map', '[v]', '-map', '[a]', ...ENCODED],
      ours: (scratch) => merge({ ...job(scratch), inputs: [film, film], request: { kind: 'merge', transition: 'none', fit: 'contain', format: 'mp4' } }),
    },
  ]
}

async function compared(folder: string, rounds: number, { ffmpeg }: Programs, bare: string[], ours: Case['ours']): Promise<string[]> {
  const times = { bare: [] as Taken[], ours: [] as Taken[] }
  for (let round = 0; round < rounds; round++) {
    const scratch = await mkdtemp(join(folder, 'run-'))
    times.bare.push(await takenBy(() => run(ffmpeg, ['-v', 'error', '-nostdin', '-y', ...bare, join(scratch, 'bare.mp4')])))
    times.ours.push(
      await takenBy(async () => {
        const made = await ours(scratch)
        if (made.outcome !== 'made' || (await stat(join(scratch, 'result'))).size === 0) throw new Error('the engine made nothing')
      }),
    )
  }
  const more = times.ours.map(({ processorMs }, n) => (100 * processorMs) / (times.bare[n]?.processorMs ?? processorMs) - 100)
  const middle = (all: Taken[], of: keyof Taken): string => median(all.map((taken) => taken[of])).toFixed(0)
  const clock = [middle(times.bare, 'clockMs'), middle(times.ours, 'clockMs')]
  return [middle(times.bare, 'processorMs'), middle(times.ours, 'processorMs'), `${median(more).toFixed(0)} %`, `${spread(more)} %`, ...clock]
}

async function takenBy(work: () => Promise<unknown>): Promise<Taken> {
  const [startMs, before] = [performance.now(), childrenMs()]
  await work()
  return { processorMs: childrenMs() - before, clockMs: performance.now() - startMs }
}

/** Processor time of all children that have ended (proc_pid_stat(5), fields 16 and 17, in hundredths of a second). */
function childrenMs(): number {
  const stat = readFileSync('/proc/self/stat', 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return 10 * (Number(fields[13]) + Number(fields[14]))
}
