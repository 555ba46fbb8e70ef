/** Reads as much of MP4 (ISO/IEC 14496-12) and H.264 (ITU-T H.264, 7.3.2.1) as the tests look at; written apart from the code that writes them. */
export type Box = { type: string; start: number; data: Buffer }

const CONTAINERS = new Set(['moov', 'trak', 'mdia', 'minf', 'dinf', 'stbl'])
/** Boxes that hold others behind fields of their own, and how long those are. */
const BEHIND: Record<string, number> = { stsd: 8, avc1: 78, dref: 8 }

/** The boxes of a file: those at its top, or all of a type wherever they are. Throws when sizes do not add up. */
export function boxes(file: Buffer, type?: string): Box[] {
  const top: Box[] = []
  const all: Box[] = []
  function walk(from: number, to: number, depth: number): void {
    for (let at = from; at < to; ) {
      const size = file.readUInt32BE(at)
      if (size < 8 || at + size > to) throw new Error(`a box at ${at} is ${size} bytes long`)
      const box = { type: file.toString('latin1', at + 4, at + 8), start: at, data: file.subarray(at + 8, at + size) }
      if (depth === 0) top.push(box)
      all.push(box)
      const behind = BEHIND[box.type]
      if (CONTAINERS.has(box.type) || behind !== undefined) walk(at + 8 + (behind ?? 0), at + size, depth + 1)
      at += size
    }
  }
  walk(0, file.length, 0)
  return type === undefined ? top : all.filter((box) => box.type === type)
}

type Sps = { profile: number; level: number; width: number; height: number; fullRange: boolean; colours: number[] }

/** A sequence parameter set of the Baseline profile. */
export function readSps(nal: Buffer): Sps {
  const text = [...Buffer.from(nal.toString('latin1').replaceAll('\0\0\x03', '\0\0'), 'latin1')].map((byte) => byte.toString(2).padStart(8, '0')).join('')
  let at = 8
  const fixed = (bits: number): number => Number.parseInt(text.slice(at, (at += bits)), 2)
  const golomb = (): number => {
    let zeros = 0
    while (text[at + zeros] === '0') zeros++
    at += zeros
    return fixed(zeros + 1) - 1
  }
  const profile = fixed(8)
  fixed(8)
  const level = fixed(8)
  for (let i = 0; i < 4; i++) golomb() // id, frame_num, order of pictures, reference frames
  fixed(1)
  const [wide, high] = [golomb() + 1, golomb() + 1]
  fixed(2)
  const [left, right, top, bottom] = fixed(1) ? [golomb(), golomb(), golomb(), golomb()] : [0, 0, 0, 0]
  if (fixed(1) !== 1 || fixed(2) !== 0 || fixed(1) !== 1) throw new Error('no description of colours')
  fixed(3)
  const fullRange = fixed(1) === 1
  const colours = fixed(1) ? [fixed(8), fixed(8), fixed(8)] : []
  return { profile, level, width: wide * 16 - 2 * (left! + right!), height: high * 16 - 2 * (top! + bottom!), fullRange, colours }
}
