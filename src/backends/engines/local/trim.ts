/** Cuts a part out of a film or a sound. */
import { inputArgs, unsupported, type Failed } from './ffmpeg.ts'
import { partOf, pictures, screenOf, sound } from './filters.ts'
import { FORMATS, soundOnly, type Format, type FormatName } from './formats.ts'
import { probe, type Film } from './probe.ts'
import { decodeArgs, encodeArgs, made, type FilmJob, type Made } from './result.ts'

/** Milliseconds of the input; `endMs` null is its end. */
export type TrimRequest = { startMs: number; endMs: number | null; mode: 'accurate' | 'fast'; format: FormatName }

/**
 * `accurate` encodes anew: the result begins with the frame that is shown at `startMs`, or the next where that is nearer, and has whole frames at the input's rate
 * (a variable rate becomes constant). `fast` copies streams as they are: the result begins at the key frame before `startMs`, and is longer by that much; what the
 * format cannot hold, or cannot be copied for another reason, is trimmed accurately. An end past the end is cut there.
 * Fails with `unsupported_input` (also: a start past the end; a format of sound for a film without), `input_too_large`, or `internal`. Rejects with the reason of an aborted signal.
 */
export async function trim(job: FilmJob<TrimRequest>): Promise<Made | Failed> {
  const { request, inputs, limits } = job
  const film = await probe(job, inputs[0] ?? '', limits)
  if (film.outcome === 'failed') return film
  if (request.startMs >= film.durationMs) return unsupported(`it begins at ${request.startMs} ms of ${film.durationMs}`)
  const durationMs = Math.min(request.endMs ?? Infinity, film.durationMs) - request.startMs
  const format = film.picture ? FORMATS[request.format] : soundOnly(request.format)
  if (!format.video && !film.sound) return unsupported('it has no sound')
  if (request.mode === 'fast' && copies(film, format)) {
    // Its progress is not reported: it takes a moment, and would begin again when it has to be done accurately.
    const copy = await made({ ...job, progress: () => {} }, { format, ...copied(film, format, request.startMs, durationMs), durationMs })
    if (copy.outcome === 'made' && (copy.facts.width !== null || !format.video)) return copy
  }
  return made(job, { format, ...accurate(job, film, format, durationMs / 1000), durationMs })
}

function accurate({ request, limits, programs }: FilmJob<TrimRequest>, film: Film, format: Format, seconds: number): { before: string[]; streams: string[] } {
  const screen = film.picture && format.video ? screenOf(film.picture, 'contain') : null
  const part = partOf(film, request.startMs / 1000, seconds, screen)
  const graph = [...(screen ? [`${pictures(0, film, part, screen, programs.tonemaps)}[v]`] : []), ...(film.sound ? [`${sound(0, film, part, null)}[a]`] : [])]
  return { before: decodeArgs(film, part.seek, limits), streams: encodeArgs(graph, format, { pictures: screen !== null, sound: film.sound !== null }) }
}

/** Whether all that the result has of a film can be copied. Without an index no key frame is found, and not each container tells players to turn pictures. */
function copies({ picture, sound, container }: Film, { video, copies: codecs, turns }: Format): boolean {
  if (sound && !codecs.has(sound.codec)) return false
  return !picture || !video || (container.indexed && codecs.has(picture.codec) && (turns || !picture.turned))
}

function copied(film: Film, { video }: Format, startMs: number, durationMs: number): { before: string[]; streams: string[] } {
  const { picture, sound, path, container } = film
  // Demuxers seek by the times of the pictures, which may begin later than the sound.
  const early = Math.min(startMs / 1000, video && picture ? Math.max(0, picture.start) : 0)
  const mapped = [picture && video ? picture.index : null, sound?.index ?? null].flatMap((index) => (index === null ? [] : ['-map', `0:${index}`]))
  return {
    before: ['-ss', String(startMs / 1000 - early), ...inputArgs(path, container)],
    streams: [...mapped, '-t', String(durationMs / 1000 + early), '-c', 'copy', '-avoid_negative_ts', 'make_zero'],
  }
}
