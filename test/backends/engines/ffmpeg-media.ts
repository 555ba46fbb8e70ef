/** Media for the tests of `trim` and `merge`, made and decoded by ffmpeg directly, apart from the code under test. */
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFile, mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { available, type Programs } from '../../../src/backends/engines/local/ffmpeg/available.ts'
import type { Encoded } from '../../../src/backends/engines/local/ffmpeg/encode.ts'
import { merge, type MergeJob } from '../../../src/backends/engines/local/ffmpeg/merge.ts'
import { trim, type TrimJob } from '../../../src/backends/engines/local/ffmpeg/trim.ts'
import type { NotMade } from '../../../src/backends/engines/engine.ts'
import { folderFor } from '../../temporary-folder.ts'

const found = await available()

// Starting ffmpeg takes longer than what these tests have it do, so what can be done in one process is.

/** Why there is no FFmpeg, for skipped suites; false when there is. */
export const withoutFfmpeg = found.outcome === 'missing' && found.message
export const programs: Programs = found.outcome === 'found' ? found.programs : { ffmpeg: '', ffprobe: '' }

export const LIMITS = { pixels: 1_000_000, durationMs: 60_000, bytes: 20_000_000 }

/** Video of 25 frames per second. The luma of frame n is 20 + 2 n, so that a frame can be identified. */
export const counted = (frames: number, size = '64x48'): string[] => ['-f', 'lavfi', '-i', `nullsrc=s=${size}:r=25:d=${frames / 25},geq=lum='20+2*N':cb=128:cr=128,format=yuv420p`]
export const colour = (name: string, { seconds = 1, size = '64x48', rate = 25 }: { seconds?: number; size?: string; rate?: number | string } = {}): string[] => [
  '-f', 'lavfi', '-i', `color=${name}:s=${size}:r=${rate}:d=${seconds},format=yuv444p`,
]
/** A tone of 500 Hz, and of 1000 Hz from `changeSeconds` on. */
export const tones = (seconds: number, changeSeconds = seconds): string[] => [
  '-f', 'lavfi', '-i', `aevalsrc='0.5*sin(2*PI*t*if(lt(t,${changeSeconds}),500,1000))':s=44100:d=${seconds}`,
]
/** H.264 with a key frame each second. */
export const X264 = ['-pix_fmt', 'yuv420p', '-c:v', 'libx264', '-g', '25', '-sc_threshold', '0', '-crf', '10']

type Result = Encoded | NotMade

/** A folder of the test, with functions that make media in it and run the operations. */
export async function studio(t: Test) {
  const folder = await folderFor(t)
  let runs = 0
  const shared = { programs, limits: LIMITS, progress: () => {} }
  /** Keeps the result beyond the scratch folder of its run. */
  async function kept(made: Result): Promise<Result> {
    if (made.outcome === 'failed') return made
    const path = join(folder, `result${runs++}`)
    await copyFile(made.path, path)
    return { ...made, path }
  }
  const fresh = async () => ({ ...shared, scratch: await mkdtemp(join(folder, 'run-')), signal: new AbortController().signal })
  return {
    folder,
    /** Makes a file with these arguments of ffmpeg, and returns its path. */
    make(name: string, ...args: string[]): string {
      const path = join(folder, name)
      execFileSync(programs.ffmpeg, ['-v', 'error', '-nostdin', '-y', ...args, path], { stdio: ['ignore', 'ignore', 'inherit'] })
      return path
    },
    /** Makes several files of the same inputs. */
    makeAll(inputs: string[], files: readonly [name: string, args: string[]][]): string[] {
      const paths = files.map(([name]) => join(folder, name))
      const outputs = files.flatMap(([, args], n) => [...args, String(paths[n])])
      execFileSync(programs.ffmpeg, ['-v', 'error', '-nostdin', '-y', ...inputs, ...outputs], { stdio: ['ignore', 'ignore', 'inherit'] })
      return paths
    },
    /** Makes several files, each of one input of its own. */
    makeEach(files: readonly [name: string, input: string[], args: string[]][]): string[] {
      const paths = files.map(([name]) => join(folder, name))
      const outputs = files.flatMap(([, , args], n) => ['-map', String(n), ...args, String(paths[n])])
      execFileSync(programs.ffmpeg, ['-v', 'error', '-nostdin', '-y', ...files.flatMap(([, input]) => input), ...outputs], { stdio: ['ignore', 'ignore', 'inherit'] })
      return paths
    },
    async trim(input: string, request: Partial<TrimJob['request']>, more: Partial<TrimJob> = {}): Promise<Result> {
      return kept(await trim({ ...(await fresh()), inputs: [input], request: { kind: 'trim', startMs: 0, endMs: null, mode: 'accurate', format: 'mp4', ...request }, ...more }))
    },
    async merge(inputs: string[], request: Partial<MergeJob['request']> = {}, more: Partial<MergeJob> = {}): Promise<Result> {
      return kept(await merge({ ...(await fresh()), inputs, request: { kind: 'merge', transition: 'none', fit: 'contain', format: 'mp4', ...request }, ...more }))
    },
  }
}

/** The result; throws when there is none. */
export function madeOf(made: Result): Encoded {
  if (made.outcome === 'failed') throw new Error(made.code, { cause: made.cause })
  return made
}

