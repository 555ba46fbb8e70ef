/** Writes the result of `trim` and `merge` with ffmpeg, and measures it. */
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { amountsOf, type Amounts, type Limits } from '../../../../domain/media-generations.ts'
import { notMade, type NotMade } from '../../engine.ts'
import { ffmpeg, inputArgs, THREADS, unsupported, type Run } from './commands.ts'
import type { Format } from './formats.ts'
import { isShort, probe, type Source } from './probe.ts'

/** `inputs` are files of the scratch folder; the name `result` is taken. `progress` gets whole percents from 0 to 99 in rising order. */
export type Job<Request> = Run & { request: Request; inputs: readonly string[]; limits: Limits; progress: (percent: number) => void }

/** A file of the scratch folder. */
export type Encoded = {
  outcome: 'made'
  path: string
  contentType: string
  facts: { width: number | null; height: number | null; durationMs: number }
  used: Amounts
}

/** Arguments of ffmpeg: the inputs, and the streams made of them. */
export type Arguments = { inputs: readonly string[]; streams: readonly string[] }

// Each thread of each decoder holds frames, and two keep an encoder busy.
const DECODER_THREADS = '2'

/** The arguments that decode a source from a time (s) on. */
export function decoderArgs({ path, container, video }: Source, seek: number, { pixels }: Limits): string[] {
  const from = seek > 0 ? ['-ss', String(seek), '-noaccurate_seek'] : []
  // Coded frames are larger than displayed ones: whole macroblocks.
  const pixelsMax = video ? ['-max_pixels', String(Math.round(pixels * 1.25) + 2 ** 16)] : []
  // The scale filter adapts when the frame size changes midway; a filter that rotates or deinterlaces before it does not.
  const adapt = video && !video.rotated && !video.interlaced ? ['-reinit_filter:v', '0'] : []
  return [...from, ...pixelsMax, ...adapt, '-threads', DECODER_THREADS, ...inputArgs(path, container)]
}

/** The arguments that encode the outputs `v` and `a` of a filter graph. */
export function encoderArgs(graph: readonly string[], { video, audio }: Format, has: { video: boolean; audio: boolean }): string[] {
  const filters = ['-filter_complex_threads', THREADS, '-filter_complex', graph.join(';')]
  const streams = [
    ...(has.video && video ? ['-map', '[v]', ...video, '-threads:v', THREADS] : []),
    ...(has.audio ? ['-map', '[a]', ...audio] : []),
  ]
  return [...filters, ...streams]
}

/**
 * Runs ffmpeg, for a result of about `durationMs`. Tags of the sources, such as titles and places, are removed. Rejects with the reason of
 * an aborted signal.
 */
export async function encode(
  job: Job<unknown>,
  format: Format,
  { inputs, streams }: Arguments,
  durationMs: number,
): Promise<Encoded | NotMade> {
  const path = join(job.scratch, 'result')
  const args = [...inputs, ...streams, '-map_metadata', '-1', '-map_chapters', '-1', ...format.container, '-y', `file:${path}`]
  const failed = await ffmpeg(job, args, { bytesMax: job.limits.bytes, durationMs, progress: job.progress })
  if (failed && (await sizeOf(path)) < job.limits.bytes) return failed
  if (failed) return notMade('result_too_large', false, undefined, { limit: { bytes: job.limits.bytes } })
  const result = await probe(job, path, { pixels: Infinity, durationMs: Infinity, bytes: Infinity })
  if (result.outcome === 'failed') return result.code === 'internal' ? result : unsupported('nothing could be decoded')
  if (isShort(result.durationMs, durationMs)) return unsupported(`only ${result.durationMs} of ${durationMs} ms could be decoded`)
  const facts = { width: result.video?.width ?? null, height: result.video?.height ?? null, durationMs: result.durationMs }
  return { outcome: 'made', path, contentType: format.contentType, facts, used: amountsOf(facts) }
}

const sizeOf = (path: string): Promise<number> =>
  stat(path).then(
    ({ size }) => size,
    () => 0,
  )
