// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/** The integer transforms and the quantisation of H.264 (ITU-T H.264, 8.5), at one quality. Blocks are 16 numbers, row by row, changed in place. */

/** The quantisation parameter of luma and, below 30, also of chroma: 0 is best, 51 is smallest. */
export const QP = 26

/** Zigzag scan of frame macroblocks (table 8-2). */
export const ZIGZAG = [0, 1, 4, 8, 5, 2, 3, 6, 9, 12, 13, 10, 7, 11, 14, 15] as const

/** For QP mod 6 = 2, by place: what a level is worth (8.5.9), and the encoder's side of it, a reciprocal in units of 2^-15 that includes the norms of the transform. */
const WORTH = places(13, 20, 16)
const SHARE = places(10_082, 4194, 6554)
const SCALE = 1 << Math.floor(QP / 6)
const SHIFT = 15 + Math.floor(QP / 6)
/** Rounding by a third of a level, as is usual for intra pictures. */
const THIRD = Math.floor(2 ** SHIFT / 3)
/** What the code tables reach, with room. */
const LARGEST_LEVEL = 2000

/** One value per place: both coordinates even, both odd, or else. */
function places(even: number, odd: number, mixed: number): Int32Array {
  return Int32Array.from({ length: 16 }, (_, at) => [even, mixed, odd][(at & 1) + ((at >> 2) & 1)]!)
}

/** The level of a coefficient at a place of its block. */
export function quantise(value: number, at: number): number {
  const size = (THIRD + Math.abs(value) * SHARE[at]!) >> SHIFT
  return value < 0 ? -size : size
}

/** The level of a DC coefficient, which went through a second transform. */
export function quantiseDc(value: number): number {
  const size = Math.min(LARGEST_LEVEL, (2 * THIRD + Math.abs(value) * SHARE[0]!) >> (SHIFT + 1))
  return value < 0 ? -size : size
}

function forward(block: Int32Array, at: number, step: number): void {
  const [a, b, c, d] = [block[at]!, block[at + step]!, block[at + 2 * step]!, block[at + 3 * step]!]
  block[at] = a + b + c + d
  block[at + step] = 2 * (a - d) + b - c
  block[at + 2 * step] = a - b - c + d
  block[at + 3 * step] = a - d - 2 * (b - c)
}

function inverse(block: Int32Array, at: number, step: number): void {
  const [a, b, c, d] = [block[at]!, block[at + step]!, block[at + 2 * step]!, block[at + 3 * step]!]
  const low = (b >> 1) - d
  const high = b + (d >> 1)
  block[at] = a + c + high
  block[at + step] = a - c + low
  block[at + 2 * step] = a - c - low
  block[at + 3 * step] = a + c - high
}

function sums(block: Int32Array, at: number, step: number): void {
  const [a, b, c, d] = [block[at]!, block[at + step]!, block[at + 2 * step]!, block[at + 3 * step]!]
  block[at] = a + b + c + d
  block[at + step] = a + b - c - d
  block[at + 2 * step] = a - b - c + d
  block[at + 3 * step] = a - b + c - d
}

function bothWays(block: Int32Array, pass: (block: Int32Array, at: number, step: number) => void): void {
  for (let row = 0; row < 16; row += 4) pass(block, row, 1)
  for (let column = 0; column < 4; column++) pass(block, column, 4)
}

/** The forward core transform. */
export function forward4x4(block: Int32Array): void {
  bothWays(block, forward)
}

/** The inverse core transform with its rounding (8.5.12.2). */
export function inverse4x4(block: Int32Array): void {
  bothWays(block, inverse)
  for (let i = 0; i < 16; i++) block[i] = (block[i]! + 32) >> 6
}

/** The luma DC coefficients through their second transform to levels. */
export function lumaDcLevels(block: Int32Array): void {
  bothWays(block, sums)
  for (let i = 0; i < 16; i++) block[i] = quantiseDc(block[i]! >> 1)
}

/** Levels of the luma DC back to coefficients (8.5.10). */
export function scaleLumaDc(block: Int32Array): void {
  bothWays(block, sums)
  for (let i = 0; i < 16; i++) block[i] = (block[i]! * WORTH[0]! * SCALE + 2) >> 2
}

function sums2x2(block: Int32Array): void {
  const [a = 0, b = 0, c = 0, d = 0] = block
  block[0] = a + b + c + d
  block[1] = a - b + c - d
  block[2] = a + b - c - d
  block[3] = a - b - c + d
}

/** The four chroma DC coefficients through their second transform to levels. */
export function chromaDcLevels(block: Int32Array): void {
  sums2x2(block)
  for (let i = 0; i < 4; i++) block[i] = quantiseDc(block[i]!)
}

/** Levels of the chroma DC back to coefficients (8.5.11). */
export function scaleChromaDc(block: Int32Array): void {
  sums2x2(block)
  for (let i = 0; i < 4; i++) block[i] = (block[i]! * WORTH[0]! * SCALE) >> 1
}

/** Puts the coefficients of a block into `out`: its AC levels, given in zigzag order, and its DC coefficient. */
export function dequantise4x4(levels: Int32Array, dc: number, out: Int32Array): void {
  for (let i = 1; i < 16; i++) out[ZIGZAG[i]!] = levels[i]! * WORTH[ZIGZAG[i]!]! * SCALE
  out[0] = dc
}
