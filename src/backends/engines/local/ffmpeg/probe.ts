/** Inspection of a source with ffprobe: streams, sizes, frame rate and length, measured by its packets rather than read from its header. */
import { stat } from 'node:fs/promises'
import type { Limits } from '../../../../domain/media-generations.ts'
import { lengthAbove, pixelsAbove } from '../../../../domain/task.ts'
import type { NotMade } from '../../engine.ts'
import { CODECS, ffprobe, inputArgs, tooLarge, unsupported, type Run } from './commands.ts'
import { containerOf, type Container } from './container.ts'

/** Times are seconds from the beginning of the source, where its first stream begins. */
export type VideoStream = {
  index: number
  codec: string
  /** As displayed: with square pixels and the rotation applied. */
  width: number
  height: number
  /** Whether the container stores a rotation. */
  rotated: boolean
  /** Frames per second, a fraction. */
  rate: string
  interlaced: boolean
  /** YCbCr matrix, transfer function and range, by ffprobe's names. */
  matrix: string
  transfer: string
  fullRange: boolean
  start: number
  end: number
}

export type AudioStream = { index: number; codec: string; /** Hertz. */ sampleRate: number; end: number }

/** A source with its first video and its first audio stream; other streams are ignored. `durationMs` is the end of the longer one. */
export type Source = {
  outcome: 'probed'
  path: string
  container: Container
  durationMs: number
  video: VideoStream | null
  audio: AudioStream | null
}

const STREAMS_MAX = 32
const RATE_MAX = 120
/** Upper bound of the mean rate, which replaces a nominal rate above RATE_MAX. */
const MEAN_RATE_MAX = 60

const ENTRIES = [
  'packet=stream_index,pts_time,dts_time,duration_time',
  'stream=index,codec_type,codec_name,width,height,sample_aspect_ratio,field_order,r_frame_rate,color_space,color_range,color_transfer,sample_rate',
  'stream_disposition=attached_pic',
  'stream_side_data=rotation',
  'format=start_time,duration',
].join(':')

type Fields = Record<string, string>
/** Presentation times of a stream's packets in seconds: the first, the last, and the end of the one that ends last. */
type Span = { first: number; last: number; end: number; packets: number }
type Packets = { streams: Fields[]; format: Fields; spans: Map<string, Span> }

/**
 * Reads a file of the scratch folder to its end. Fails with `unsupported_input` when it has no decodable video or audio, or much less of it
 * than its header declares; with `input_too_large` when it exceeds `limits`; with `internal`. Rejects with the reason of an aborted
 * `signal`.
 */
export async function probe(run: Run, path: string, limits: Limits): Promise<Source | NotMade> {
  if ((await stat(path)).size > limits.bytes) return tooLarge('bytes', { limit: { bytes: limits.bytes } })
  const container = await containerOf(path)
  if (!container) return unsupported('unknown container')
  const packets = await packetsOf(run, path, container)
  if ('outcome' in packets) return packets
  if (packets.streams.length > STREAMS_MAX) return tooLarge(`${packets.streams.length} streams`)
  const { video, audio } = streamsOf(packets)
  const codecs = [video, audio].flatMap((stream) => stream?.codec ?? [])
  const unknown = codecs.find((codec) => !CODECS.has(codec))
  if (codecs.length === 0 || unknown) return unsupported(unknown ? `codec ${unknown}` : 'no video and no audio')
  const durationMs = Math.round(Math.max(video?.end ?? 0, audio?.end ?? 0) * 1000)
  if (durationMs > limits.durationMs) return tooLarge(`${durationMs} ms`, lengthAbove(durationMs, limits.durationMs))
  if (video && !(video.width > 0 && video.height > 0)) return unsupported('video without a size')
  if (video && video.width * video.height > limits.pixels) {
    const { width, height } = video
    return tooLarge(`${width} by ${height} pixels`, pixelsAbove(width, height, limits.pixels))
  }
  if (isTruncated(container, packets)) return unsupported(`truncated: the header declares ${packets.format['duration']} s`)
  return { outcome: 'probed', path, container, durationMs, video, audio }
}

