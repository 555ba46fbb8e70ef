/** Makes the films and sounds that the tests of `trim` and `merge` read, and looks at what comes out; by ffmpeg itself, apart from the code under test. */
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Failed } from '../../../src/backends/engines/local/ffmpeg.ts'
import { merge, type MergeRequest } from '../../../src/backends/engines/local/merge.ts'
import { available, type Programs } from '../../../src/backends/engines/local/programs.ts'
import type { FilmJob, Made } from '../../../src/backends/engines/local/result.ts'
import { trim, type TrimRequest } from '../../../src/backends/engines/local/trim.ts'

const found = await available()

/** A reason to skip, or false. */
export const withoutFfmpeg = found.outcome === 'missing' && found.message
export const programs: Programs = found.outcome === 'found' ? found.programs : { ffmpeg: '', ffprobe: '', tonemaps: false }

export const LIMITS = { pixels: 1_000_000, durationMs: 60_000, bytes: 20_000_000 }

/** Pictures of 64 × 48 at 25 a second whose luma is 20 and two more for each frame: a frame tells its number. */
export const counted = (frames: number, size = '64x48'): string[] => ['-f', 'lavfi', '-i', `nullsrc=s=${size}:r=25:d=${frames / 25},geq=lum='20+2*N':cb=128:cr=128,format=yuv420p`]
export const colour = (name: string, { seconds = 1, size = '64x48', rate = 25 }: { seconds?: number; size?: string; rate?: number | string } = {}): string[] => [
  '-f', 'lavfi', '-i', `color=${name}:s=${size}:r=${rate}:d=${seconds},format=yuv444p`,
]
/** A tone of 500 Hz, of 1000 Hz from `changeSeconds` on. */
export const tones = (seconds: number, changeSeconds = seconds): string[] => [
  '-f', 'lavfi', '-i', `aevalsrc='0.5*sin(2*PI*t*if(lt(t,${changeSeconds}),500,1000))':s=44100:d=${seconds}`,
]
/** A key frame each second. */
export const X264 = ['-pix_fmt', 'yuv420p', '-c:v', 'libx264', '-g', '25', '-sc_threshold', '0', '-crf', '10']

/** A folder of the test's own, that makes films in it and runs the verbs on them. */
export async function studio(t: Test) {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  t.teardown(() => rm(folder, { recursive: true }))
  let runs = 0
  async function run<Request>(verb: (job: FilmJob<Request>) => Promise<Made | Failed>, inputs: string[], request: Request, more: Partial<FilmJob<Request>>): Promise<Made | Failed> {
    const scratch = await mkdtemp(join(folder, 'run-'))
    const made = await verb({ programs, scratch, signal: new AbortController().signal, limits: LIMITS, progress: () => {}, inputs, request, ...more })
    if (made.outcome === 'failed') return made
    const path = join(folder, `result${runs++}`)
    await copyFile(made.path, path)
    return { ...made, path }
  }
  return {
    folder,
    /** Makes a file by these arguments of ffmpeg, and returns its path. */
    make(name: string, ...args: string[]): string {
      const path = join(folder, name)
      execFileSync(programs.ffmpeg, ['-v', 'error', '-nostdin', '-y', ...args, path], { stdio: ['ignore', 'ignore', 'inherit'] })
      return path
    },
    trim: (input: string, request: Partial<TrimRequest>, more: Partial<FilmJob<TrimRequest>> = {}) =>
      run(trim, [input], { startMs: 0, endMs: null, mode: 'accurate', format: 'mp4', ...request }, more),
    merge: (inputs: string[], request: Partial<MergeRequest> = {}, more: Partial<FilmJob<MergeRequest>> = {}) =>
      run(merge, inputs, { transition: 'none', fit: 'contain', format: 'mp4', ...request }, more),
  }
}

/** What was made; throws when nothing was. */
export function madeOf(made: Made | Failed): Made {
  if (made.outcome === 'failed') throw made.cause
  return made
}

function decoded(path: string, ...args: string[]): Buffer {
  const { stdout, stderr, status } = spawnSync(programs.ffmpeg, ['-v', 'error', '-i', path, ...args, '-'], { maxBuffer: 2 ** 28 })
  if (status !== 0 || stderr.length > 0) throw new Error(stderr.toString())
  return stdout
}

/** The number that each frame of counted pictures tells, rounded. */
export function numbersOf(path: string): number[] {
  const samples = decoded(path, '-map', '0:v', '-vf', 'scale=2:2:flags=area,format=yuv420p', '-fps_mode', 'passthrough', '-f', 'rawvideo')
  return Array.from({ length: samples.length / 6 }, (_, n) => Math.round((samples[n * 6]! - 20) / 2))
}

/** The colours of all frames at a place (fractions of the width and the height), each red, green and blue. */
export function coloursAt(path: string, x: number, y: number): number[][] {
  const samples = decoded(path, '-map', '0:v', '-vf', `format=rgb24,crop=1:1:iw*${x}:ih*${y}:exact=1`, '-fps_mode', 'passthrough', '-f', 'rawvideo')
  return Array.from({ length: samples.length / 3 }, (_, n) => [...samples.subarray(n * 3, n * 3 + 3)])
}

/** Whether two colours are one to the eye, after two lossy encodings. */
export const alike = (one: number[] | undefined, other: number[]): boolean => one !== undefined && one.every((part, n) => Math.abs(part - other[n]!) <= 16)

/** Its sound in steps of 10 ms, each as how many Hz it swings, roughly; 0 is silence. */
export function tonesOf(path: string): number[] {
  const bytes = decoded(path, '-map', '0:a', '-af', 'aresample=async=1:first_pts=0:min_hard_comp=0.04', '-ac', '1', '-ar', '48000', '-f', 's16le')
  const samples = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
  return Array.from({ length: Math.floor(samples.length / 480) }, (_, step) => {
    const part = samples.subarray(step * 480, step * 480 + 480)
    if (part.every((sample) => Math.abs(sample) < 500)) return 0
    return part.reduce((crossings, sample, n) => crossings + (n > 0 && sample >= 0 !== part[n - 1]! >= 0 ? 1 : 0), 0) * 50
  })
}

/** At which of those steps the tone rises from 500 to 1000 Hz. */
export const riseOf = (tones: number[]): number => tones.findIndex((_, n) => tones.slice(n, n + 8).every((tone) => tone > 750))

/** Streams as ffprobe lists them: codecs, sizes, durations and tags. */
export function streamsOf(path: string): Record<string, string | number | object>[] {
  return JSON.parse(execFileSync(programs.ffprobe, ['-v', 'error', '-show_streams', '-of', 'json', path], { encoding: 'utf8' })).streams
}

/** The number of the frame that is nearest to a time after the beginning of a file, by the times of its packets. */
export function frameAt(path: string, seconds: number): number {
  const probe = (...args: string[]): string => execFileSync(programs.ffprobe, ['-v', 'error', '-of', 'csv=p=0', ...args, path], { encoding: 'utf8' })
  const begin = Number.parseFloat(probe('-show_entries', 'format=start_time'))
  const times = probe('-select_streams', 'v', '-show_entries', 'packet=pts_time').split('\n').map(Number.parseFloat).filter((time) => !Number.isNaN(time)).sort((a, b) => a - b)
  const away = times.map((time) => Math.abs(time - begin - seconds))
  return away.indexOf(Math.min(...away))
}
