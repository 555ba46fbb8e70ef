/** The operation `merge`: concatenates videos, or audio files, with cuts or crossfades. */
import type { OperationRequest } from '../../../../domain/media-operations.ts'
import { notMade, type NotMade } from '../../engine.ts'
import { tooLong } from './commands.ts'
import { joinAudio, joinVideo, overlapOf } from './crossfade.ts'
import { decoderArgs, encode, encoderArgs, type Encoded, type Job } from './encode.ts'
import { audioFilters, sectionOf, targetOf, videoFilters, type Section, type Target } from './filters.ts'
import { formatOf } from './formats.ts'
import { probe, type Source } from './probe.ts'

export type MergeJob = Job<Extract<OperationRequest, { kind: 'merge' }>>

/** Every format takes this one. */
const SAMPLE_RATE = 48_000

/**
 * Merges sources in their order. The first decides size, rate and colours; `fit` says how the others fill its frame. A source without audio
 * is silent where another has audio. `fade` overlaps two neighbours by half a second, at most half of the shorter one, which shortens the
 * result. A lossless result has the sampling rate of its first sound. The sources are all videos or all audio files; for an audio format, the audio of videos is merged too.
 *
 * Fails with `mixed_sources` for videos beside audio files, `no_sound` (an audio format without any audio), `unsupported_input`,
 * `input_too_large`, `result_too_large` or `internal`. Rejects with the reason of an aborted signal.
 */
export async function merge(job: MergeJob): Promise<Encoded | NotMade> {
  const sources: Source[] = []
  for (const [at, path] of job.inputs.entries()) {
    const source = await probe(job, path, job.limits)
    if (source.outcome === 'failed') return { ...source, input: at }
    sources.push(source)
  }
  const videos = sources.flatMap(({ video }) => video ?? [])
  const [sound] = sources.flatMap(({ audio }) => audio ?? [])
  const hasAudio = sound !== undefined
  const format = formatOf(job.request.format, videos.length > 0, sound?.codec)
  if (format.video && videos.length < sources.length) return notMade('mixed_sources', false)
  if (!format.video && !hasAudio) return notMade('no_sound', false)
  const target = format.video && videos[0] ? targetOf(videos[0], job.request.fit) : null
  const sections = sources.map((source) => ({ source, ...sectionOf(source, 0, source.durationMs / 1000, target) }))
  const overlaps = sections
    .slice(1)
    .map((section, n) => (job.request.transition === 'fade' ? overlapOf(sections[n] ?? section, section, target) : 0))
  const durationMs = Math.round(1000 * (sum(sections.map(({ seconds }) => seconds)) - sum(overlaps)))
  if (durationMs > job.limits.durationMs) return tooLong(durationMs, job.limits)
  const graph = [
    ...(target ? videoGraph(sections, overlaps, target) : []),
    ...(hasAudio ? audioGraph(sections, overlaps, (format.lossless && sound?.sampleRate) || SAMPLE_RATE) : []),
  ]
  const inputs = sources.flatMap((source) => decoderArgs(source, 0, job.limits))
  return encode(job, format, { inputs, streams: encoderArgs(graph, format, { video: target !== null, audio: hasAudio }) }, durationMs)
}

type SourceSection = Section & { source: Source }

function videoGraph(sections: readonly SourceSection[], overlaps: readonly number[], target: Target): string[] {
  return [
    ...sections.map((section, n) => `${videoFilters(n, section.source, section, target)}[v${n}]`),
    ...joinVideo(sections, overlaps, target),
  ]
}

function audioGraph(sections: readonly SourceSection[], overlaps: readonly number[], sampleRate: number): string[] {
  // Packets include the encoder's padding, which decoders drop: audio files that are not faded follow each other without it.
  const isWhole = (n: number): boolean => !overlaps[n] && !overlaps[n - 1] && !sections[n]?.source.video
  return [
    ...sections.map((section, n) => `${audioFilters(n, section.source, isWhole(n) ? null : section, sampleRate)}[a${n}]`),
    ...joinAudio(sections, overlaps),
  ]
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
