/**
 * The length of a file whose header does not tell it: AAC as a stream, MPEG-TS, and what is written while it is recorded, as by a browser. It is
 * counted over the whole file, which is read in pieces. Pure.
 */
import type { MediaInfo } from '../media-info.ts'
import { viewOf } from './header.ts'
import { numberAt } from './matroska-header.ts'
import { boxes } from './mp4-header.ts'

/**
 * `read` takes the next piece of a file, whose place in it is `at`, and returns the place to read from next; not beyond `at` where nothing more
 * can be read.
 */
export type Counter = { read(bytes: Uint8Array, at: number): number; durationMs(): number }

/** What counting may take: bytes to read, and frames, elements or boxes to look at. It is used up. */
export type Budget = { bytes: number; parts: number }

/** A medium of hours takes less. */
export const openBudget = (): Budget => ({ bytes: 64 * 1024 * 1024, parts: 1_000_000 })

const COUNTERS: Record<string, (budget: Budget) => Counter> = {
  'audio/aac': countAdts,
  'video/mp2t': countTransportStream,
  'video/webm': countMatroska,
  'video/x-matroska': countMatroska,
  'video/mp4': countFragments,
  'video/quicktime': countFragments,
  'audio/mp4': countFragments,
}

/** Counts the length of a file of that type; null for a type whose header always tells it, or that is not known here. */
export const counterFor = (contentType: string, budget: Budget): Counter | null => COUNTERS[contentType]?.(budget) ?? null

/** Less than that may be left over at the end of a file. */
const PACKET_BYTES = 188

/** What is read at once where the length of a file is counted. */
const COUNTED_BYTES = 512 * 1024

/** Facts with the length, which is counted where the header does not tell it; `piece` reads the file, which has `size` bytes. */
export async function counted(
  info: MediaInfo | null,
  size: number,
  budget: Budget,
  piece: (start: number, bytes: number) => Promise<Uint8Array>,
): Promise<MediaInfo | null> {
  const counter = info && info.durationMs === null ? counterFor(info.contentType, budget) : null
  if (!counter) return info
  for (let at = 0; at < size;) {
    if (budget.bytes <= 0) return info
    const bytes = await piece(at, COUNTED_BYTES)
    budget.bytes -= bytes.length
    const next = counter.read(bytes, at)
    if (next > at) at = next
    else if (size - at < PACKET_BYTES) break
    else return info
  }
  const durationMs = Math.round(counter.durationMs())
  return { ...(info as MediaInfo), durationMs: durationMs > 0 && Number.isSafeInteger(durationMs) ? durationMs : null }
}

const ADTS_RATES = [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350]

/** Frames of ADTS (ISO/IEC 13818-7, 6.2), of one to four blocks of 1024 samples. */
function countAdts(budget: Budget): Counter {
  let seconds = 0
  return {
    read(bytes, at) {
      let next = 0
      while (next + 7 <= bytes.length && budget.parts-- > 0) {
        const [first = 0, second = 0, third = 0, fourth = 0, fifth = 0, sixth = 0, seventh = 0] = bytes.subarray(next, next + 7)
        const rate = ADTS_RATES[(third >> 2) & 15]
        const size = ((fourth & 3) << 11) | (fifth << 3) | (sixth >> 5)
        const isFrame = first === 0xff && (second & 0xf6) === 0xf0 && rate !== undefined && size >= 7
        if (!isFrame) break
        seconds += (((seventh & 3) + 1) * 1024) / rate
        next += size
      }
      return at + next
    },
    durationMs: () => seconds * 1000,
  }
}

const STREAMS_MAX = 100

type Times = { from: number; to: number; count: number; before: number }

/**
 * The length of the longest stream of a file by the times of its parts. The last part lasts as long as the others do on average. Times that jump
 * begin anew, as in files that were joined.
 */