async function packetsOf(run: Run, path: string, container: Container): Promise<Packets | NotMade> {
  const found: Packets = { streams: [], format: {}, spans: new Map() }
  const failed = await ffprobe(run, [...inputArgs(path, container), '-show_entries', ENTRIES, '-of', 'compact'], (line) => {
    const [section, ...rest] = line.split('|')
    const fields: Fields = {}
    for (const part of rest) {
      const equals = part.indexOf('=')
      if (equals > 0) fields[part.slice(0, equals)] = part.slice(equals + 1)
    }
    if (section === 'packet') extendSpan(found.spans, fields)
    if (section === 'stream') found.streams.push(fields)
    if (section === 'format') found.format = fields
  })
  return failed ?? found
}

function extendSpan(
  spans: Map<string, Span>,
  { stream_index: index = '', pts_time: pts, dts_time: dts, duration_time: duration }: Fields,
): void {
  // AVI has no presentation times.
  const time = numberOf(pts) ?? numberOf(dts)
  if (time === null) return
  const { first, last, end, packets } = spans.get(index) ?? { first: time, last: time, end: time, packets: 0 }
  spans.set(index, {
    first: Math.min(first, time),
    last: Math.max(last, time),
    end: Math.max(end, time + (numberOf(duration) ?? 0)),
    packets: packets + 1,
  })
}

function streamsOf({ streams, format, spans }: Packets): Pick<Source, 'video' | 'audio'> {
  const zero = numberOf(format['start_time']) ?? 0
  const found: Pick<Source, 'video' | 'audio'> = { video: null, audio: null }
  for (const stream of streams) {
    const span = spans.get(stream['index'] ?? '')
    if (!span) continue
    // An attached picture is the cover of an album.
    if (stream['codec_type'] === 'video' && stream['disposition:attached_pic'] !== '1') found.video ??= videoOf(stream, span, zero)
    if (stream['codec_type'] === 'audio')
      found.audio ??= {
        index: Number(stream['index']),
        codec: stream['codec_name'] ?? 'unknown',
        sampleRate: Number(stream['sample_rate'] ?? 0),
        end: span.end - zero,
      }
  }
  return found
}

function videoOf(stream: Fields, span: Span, zero: number): VideoStream {
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
    rotated: stream['rotation'] !== undefined,
    rate,
    interlaced: ['tt', 'bb', 'tb', 'bt'].includes(stream['field_order'] ?? ''),
    matrix: stream['color_space'] ?? 'unknown',
    transfer: stream['color_transfer'] ?? 'unknown',
    fullRange: stream['color_range'] === 'pc',
    start: span.first - zero,
    // A last frame without a duration lasts as long as one frame.
    end: (span.end > span.last ? span.end : span.last + 1 / perSecond(rate)) - zero,
  }
}

/** The nominal rate, at which every frame has its own time. Some variable rates have a clock of thousands of ticks per second there: then the mean rate. */
function rateOf(nominal: string, { first, end, packets }: Span): string {
  if (perSecond(nominal) > 0 && perSecond(nominal) <= RATE_MAX) return nominal
  const mean = end > first ? packets / (end - first) : 25
  return `${Math.round(Math.min(Math.max(mean, 1), MEAN_RATE_MAX) * 1000)}/1000`
}

/** Frames per second of a fraction; 0 when it is not one. */
export function perSecond(rate: string): number {
  const [frames = 0, seconds = 0] = rate.split('/').map(Number)
  return frames > 0 && seconds > 0 ? frames / seconds : 0
}

/** Demuxers whose duration comes from the header. The others estimate it. */
const DECLARED: ReadonlySet<string> = new Set(['mov', 'matroska', 'avi', 'flac'])

function isTruncated({ demuxer }: Container, { format, spans }: Packets): boolean {
  const end = Math.max(...[...spans.values()].map((span) => span.end)) - (numberOf(format['start_time']) ?? 0)
  return DECLARED.has(demuxer) && isShort(1000 * end, 1000 * (numberOf(format['duration']) ?? 0))
}

/** Whether more is missing than the estimates of containers and damaged packets explain: over a second, and over a tenth. */
export const isShort = (actualMs: number, expectedMs: number): boolean => expectedMs - actualMs > Math.max(1000, expectedMs / 10)

function numberOf(text: string | undefined): number | null {
  return text === undefined || text === 'N/A' || !Number.isFinite(Number(text)) ? null : Number(text)
}
