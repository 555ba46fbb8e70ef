// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/**
 * The integer transforms and the quantisation of H.264 (ITU-T H.264, 8.5), at one quality. A block is 16 numbers, row by row. Every pixel
 * of a film comes through here.
 */
import type { Plane } from './yuv-picture.ts'

/** The quantisation parameter of luma and, below 30, also of chroma: 0 is best, 51 is smallest. */
export const QP = 26

/** Zigzag scan of frame macroblocks (table 8-2). */
export const ZIGZAG = Uint8Array.of(0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15)

/**
 * For QP mod 6 = 2, by place: what a level is worth (8.5.9), and the encoder's side of it, a reciprocal in units of 2^-15 that includes the
 * norms of the transform.
 */
const WORTH = places(13, 20, 16)
const SHARE = places(10_082, 4194, 6554)
const SCALE = 1 << Math.floor(QP / 6)
const SHIFT = 15 + Math.floor(QP / 6)
/** Rounding by a third of a level, as is usual for intra pictures. */
const THIRD = Math.floor(2 ** SHIFT / 3)
/** A coefficient below this has level 0 at every place. */
const LEAST = Math.ceil((2 ** SHIFT - THIRD) / Math.max(...SHARE))
/** What the code tables reach, with room. */
const LARGEST_LEVEL = 2000

/** One value per place: both coordinates even, both odd, or else. */
function places(even: number, odd: number, mixed: number): Int32Array {
  return Int32Array.from({ length: 16 }, (_, at) => [even, mixed, odd][(at & 1) + ((at >> 2) & 1)]!)
}

/** The level of a DC coefficient, which went through a second transform. */
function quantiseDc(value: number): number {
  const size = Math.min(LARGEST_LEVEL, (2 * THIRD + Math.abs(value) * SHARE[0]!) >> (SHIFT + 1))
  return value < 0 ? -size : size
}

/**
 * What a prediction leaves of the block at x, y of `source`, transformed (8.5.12, forward): the prediction of the block begins at `from`
 * and has `stride` samples a row.
 */
export function forward(source: Plane, x: number, y: number, predicted: Uint8Array, from: number, stride: number, out: Int32Array): void {
  const { samples, width } = source
  for (let row = 0, at = y * width + x; row < 4; row++, at += width, from += stride) {
    const a = samples[at]! - predicted[from]!
    const b = samples[at + 1]! - predicted[from + 1]!
    const c = samples[at + 2]! - predicted[from + 2]!
    const d = samples[at + 3]! - predicted[from + 3]!
    out[row * 4] = a + b + c + d
    out[row * 4 + 1] = 2 * (a - d) + b - c
    out[row * 4 + 2] = a - b - c + d
    out[row * 4 + 3] = a - d - 2 * (b - c)
  }
  for (let column = 0; column < 4; column++) {
    const a = out[column]!
    const b = out[column + 4]!
    const c = out[column + 8]!
    const d = out[column + 12]!
    out[column] = a + b + c + d
    out[column + 4] = 2 * (a - d) + b - c
    out[column + 8] = a - b - c + d
    out[column + 12] = a - d - 2 * (b - c)
  }
}

/** The levels of the AC coefficients of a block, in zigzag order from `at` + 1. Returns whether any is not zero. */
export function quantiseAc(block: Int32Array, levels: Int32Array, at: number): boolean {
  let largest = 0
  for (let i = 1; i < 16; i++) largest |= Math.abs(block[i]!)
  // Most blocks of a smooth picture have nothing but DC.
  if (largest < LEAST) {
    levels.fill(0, at + 1, at + 16)
    return false
  }
  let any = 0
  for (let i = 1; i < 16; i++) {
    const place = ZIGZAG[i]!
    const value = block[place]!
    const size = (THIRD + Math.abs(value) * SHARE[place]!) >> SHIFT
    levels[at + i] = value < 0 ? -size : size
    any |= size
  }
  return any !== 0
}

const worked = new Int32Array(16)

/**
 * Puts what a decoder will have into the block at x, y of `target`: the prediction and the inverse transform of the levels at `at` and of
 * the DC coefficient (8.5.12.2). Without AC levels that is one number for the whole block.
 */
