/** FFmpeg's programs as child processes (ffmpeg(1), ffprobe(1)), with the arguments that confine every run. */
import { availableParallelism } from 'node:os'
import { runChild, type ChildResult } from './child.ts'
import type { Container } from './container.ts'
import type { Programs } from './programs.ts'

/** Why there is no result. The public sentence belongs to the code; `cause` is for the log alone. */
export type Failed = { outcome: 'failed'; code: 'unsupported_input' | 'input_too_large' | 'internal'; retryable: boolean; cause: Error }

/** What every run takes: where it works, and until when. */
export type Run = { programs: Programs; scratch: string; signal: AbortSignal }

/** Of an encoder and of the filters: more make a film of this size hardly faster, and each takes memory. */
export const THREADS = String(Math.min(availableParallelism(), 8))

// Twenty inputs of 3840 × 2160 pixels, whose decoders keep frames until the end, are merged in 5 GiB of address space.
const LIMITS = { wallMs: 3_600_000, cpuSeconds: 14_400, addressSpaceBytes: 6 * 2 ** 30 }
const PROBE_LIMITS = { wallMs: 60_000, cpuSeconds: 60, addressSpaceBytes: 2 ** 31, fileBytes: 0 }
// An arena of glibc's malloc reserves 64 MiB of address space, and there may be eight for each core.
const ENV = { MALLOC_ARENA_MAX: '4', LC_ALL: 'C' }

/** The decoders that may see an input, of the hundreds that there are: the fewer, the less there is to attack. */
const DECODERS = [
  ['h264', 'hevc', 'vp8', 'vp9', 'libdav1d', 'libaom-av1', 'av1', 'h263', 'mpeg1video', 'mpeg2video', 'mpeg4', 'mjpeg', 'prores', 'theora'],
  ['aac', 'mp3', 'mp3float', 'mp2', 'mp2float', 'opus', 'libopus', 'vorbis', 'flac', 'alac', 'ac3', 'eac3'],
  ['pcm_u8', 'pcm_s16le', 'pcm_s16be', 'pcm_s24le', 'pcm_s24be', 'pcm_s32le', 'pcm_f32le', 'pcm_f64le', 'pcm_alaw', 'pcm_mulaw', 'adpcm_ms', 'adpcm_ima_wav'],
].flat()

/** The codecs that they decode, as ffprobe names them. */
export const CODECS: ReadonlySet<string> = new Set(DECODERS)

/** The arguments of an input: its demuxer is fixed, which opens no other file, and no decoder beside ours is tried. */
export function inputArgs(path: string, { demuxer }: Container): string[] {
  return ['-protocol_whitelist', 'file,pipe', '-codec_whitelist', DECODERS.join(','), '-f', demuxer, '-i', `file:${path}`]
}

export const unsupported = (why: string): Failed => ({ outcome: 'failed', code: 'unsupported_input', retryable: false, cause: new Error(why) })
export const tooLarge = (why: string): Failed => ({ outcome: 'failed', code: 'input_too_large', retryable: false, cause: new Error(why) })
const internal = (why: string): Failed => ({ outcome: 'failed', code: 'internal', retryable: true, cause: new Error(why) })

/** Runs ffprobe with these arguments, its lines to `onLine`. Null when it succeeded. Rejects with the reason of an aborted `signal`. */
export async function ffprobe({ programs, scratch, signal }: Run, args: readonly string[], onLine: (line: string) => void): Promise<Failed | null> {
  const probe = { command: programs.ffprobe, args: ['-v', 'error', ...args], cwd: scratch, env: ENV, limits: PROBE_LIMITS, signal, onLine }
  return failureOf(await runChild(probe), signal)
}

/** What a run of ffmpeg writes: at most `bytes`, of `durationMs` when all goes well. */
export type Output = { durationMs: number; bytes: number; progress: (percent: number) => void }

/** Runs ffmpeg with these arguments. Null when it succeeded. Rejects with the reason of an aborted `signal`. */
export async function ffmpeg({ programs, scratch, signal }: Run, args: readonly string[], { durationMs, bytes, progress }: Output): Promise<Failed | null> {
  const confined = ['-hide_banner', '-nostdin', '-v', 'error', '-progress', 'pipe:1', ...args]
  const onLine = (line: string): void => {
    const [, microseconds] = /^out_time_us=(\d+)$/.exec(line) ?? []
    if (microseconds) progress(Math.min(99, Math.floor(Number(microseconds) / 10 / durationMs)))
  }
  return failureOf(await runChild({ command: programs.ffmpeg, args: confined, cwd: scratch, env: ENV, limits: { ...LIMITS, fileBytes: bytes }, signal, onLine }), signal)
}

/** What the end of a child means. An error that it reports is the input's, since the arguments are ours; a crash, refused memory and a full disk are not blamed on it. */
function failureOf(ended: ChildResult, signal: AbortSignal): Failed | null {
  if (ended.outcome === 'killed') {
    if (ended.by === 'signal') throw signal.reason
    return internal(`killed by ${ended.by}: ${ended.stderr}`)
  }
  if (ended.code === 0) return null
  const ours = ended.code >= 125 || /Cannot allocate memory|No space left on device/.test(ended.stderr)
  return (ours ? internal : unsupported)(`ended with ${ended.code}: ${ended.stderr}`)
}
