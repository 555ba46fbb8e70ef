/** Puts films, or sounds, one behind the other. */
import { tooLarge, unsupported, type Failed } from './ffmpeg.ts'
import { partOf, pictures, screenOf, sound, type Part, type Screen } from './filters.ts'
import { FORMATS, soundOnly, type FormatName } from './formats.ts'
import { joinedPictures, joinedSound, overlapOf } from './joints.ts'
import { probe, type Film } from './probe.ts'
import { decodeArgs, encodeArgs, made, type FilmJob, type Made } from './result.ts'

export type MergeRequest = { transition: 'none' | 'fade'; fit: 'contain' | 'cover'; format: FormatName }

const SAMPLE_RATE = 48_000

/**
 * Merges inputs in their order, at the size, rate and colours of the first; the others are fitted into it. An input without sound is silent where another has some.
 * With `fade`, two neighbours overlap for half a second, at most half of the shorter one, and the result is shorter by that. All are films or all are sounds; for a
 * format of sound alone, the sound of films is taken too.
 * Fails with `unsupported_input` (also: films mixed with sounds, no sound for a format of sound), `input_too_large` (also: the result) or `internal`. Rejects with
 * the reason of an aborted signal.
 */
export async function merge(job: FilmJob<MergeRequest>): Promise<Made | Failed> {
  const films: Film[] = []
  for (const path of job.inputs) {
    const film = await probe(job, path, job.limits)
    if (film.outcome === 'failed') return film
    films.push(film)
  }
  const { transition, fit } = job.request
  const shown = films.flatMap(({ picture }) => picture ?? [])
  const audible = films.some(({ sound }) => sound)
  const format = shown.length > 0 ? FORMATS[job.request.format] : soundOnly(job.request.format)
  if (format.video && shown.length < films.length) return unsupported('films are mixed with sounds')
  if (!format.video && !audible) return unsupported('none has sound')
  const screen = format.video && shown[0] ? screenOf(shown[0], fit) : null
  const parts = films.map((film) => ({ film, ...partOf(film, 0, film.durationMs / 1000, screen) }))
  const overlaps = parts.slice(1).map((part, n) => (transition === 'fade' ? overlapOf(parts[n] ?? part, part, screen) : 0))
  const durationMs = Math.round(1000 * (sumOf(parts.map(({ seconds }) => seconds)) - sumOf(overlaps)))
  if (durationMs > job.limits.durationMs) return tooLarge(`${durationMs} ms together`)
  const before = films.flatMap((film) => decodeArgs(film, 0, job.limits))
  const graph = [...(screen ? picturesOf(parts, overlaps, screen, job.programs.tonemaps) : []), ...(audible ? soundsOf(parts, overlaps) : [])]
  return made(job, { format, before, streams: encodeArgs(graph, format, { pictures: screen !== null, sound: audible }), durationMs })
}

type FilmPart = Part & { film: Film }

function picturesOf(parts: readonly FilmPart[], overlaps: readonly number[], screen: Screen, tonemaps: boolean): string[] {
  return [...parts.map((part, n) => `${pictures(n, part.film, part, screen, tonemaps)}[v${n}]`), ...joinedPictures(parts, overlaps, screen)]
}

function soundsOf(parts: readonly FilmPart[], overlaps: readonly number[]): string[] {
  // Sounds alone that only follow each other do so without a gap: their decoders know their ends better than their packets do.
  const whole = (n: number): boolean => !overlaps[n] && !overlaps[n - 1] && !parts[n]?.film.picture
  return [...parts.map((part, n) => `${sound(n, part.film, whole(n) ? null : part, SAMPLE_RATE)}[a${n}]`), ...joinedSound(parts, overlaps)]
}

const sumOf = (seconds: readonly number[]): number => seconds.reduce((sum, each) => sum + each, 0)
