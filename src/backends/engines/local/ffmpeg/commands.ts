/** Runs ffmpeg(1) and ffprobe(1) as child processes: resource limits, restricted demuxers and decoders, and what a failure means. */
import { availableParallelism } from 'node:os'
import type { Limits } from '../../../../domain/media-generations.ts'
import { lengthAbove, type TaskErrorDetails } from '../../../../domain/task.ts'
import { notMade, type NotMade } from '../../engine.ts'
import { runChild, type ChildResult } from '../../process/child.ts'
import type { Programs } from './available.ts'
import type { Container } from './container.ts'

export type Run = { programs: Programs; /** The scratch folder of the run. */ scratch: string; signal: AbortSignal }

/** Threads of an encoder and of the filters. More hardly make a video faster, and each takes memory. */
export const THREADS = String(Math.min(availableParallelism(), 8))

// Merging twenty sources of 3840 × 2160 pixels takes 5 GiB of address space: decoders keep frames until the end.
const LIMITS = { wallMs: 3_600_000, cpuSeconds: 14_400, addressSpaceBytes: 6 * 2 ** 30 }
const PROBE_LIMITS = { wallMs: 60_000, cpuSeconds: 60, addressSpaceBytes: 2 ** 31, fileBytes: 0 }
// Each arena of glibc's malloc reserves 64 MiB of address space, and there may be eight per core.
const ENV = { MALLOC_ARENA_MAX: '4', LC_ALL: 'C' }

/** The decoders that may read a source. FFmpeg has hundreds, and each is attack surface. */
const VIDEO_DECODERS = [
  'h264',
  'hevc',
  'vp8',
  'vp9',
  'libdav1d',
  'libaom-av1',
  'av1',
  'h263',
  'mpeg1video',
  'mpeg2video',
  'mpeg4',
  'mjpeg',
  'prores',
  'theora',
]
const AUDIO_DECODERS = [
  'aac',
  'mp3',
  'mp3float',
  'mp2',
  'mp2float',
  'opus',
  'libopus',
  'vorbis',
  'flac',
  'alac',
  'ac3',
  'eac3',
  'adpcm_ms',
  'adpcm_ima_wav',
]
const PCM_DECODERS = ['u8', 's16le', 's16be', 's24le', 's24be', 's32le', 'f32le', 'f64le', 'alaw', 'mulaw'].map((format) => `pcm_${format}`)
const DECODERS = [...VIDEO_DECODERS, ...AUDIO_DECODERS, ...PCM_DECODERS]

/** The codecs of these decoders, by ffprobe's names. */
export const CODECS: ReadonlySet<string> = new Set(DECODERS)

/** The arguments that open a source: a fixed demuxer, local files alone, and no other decoder. */
export function inputArgs(path: string, { demuxer }: Container): string[] {
  return ['-protocol_whitelist', 'file,pipe', '-codec_whitelist', DECODERS.join(','), '-f', demuxer, '-i', `file:${path}`]
}

/** The failure of a source that cannot be used; `reason` is only logged. */
export const unsupported = (reason: string): NotMade => notMade('unsupported_input', false, new Error(reason))
/** The failure of a source above the limits, which `details` tells; `reason` is only logged. */
export const tooLarge = (reason: string, details?: TaskErrorDetails): NotMade =>
  notMade('input_too_large', false, new Error(reason), details)
/** The failure of a result that would be longer than the limits allow. */
export const tooLong = (durationMs: number, limits: Limits): NotMade =>
  notMade('result_too_large', false, new Error(`${durationMs} ms`), lengthAbove(durationMs, limits.durationMs))
/** Runs ffprobe and passes its lines to `onLine`. Null: it succeeded. Rejects with the reason of an aborted `signal`. */
export async function ffprobe(
  { programs, scratch, signal }: Run,
  args: readonly string[],
  onLine: (line: string) => void,
): Promise<NotMade | null> {
  const probe = { command: programs.ffprobe, args: ['-v', 'error', ...args], cwd: scratch, env: ENV, limits: PROBE_LIMITS, signal, onLine }
  return failureOf(await runChild(probe), signal)
}

/** The output of a run of ffmpeg: its size limit, and the length by which its progress is measured. */
export type Output = { bytesMax: number; durationMs: number; progress: (percent: number) => void }

/** Runs ffmpeg. Null: it succeeded. Rejects with the reason of an aborted `signal`. */
export async function ffmpeg(
  { programs, scratch, signal }: Run,
  args: readonly string[],
  { bytesMax, durationMs, progress }: Output,
): Promise<NotMade | null> {
  const onLine = (line: string): void => {
    const [, microseconds] = /^out_time_us=(\d+)$/.exec(line) ?? []
    if (microseconds) progress(Math.min(99, Math.floor(Number(microseconds) / 10 / durationMs)))
  }
  const child = {
    command: programs.ffmpeg,
    args: ['-hide_banner', '-nostdin', '-v', 'error', '-progress', 'pipe:1', ...args],
    cwd: scratch,
    env: ENV,
    limits: { ...LIMITS, fileBytes: bytesMax },
    signal,
    onLine,
  }
  return failureOf(await runChild(child), signal)
}

/** An error that the program reports is the source's, because the arguments are ours. A crash, exhausted memory and a full disk are not. */
function failureOf(ended: ChildResult, signal: AbortSignal): NotMade | null {
  if (ended.outcome === 'killed') {
    if (ended.by === 'signal') throw signal.reason
    return notMade('internal', true, new Error(`killed by ${ended.by}: ${ended.stderr}`))
  }
  if (ended.code === 0) return null
  const reason = `exit code ${ended.code}: ${ended.stderr}`
  const internal = ended.code >= 125 || /Cannot allocate memory|No space left on device/.test(ended.stderr)
  return internal ? notMade('internal', true, new Error(reason)) : unsupported(reason)
}
