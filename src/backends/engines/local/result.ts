/** What a run of ffmpeg made, measured rather than believed. */
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { ffmpeg, inputArgs, THREADS, tooLarge, unsupported, type Failed, type Run } from './ffmpeg.ts'
import type { Format } from './formats.ts'
import { lacks, probe, type Film, type FilmLimits } from './probe.ts'

/** Inputs are files of the scratch folder, of any name but `result`. `progress` gets whole percents from 0 to 99. */
export type FilmJob<Request> = Run & { request: Request; inputs: readonly string[]; limits: FilmLimits; progress: (percent: number) => void }

/** A file of the scratch folder. `used` is in thousandths of a unit. */
export type Made = {
  outcome: 'made'
  path: string
  contentType: string
  facts: { width: number | null; height: number | null; durationMs: number }
  used: { Job: number; Second: number; Megapixel: number }
}

/** What to read, what to do with it, and how long the result is to be. */
export type Plan = { format: Format; before: readonly string[]; streams: readonly string[]; durationMs: number }

// Enough to keep an encoder busy; each thread of each input holds frames.
const DECODER_THREADS = '2'

/** The arguments of an input that is decoded, from a time (s) on. */
export function decodeArgs({ path, container, picture }: Film, from: number, { pixels }: FilmLimits): string[] {
  const seek = from > 0 ? ['-ss', String(from), '-noaccurate_seek'] : []
  // Coded pictures are a little larger than those that are shown.
  const size = picture ? ['-max_pixels', String(Math.round(pixels * 1.25) + 2 ** 16)] : []
  // The first filter takes a new size in the middle as it comes, unless one that turns or deinterlaces stands before it.
  const changes = picture && !picture.turned && !picture.interlaced ? ['-reinit_filter:v', '0'] : []
  return [...seek, ...size, ...changes, '-threads', DECODER_THREADS, ...inputArgs(path, container)]
}

/** The arguments that map a filter graph's outputs `v` and `a` to a format's encoders. */
export function encodeArgs(graph: readonly string[], { video, audio }: Format, has: { pictures: boolean; sound: boolean }): string[] {
  const filters = ['-filter_complex_threads', THREADS, '-filter_complex', graph.join(';')]
  const streams = [...(has.pictures && video ? ['-map', '[v]', ...video, '-threads:v', THREADS] : []), ...(has.sound ? ['-map', '[a]', ...audio] : [])]
  return [...filters, ...streams]
}

/** Runs a plan and measures its result. Names, places and other tags of the inputs are left behind. */
export async function made(job: FilmJob<unknown>, { format, before, streams, durationMs }: Plan): Promise<Made | Failed> {
  const path = join(job.scratch, 'result')
  const args = [...before, ...streams, '-map_metadata', '-1', '-map_chapters', '-1', ...format.container, '-y', `file:${path}`]
  const failed = await ffmpeg(job, args, { durationMs, bytes: job.limits.bytes, progress: job.progress })
  if (failed) return (await sizeOf(path)) >= job.limits.bytes ? tooLarge('more bytes of result than the limit') : failed
  const film = await probe(job, path, { pixels: Infinity, durationMs: Infinity, bytes: Infinity })
  if (film.outcome === 'failed') return film.code === 'internal' ? film : unsupported(`nothing could be decoded: ${film.cause.message}`)
  if (lacks(film.durationMs, durationMs)) return unsupported(`of ${durationMs} ms, ${film.durationMs} ms could be decoded`)
  const { width, height } = film.picture ?? { width: null, height: null }
  const used = { Job: 1000, Second: film.durationMs, Megapixel: Math.ceil(((width ?? 0) * (height ?? 0)) / 1000) }
  return { outcome: 'made', path, contentType: format.contentType, facts: { width, height, durationMs: film.durationMs }, used }
}

const sizeOf = (path: string): Promise<number> => stat(path).then(({ size }) => size, () => 0)
