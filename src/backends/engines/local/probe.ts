/** What an input is, as ffprobe finds it in its packets, whatever its header claims. */
import { stat } from 'node:fs/promises'
import { CODECS, ffprobe, inputArgs, tooLarge, unsupported, type Failed, type Run } from './ffmpeg.ts'
import { containerOf, type Container } from './container.ts'

/** The route's limits of one input and of the result. */
export type FilmLimits = { pixels: number; durationMs: number; bytes: number }

export type Picture = {
  index: number
  codec: string
  /** As it is shown: pixels made square, rotation applied. */
  width: number
  height: number
  /** Whether players turn or mirror it. */
  turned: boolean
  /** Frames a second, as a fraction. */
  rate: string
  interlaced: boolean
  matrix: string
  fullRange: boolean
  transfer: string
  /** Seconds from the beginning of the film: whichever stream begins first. */
  start: number
  end: number
}

export type Sound = { index: number; codec: string; sampleRate: number; end: number }

/** Its first picture and its first sound; other streams are left out. `durationMs` is until the later of their ends. */
export type Film = { outcome: 'probed'; path: string; container: Container; durationMs: number; picture: Picture | null; sound: Sound | null }

const STREAMS_MAX = 32
const RATE_MAX = 120
/** A picture whose frames are at no common distance is shown at its mean rate, up to this. */
const MEAN_RATE_MAX = 60

const ENTRIES = [
  'packet=stream_index,pts_time,dts_time,duration_time',
  'stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,field_order,r_frame_rate,color_space,color_range,color_transfer,sample_rate',
  'stream_disposition=attached_pic',
  'stream_side_data=rotation',
  'format=start_time,duration',
].join(':')

type Fields = Record<string, string>
/** Seconds: the first and the last presentation time, and the end of what is presented. */
type Span = { first: number; last: number; end: number; packets: number }
type Probed = { streams: Fields[]; format: Fields; spans: Map<string, Span> }

/**
 * Reads a file of the scratch folder to its end. `unsupported_input`: no film or sound that is decoded here, or less of it than its header declares;
 * `input_too_large`: beyond `limits`. Rejects with the reason of an aborted `signal`.
 */
export async function probe(run: Run, path: string, limits: FilmLimits): Promise<Film | Failed> {
  if ((await stat(path)).size > limits.bytes) return tooLarge('more bytes than the limit')
  const container = await containerOf(path)
  if (!container) return unsupported('no container that is read here')
  const probed = await packetsOf(run, path, container)
  if ('outcome' in probed) return probed
  if (probed.streams.length > STREAMS_MAX) return tooLarge(`${probed.streams.length} streams`)
  const film = filmOf(probed)
  const codecs = [film.picture?.codec, film.sound?.codec].filter((codec) => codec !== undefined)
  if (codecs.length === 0) return unsupported('neither pictures nor sound')
  const strange = codecs.find((codec) => !CODECS.has(codec))
  if (strange) return unsupported(`the codec ${strange} is not decoded here`)
  const durationMs = Math.round(Math.max(film.picture?.end ?? 0, film.sound?.end ?? 0) * 1000)
  if (durationMs > limits.durationMs) return tooLarge(`${durationMs} ms`)
  const { picture } = film
  if (picture && !(picture.width > 0 && picture.height > 0)) return unsupported('pictures without a size')
  if (picture && picture.width * picture.height > limits.pixels) return tooLarge(`pictures of ${picture.width} by ${picture.height}`)
  if (cutShort(container, probed)) return unsupported(`it declares ${probed.format['duration']} s and holds ${durationMs} ms`)
  return { outcome: 'probed', path, container, durationMs, ...film }
}

async function packetsOf(run: Run, path: string, container: Container): Promise<Probed | Failed> {
  const found: Probed = { streams: [], format: {}, spans: new Map() }
  const failed = await ffprobe(run, [...inputArgs(path, container), '-show_entries', ENTRIES, '-of', 'compact'], (line) => {
    const [section, ...rest] = line.split('|')
    const fields: Fields = {}
    for (const part of rest) {
      const equals = part.indexOf('=')
      if (equals > 0) fields[part.slice(0, equals)] = part.slice(equals + 1)
    }
    if (section === 'packet') measure(found.spans, fields)
    if (section === 'stream') found.streams.push(fields)
    if (section === 'format') found.format = fields
  })
  return failed ?? found
}