function openTimes(ticksPerSecond: () => number) {
  const streams = new Map<number, Times>()
  const lengthOf = ({ from, to, count, before }: Times): number => before + (count > 1 ? ((to - from) * count) / (count - 1) : 0)
  return {
    add(id: number, time: number): void {
      const known = streams.get(id)
      const sinceSeconds = known ? (time - known.to) / ticksPerSecond() : 0
      if (known && sinceSeconds > -1 && sinceSeconds < 10)
        Object.assign(known, { from: Math.min(known.from, time), to: Math.max(known.to, time), count: known.count + 1 })
      else if (known || streams.size < STREAMS_MAX) streams.set(id, { from: time, to: time, count: 1, before: known ? lengthOf(known) : 0 })
    },
    durationMs: () => (Math.max(0, ...[...streams.values()].map(lengthOf)) / ticksPerSecond()) * 1000,
  }
}

/** The presentation times of MPEG-TS (ISO/IEC 13818-1, 2.4.3): in packets of 188 bytes, of which some begin a part of a stream. */
function countTransportStream(): Counter {
  const times = openTimes(() => 90_000)
  return {
    read(bytes, at) {
      const view = viewOf(bytes)
      let next = 0
      while (next + PACKET_BYTES <= bytes.length && bytes[next] === 0x47) {
        const [second = 0, third = 0, fourth = 0, adaptation = 0] = bytes.subarray(next + 1, next + 5)
        const part = next + 4 + ((fourth & 0x20) === 0 ? 0 : 1 + adaptation)
        const begins =
          (second & 0x40) !== 0 && (fourth & 0x10) !== 0 && part + 14 <= next + PACKET_BYTES && view.getUint32(part) >>> 8 === 1
        const isTimed =
          begins && (view.getUint8(part + 3) & 0xc0) === 0xc0 && view.getUint8(part + 3) < 0xf0 && view.getUint8(part + 7) >= 0x80
        if (isTimed) {
          const time =
            ((view.getUint8(part + 9) >> 1) & 7) * 2 ** 30 + (view.getUint16(part + 10) >> 1) * 2 ** 15 + (view.getUint16(part + 12) >> 1)
          times.add(((second & 0x1f) << 8) | third, time)
        }
        next += PACKET_BYTES
      }
      return at + next
    },
    durationMs: times.durationMs,
  }
}

/** Segment, Info, Cluster and BlockGroup. What is looked for lies in them. */
const MASTERS = new Set([0x1853_8067, 0x1549_a966, 0x1f43_b675, 0xa0])
const [TIMESTAMP_SCALE, TIMESTAMP, SIMPLE_BLOCK, BLOCK] = [0x2a_d7b1, 0xe7, 0xa3, 0xa1]
/** The times of the blocks of Matroska (RFC 9559, 10.2), which are relative to that of their cluster. */
function countMatroska(budget: Budget): Counter {
  let [scale, cluster] = [1_000_000, 0]
  const times = openTimes(() => 1e9 / scale)
  return {
    read(bytes, at) {
      let next = 0
      while (budget.parts-- > 0) {
        const id = numberAt(bytes, next)
        const size = id && numberAt(bytes, next + id.length)
        const from = next + (id?.length ?? 0) + (size?.length ?? 0)
        // What is read of an element has 11 bytes at most: the time of a block behind the number of its track.
        if (!id || !size || (from + Math.min(size.value, 11) > bytes.length && !MASTERS.has(id.marked))) break
        next = from + (MASTERS.has(id.marked) ? 0 : size.value)
        const number = (): number => bytes.subarray(from, Math.min(next, from + 8)).reduce((value, byte) => value * 256 + byte, 0)
        if (id.marked === TIMESTAMP_SCALE) scale = number() || scale
        if (id.marked === TIMESTAMP) cluster = number()
        const track = id.marked === SIMPLE_BLOCK || id.marked === BLOCK ? numberAt(bytes, from) : null
        if (track && from + track.length + 2 <= bytes.length) times.add(track.value, cluster + viewOf(bytes).getInt16(from + track.length))
      }
      return at + next
    },
    durationMs: times.durationMs,
  }
}

