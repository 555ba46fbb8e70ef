/** The operation `trim`: cuts a section out of a video or an audio file. */
import type { OperationRequest } from '../../../../domain/media-operations.ts'
import { notMade, type NotMade } from '../../engine.ts'
import { inputArgs, tooLong } from './commands.ts'
import { decoderArgs, encode, encoderArgs, type Arguments, type Encoded, type Job } from './encode.ts'
import { audioFilters, sectionOf, targetOf, videoFilters } from './filters.ts'
import { formatOf, type Format } from './formats.ts'
import { probe, type Source } from './probe.ts'

export type TrimJob = Job<Extract<OperationRequest, { kind: 'trim' }>>

/**
 * `accurate` re-encodes: the result begins with the frame on display at `startMs`, or the next one where that is nearer, and has whole
 * frames at the source's rate; a variable rate becomes constant. `fast` copies the streams: the result begins at the key frame before
 * `startMs` and is longer by that much. Streams that the format does not hold, sources that cannot be copied for another reason, and those
 * whose key frame is too far away for `limits`, are trimmed accurately. An end past the end is cut there.
 *
 * Fails with `start_past_end`, `no_sound` (an audio format of a video without audio), `unsupported_input`, `input_too_large`,
 * `result_too_large` or `internal`. Rejects with the reason of an aborted signal.
 */
export async function trim(job: TrimJob): Promise<Encoded | NotMade> {
  const { request, inputs, limits } = job
  const source = await probe(job, inputs[0] ?? '', { ...limits, durationMs: Infinity })
  if (source.outcome === 'failed') return source
  if (request.startMs >= source.durationMs)
    return notMade('start_past_end', false, new Error(`start at ${request.startMs}`), { found: { seconds: source.durationMs / 1000 } })
  const durationMs = Math.min(request.endMs ?? Infinity, source.durationMs) - request.startMs
  if (durationMs > limits.durationMs) return tooLong(durationMs, limits)
  const format = formatOf(request.format, source.video !== null, source.audio?.codec)
  if (!format.video && !source.audio) return notMade('no_sound', false)
  if (request.mode === 'fast' && canCopy(source, format)) {
    // Copying takes a moment. Its progress is not reported, because it would fall when an accurate run has to follow.
    const copy = await encode({ ...job, progress: () => {} }, format, copyArgs(source, format, request.startMs, durationMs), durationMs)
    const isWhole = copy.outcome === 'made' && (copy.facts.width !== null || !format.video)
    if (isWhole && copy.facts.durationMs <= limits.durationMs) return copy
  }
  return encode(job, format, accurateArgs(job, source, format, durationMs), durationMs)
}

function accurateArgs({ request, limits }: TrimJob, source: Source, format: Format, durationMs: number): Arguments {
  const target = source.video && format.video ? targetOf(source.video, 'contain') : null
  const section = sectionOf(source, request.startMs / 1000, durationMs / 1000, target)
  const graph = [
    ...(target ? [`${videoFilters(0, source, section, target)}[v]`] : []),
    ...(source.audio ? [`${audioFilters(0, source, section, null)}[a]`] : []),
  ]
  return {
    inputs: decoderArgs(source, section.seek, limits),
    streams: encoderArgs(graph, format, { video: target !== null, audio: source.audio !== null }),
  }
}

function canCopy({ video, audio, container }: Source, format: Format): boolean {
  if (audio && !format.copies.has(audio.codec)) return false
  // Matroska finds a sound by its cluster, which lasts seconds.
  if (!video) return container.demuxer !== 'matroska'
  return !format.video || (container.seekable && format.copies.has(video.codec) && (format.rotates || !video.rotated))
}

function copyArgs({ video, audio, path, container }: Source, format: Format, startMs: number, durationMs: number): Arguments {
  // Demuxers seek by the timestamps of the video, which may begin later than the audio.
  const shift = Math.min(startMs / 1000, video && format.video ? Math.max(0, video.start) : 0)
  const mapped = [format.video ? video : null, audio].flatMap((stream) => (stream ? ['-map', `0:${stream.index}`] : []))
  return {
    inputs: ['-ss', String(startMs / 1000 - shift), ...inputArgs(path, container)],
    streams: [...mapped, '-t', String(durationMs / 1000 + shift), '-c', 'copy', '-avoid_negative_ts', 'make_zero'],
  }
}