export function reconstruct(
  target: Plane,
  x: number,
  y: number,
  predicted: Uint8Array,
  from: number,
  stride: number,
  levels: Int32Array | null,
  at: number,
  dc: number,
): void {
  const { samples, width } = target
  if (!levels) return shift(target, x, y, predicted, from, stride, (dc + 32) >> 6)
  inverse(levels, at, dc)
  for (let row = 0, to = y * width + x; row < 4; row++, to += width, from += stride) {
    for (let column = 0; column < 4; column++) {
      const value = predicted[from + column]! + worked[row * 4 + column]!
      samples[to + column] = value < 0 ? 0 : value > 255 ? 255 : value
    }
  }
}

/** The block as it was predicted, lighter or darker by one number. */
function shift({ samples, width }: Plane, x: number, y: number, predicted: Uint8Array, from: number, stride: number, by: number): void {
  for (let row = 0, to = y * width + x; row < 4; row++, to += width, from += stride) {
    for (let column = 0; column < 4; column++) {
      const value = predicted[from + column]! + by
      samples[to + column] = value < 0 ? 0 : value > 255 ? 255 : value
    }
  }
}

function inverse(levels: Int32Array, at: number, dc: number): void {
  worked[0] = dc
  for (let i = 1; i < 16; i++) {
    const place = ZIGZAG[i]!
    worked[place] = levels[at + i]! * WORTH[place]! * SCALE
  }
  for (let row = 0; row < 16; row += 4) inversePass(row, 1)
  for (let column = 0; column < 4; column++) inversePass(column, 4)
  for (let i = 0; i < 16; i++) worked[i] = (worked[i]! + 32) >> 6
}

function inversePass(at: number, step: number): void {
  const a = worked[at]!
  const b = worked[at + step]!
  const c = worked[at + 2 * step]!
  const d = worked[at + 3 * step]!
  const low = (b >> 1) - d
  const high = b + (d >> 1)
  worked[at] = a + c + high
  worked[at + step] = a - c + low
  worked[at + 2 * step] = a - c - low
  worked[at + 3 * step] = a + c - high
}

function sums(block: Int32Array, at: number, step: number): void {
  const a = block[at]!
  const b = block[at + step]!
  const c = block[at + 2 * step]!
  const d = block[at + 3 * step]!
  block[at] = a + b + c + d
  block[at + step] = a + b - c - d
  block[at + 2 * step] = a - b - c + d
  block[at + 3 * step] = a - b + c - d
}

function sums4x4(block: Int32Array): void {
  for (let row = 0; row < 16; row += 4) sums(block, row, 1)
  for (let column = 0; column < 4; column++) sums(block, column, 4)
}

/** The luma DC coefficients through their second transform to levels, in place. */
export function lumaDcLevels(block: Int32Array): void {
  sums4x4(block)
  for (let i = 0; i < 16; i++) block[i] = quantiseDc(block[i]! >> 1)
}

/** Levels of the luma DC back to coefficients (8.5.10), in place. */
export function scaleLumaDc(block: Int32Array): void {
  sums4x4(block)
  for (let i = 0; i < 16; i++) block[i] = (block[i]! * WORTH[0]! * SCALE + 2) >> 2
}

function sums2x2(block: Int32Array): void {
  const [a = 0, b = 0, c = 0, d = 0] = block
  block[0] = a + b + c + d
  block[1] = a - b + c - d
  block[2] = a + b - c - d
  block[3] = a - b - c + d
}

/** The four chroma DC coefficients through their second transform to levels, in place. */
export function chromaDcLevels(block: Int32Array): void {
  sums2x2(block)
  for (let i = 0; i < 4; i++) block[i] = quantiseDc(block[i]!)
}

/** Levels of the chroma DC back to coefficients (8.5.11), in place. */
export function scaleChromaDc(block: Int32Array): void {
  sums2x2(block)
  for (let i = 0; i < 4; i++) block[i] = (block[i]! * WORTH[0]! * SCALE) >> 1
}