/** Boxes that others are looked for in. */
const CONTAINERS = new Set(['moov', 'trak', 'mdia', 'mvex', 'moof', 'traf'])
const USED = new Set(['tkhd', 'mdhd', 'trex', 'tfhd', 'tfdt', 'trun'])
/** Those have their fields in it. */
const HEAD_BYTES = 32

/** The samples of a movie in fragments (ISO/IEC 14496-12, 8.8), by track. */
function countFragments(budget: Budget): Counter {
  /** `before`: the ticks of the movies that this one was joined to. */
  const tracks = new Map<number, { timescale: number; sampleTicks: number; from: number | null; to: number; before: number }>()
  // Of the boxes that are being read. One array for all heads: a file may have a million.
  const head = new Uint8Array(HEAD_BYTES)
  const view = viewOf(head)
  let track = trackOf(0)
  let sampleTicks = 0

  function trackOf(id: number) {
    const found = tracks.get(id) ?? { timescale: 0, sampleTicks: 0, from: null, to: 0, before: 0 }
    if (tracks.size < STREAMS_MAX) tracks.set(id, found)
    return found
  }

  /** The next fragment of the track, at a time of which that of a joined movie is more than a second earlier. */
  function begin(time: number): void {
    if (track.from !== null && time < track.to - track.timescale) {
      track.before += track.to - track.from
      track.from = null
    }
    track.to = time
  }

  function use(type: string, content: Uint8Array): void {
    // With zeros behind, for one that is too short.
    head.fill(0)
    head.set(content.subarray(0, HEAD_BYTES))
    const [isWide, flags] = [view.getUint8(0) === 1, view.getUint32(0)]
    if (type === 'tkhd') track = trackOf(view.getUint32(isWide ? 20 : 12))
    if (type === 'mdhd') track.timescale = view.getUint32(isWide ? 20 : 12)
    if (type === 'trex') trackOf(view.getUint32(4)).sampleTicks = view.getUint32(12)
    if (type === 'tfhd') {
      track = trackOf(view.getUint32(4))
      sampleTicks = (flags & 8) === 0 ? track.sampleTicks : view.getUint32(8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0))
    }
    if (type === 'tfdt') begin(isWide ? Number(view.getBigUint64(4)) : view.getUint32(4))
    if (type !== 'trun') return
    track.from ??= track.to
    const [samples, first] = [view.getUint32(4), 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0)]
    const each = 4 * [0x100, 0x200, 0x400, 0x800].filter((flag) => (flags & flag) !== 0).length
    if ((flags & 0x100) === 0) track.to += samples * sampleTicks
    else {
      const durations = viewOf(content)
      for (let at = first; at < Math.min(first + samples * each, content.length - 3); at += each) track.to += durations.getUint32(at)
    }
  }

  /** Where the next box begins: behind the bytes, or one to look into that is not all there. */
  function walk(bytes: Uint8Array, from: number, to: number, depth: number): number {
    const { end } = boxes(bytes, from, to, (box) => {
      if (budget.parts-- <= 0) return true
      // None is longer than the one that it lies in: what is used would be read again for each.
      if (box.to > to && (depth > 0 || CONTAINERS.has(box.type))) return true
      if (depth > 0 && USED.has(box.type)) use(box.type, bytes.subarray(box.from, box.to))
      if (depth > 2 || !CONTAINERS.has(box.type)) return false
      walk(bytes, box.from, box.to, depth + 1)
      return false
    })
    return end
  }

  const msOf = ({ timescale, from, to, before }: ReturnType<typeof trackOf>): number =>
    timescale === 0 || from === null ? 0 : ((before + to - from) / timescale) * 1000
  return {
    read: (bytes, at) => at + walk(bytes, 0, bytes.length, 0),
    durationMs: () => Math.max(0, ...[...tracks.values()].map(msOf)),
  }
}