/** What ffmpeg decodes from files: one output for each with its arguments. Complaints of its decoders throw. */
function decoded(outputs: readonly [path: string, args: string[]][]): Buffer[] {
  const paths = [...new Set(outputs.map(([path]) => path))]
  const args = outputs.flatMap(([path, args], n) => ['-map', `${paths.indexOf(path)}:${args[0]}`, ...args.slice(1), `pipe:${3 + n}`])
  const { output, stderr, status } = spawnSync(programs.ffmpeg, ['-v', 'error', '-nostdin', ...paths.flatMap((path) => ['-i', path]), ...args], {
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'ignore', 'pipe', ...outputs.map(() => 'pipe' as const)],
  })
  if (status !== 0 || stderr.length > 0) throw new Error(stderr.toString())
  return (output as unknown as Buffer[]).slice(3)
}

const NUMBERS = ['v', '-vf', 'scale=2:2:flags=area,format=yuv420p', '-fps_mode', 'passthrough', '-f', 'rawvideo']
const numbersIn = (samples: Buffer): number[] => Array.from({ length: samples.length / 6 }, (_, n) => Math.round((samples[n * 6]! - 20) / 2))

/** The frame numbers of counted videos. */
export const allNumbersOf = (paths: readonly string[]): number[][] => decoded(paths.map((path) => [path, NUMBERS])).map(numbersIn)
export const numbersOf = (path: string): number[] => allNumbersOf([path])[0]!

/** The colours (red, green, blue) of all frames at positions, in fractions of width and height. */
export function allColoursAt(places: readonly (readonly [path: string, x: number, y: number])[]): number[][][] {
  const args = (x: number, y: number) => ['v', '-vf', `format=rgb24,crop=1:1:iw*${x}:ih*${y}:exact=1`, '-fps_mode', 'passthrough', '-f', 'rawvideo']
  return decoded(places.map(([path, x, y]) => [path, args(x, y)])).map((samples) => Array.from({ length: samples.length / 3 }, (_, n) => [...samples.subarray(n * 3, n * 3 + 3)]))
}
export const coloursAt = (path: string, x: number, y: number): number[][] => allColoursAt([[path, x, y]])[0]!

/** Whether two colours are equal but for two lossy encodings. */
export const alike = (one: number[] | undefined, other: number[]): boolean => one !== undefined && one.every((part, n) => Math.abs(part - other[n]!) <= 16)

const TONES = ['a', '-af', 'aresample=async=1:first_pts=0:min_hard_comp=0.04', '-ac', '1', '-ar', '48000', '-f', 's16le']

function tonesIn(bytes: Buffer): number[] {
  const samples = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
  return Array.from({ length: Math.floor(samples.length / 480) }, (_, step) => {
    const part = samples.subarray(step * 480, step * 480 + 480)
    if (part.every((sample) => Math.abs(sample) < 500)) return 0
    return part.reduce((crossings, sample, n) => crossings + (n > 0 && sample >= 0 !== part[n - 1]! >= 0 ? 1 : 0), 0) * 50
  })
}

/** The approximate frequency (Hz) of the audio in steps of 10 ms, by zero crossings; 0 is silence. */
export const allTonesOf = (paths: readonly string[]): number[][] => decoded(paths.map((path) => [path, TONES])).map(tonesIn)
export const tonesOf = (path: string): number[] => allTonesOf([path])[0]!

/** Both, of videos with audio. */
export function allNumbersAndTonesOf(paths: readonly string[]): { numbers: number[]; tones: number[] }[] {
  const samples = decoded(paths.flatMap((path): [string, string[]][] => [[path, NUMBERS], [path, TONES]]))
  return paths.map((_, n) => ({ numbers: numbersIn(samples[2 * n]!), tones: tonesIn(samples[2 * n + 1]!) }))
}

/** The step at which the tone rises from 500 to 1000 Hz. */
export const riseOf = (tones: number[]): number => tones.findIndex((_, n) => tones.slice(n, n + 8).every((tone) => tone > 750))

/** Streams as ffprobe lists them: codecs, sizes, durations and tags. */
export function streamsOf(path: string): Record<string, string | number | object>[] {
  return JSON.parse(execFileSync(programs.ffprobe, ['-v', 'error', '-show_streams', '-of', 'json', path], { encoding: 'utf8' })).streams
}

/** All samples of a sound, as they are. */
export const samplesOf = (paths: readonly string[]): Buffer[] => decoded(paths.map((path) => [path, ['a', '-f', 'f64le']]))

/** The codecs of files, and the sampling rates of sounds, as ffmpeg names its inputs. */
export function codecsOf(paths: readonly string[]): { codecs: string[]; rates: number[] }[] {
  const { stderr } = spawnSync(programs.ffmpeg, ['-hide_banner', ...paths.flatMap((path) => ['-i', path])], { encoding: 'utf8' })
  return stderr.split(/^Input #/m).slice(1).map((input) => ({
    codecs: [...input.matchAll(/Stream #.*: (?:Video|Audio): (\w+)/g)].map(([, codec = '']) => codec),
    rates: [...input.matchAll(/, (\d+) Hz,/g)].map(([, rate]) => Number(rate)),
  }))
}

/** The number of the frame nearest to a time, by the packets' timestamps. */
export function frameAt(path: string, seconds: number): number {
  const args = ['-v', 'error', '-of', 'json', '-select_streams', 'v', '-show_entries', 'format=start_time:packet=pts_time', path]
  const { packets, format }: { packets: { pts_time?: string }[]; format: { start_time: string } } = JSON.parse(execFileSync(programs.ffprobe, args, { encoding: 'utf8' }))
  const begin = Number.parseFloat(format.start_time)
  const times = packets.map(({ pts_time }) => Number.parseFloat(pts_time ?? '')).filter((time) => !Number.isNaN(time)).sort((a, b) => a - b)
  const away = times.map((time) => Math.abs(time - begin - seconds))
  return away.indexOf(Math.min(...away))
}