/** Ends are measured by presentation times; where there are none, as in AVI, by the times of decoding. */
function measure(spans: Map<string, Span>, { stream_index: index = '', pts_time: pts, dts_time: dts, duration_time: duration }: Fields): void {
  const at = numberOf(pts) ?? numberOf(dts)
  if (at === null) return
  const { first, last, end, packets } = spans.get(index) ?? { first: at, last: at, end: at, packets: 0 }
  spans.set(index, { first: Math.min(first, at), last: Math.max(last, at), end: Math.max(end, at + (numberOf(duration) ?? 0)), packets: packets + 1 })
}

function filmOf({ streams, format, spans }: Probed): Pick<Film, 'picture' | 'sound'> {
  const begin = numberOf(format['start_time']) ?? 0
  const found: Pick<Film, 'picture' | 'sound'> = { picture: null, sound: null }
  for (const stream of streams) {
    const span = spans.get(stream['index'] ?? '')
    if (!span) continue
    // A cover of an album is no film.
    if (stream['codec_type'] === 'video' && stream['disposition:attached_pic'] !== '1') found.picture ??= pictureOf(stream, span, begin)
    if (stream['codec_type'] === 'audio') found.sound ??= soundOf(stream, span, begin)
  }
  return found
}

const soundOf = (stream: Fields, { end }: Span, begin: number): Sound => ({
  index: Number(stream['index']),
  codec: stream['codec_name'] ?? 'unknown',
  sampleRate: Number(stream['sample_rate']),
  end: end - begin,
})

function pictureOf(stream: Fields, span: Span, begin: number): Picture {
  const [across, down] = (stream['sample_aspect_ratio'] ?? '').split(':').map(Number)
  const width = Math.round(Number(stream['width']) * (across && down ? across / down : 1))
  const height = Number(stream['height'])
  const sideways = Math.abs(Math.round(Number(stream['rotation'] ?? 0) / 90)) % 2 === 1
  const rate = rateOf(stream['r_frame_rate'] ?? '', span)
  return {
    index: Number(stream['index']),
    codec: stream['codec_name'] ?? 'unknown',
    width: sideways ? height : width,
    height: sideways ? width : height,
    turned: stream['rotation'] !== undefined,
    rate,
    interlaced: ['tt', 'bb', 'tb', 'bt'].includes(stream['field_order'] ?? ''),
    matrix: stream['color_space'] ?? 'unknown',
    fullRange: stream['color_range'] === 'pc',
    transfer: stream['color_transfer'] ?? 'unknown',
    start: span.first - begin,
    // A last frame of no declared length is shown for one frame.
    end: (span.end > span.last ? span.end : span.last + 1 / perSecond(rate)) - begin,
  }
}

/** The rate at which every frame has a place of its own, unless that is only the clock of a variable rate. */
function rateOf(nominal: string, { first, end, packets }: Span): string {
  if (perSecond(nominal) > 0 && perSecond(nominal) <= RATE_MAX) return nominal
  const mean = end > first ? packets / (end - first) : 25
  return `${Math.round(Math.min(Math.max(mean, 1), MEAN_RATE_MAX) * 1000)}/1000`
}

/** Frames a second of a fraction; 0 when it is none. */
export function perSecond(rate: string): number {
  const [frames = 0, seconds = 0] = rate.split('/').map(Number)
  return frames > 0 && seconds > 0 ? frames / seconds : 0
}

/** Containers whose header declares a length, rather than that it is estimated. */
const DECLARES: ReadonlySet<string> = new Set(['mov', 'matroska', 'avi', 'flac'])

/** Whether much of what the header declares is not there: a transfer that broke off. */
function cutShort({ demuxer }: Container, { format, spans }: Probed): boolean {
  const held = Math.max(...[...spans.values()].map(({ end }) => end)) - (numberOf(format['start_time']) ?? 0)
  return DECLARES.has(demuxer) && lacks(1000 * held, 1000 * (numberOf(format['duration']) ?? 0))
}

/** Whether so much is missing that it is another film: more than a second, and more than a tenth. */
export const lacks = (heldMs: number, expectedMs: number): boolean => expectedMs - heldMs > Math.max(1000, expectedMs / 10)

function numberOf(text: string | undefined): number | null {
  return text === undefined || text === 'N/A' || !Number.isFinite(Number(text)) ? null : Number(text)
}
