/** The header of Matroska and WebM (RFC 9559): elements within elements (EBML, RFC 8794). What a browser records does not know its length. Pure. */
import { NOTHING, viewOf, type Header } from './header.ts'

const [SEGMENT, INFO, TIMESTAMP_SCALE, DURATION] = [0x1853_8067, 0x1549_a966, 0x2a_d7b1, 0x4489]
/** Nanoseconds of a tick where none are told. */
const SCALE = 1_000_000
/** Elements that are looked at within one. */
const MOST = 1000

type Element = { id: number; from: number; to: number }

/** The length from `Info` (5.1.2), which goes before what is played. */
export function matroskaHeader(prefix: Uint8Array): Header {
  const view = viewOf(prefix)
  const inSegment = childrenOf(prefix, { id: 0, from: 0, to: prefix.length }).find(({ id }) => id === SEGMENT)
  const info = inSegment && childrenOf(prefix, inSegment).find(({ id }) => id === INFO)
  let scale = SCALE
  let ticks: number | null = null
  for (const { id, from, to } of info ? childrenOf(prefix, info) : []) {
    if (id === TIMESTAMP_SCALE) scale = prefix.subarray(from, to).reduce((value, byte) => value * 256 + byte, 0)
    if (id === DURATION && to - from === 4) ticks = view.getFloat32(from)
    if (id === DURATION && to - from === 8) ticks = view.getFloat64(from)
  }
  const durationMs = Math.round(((ticks ?? 0) * scale) / 1e6)
  return { ...NOTHING, durationMs: durationMs > 0 && Number.isSafeInteger(durationMs) ? durationMs : null }
}

/** The elements within one, as far as they begin within the bytes. One of unknown size goes to the end. */
function childrenOf(bytes: Uint8Array, { from, to }: Element): Element[] {
  const found: Element[] = []
  for (let at = from; at < Math.min(to, bytes.length) && found.length < MOST;) {
    const id = numberAt(bytes, at)
    const size = id && numberAt(bytes, at + id.length)
    if (!id || !size) break
    const begin = at + id.length + size.length
    const end = size.value === 2 ** (7 * size.length) - 1 ? bytes.length : begin + size.value
    found.push({ id: id.marked, from: begin, to: Math.min(end, bytes.length) })
    at = end
  }
  return found
}

/** A number whose length is told by the zeros that it begins with (RFC 8794, section 4). The bit behind them is `marked` in ids. */
export function numberAt(bytes: Uint8Array, at: number): { value: number; marked: number; length: number } | null {
  const first = bytes[at] ?? 0
  const length = Math.clz32(first) - 23
  if (length > 8 || at + length > bytes.length) return null
  const whole = (from: number): number => bytes.subarray(at + 1, at + length).reduce((value, byte) => value * 256 + byte, from)
  return { value: whole(first & (0xff >> length)), marked: whole(first), length }
}
