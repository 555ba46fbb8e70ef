// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/** Intra prediction of H.264 (ITU-T H.264, 8.3.3 and 8.3.4): what a block may look like, judged by the decoded samples left of it and above. */
import type { Plane } from './yuv-picture.ts'

/** Number of a mode in the bit stream. */
type Modes = { dc: number; vertical: number; horizontal: number; plane: number }
const LUMA: Modes = { dc: 2, vertical: 0, horizontal: 1, plane: 3 }
const CHROMA: Modes = { dc: 0, vertical: 2, horizontal: 1, plane: 3 }

/** The samples around a block, as far as the picture reaches. */
type Around = { left: Uint8Array; above: Uint8Array; hasLeft: boolean; hasAbove: boolean; corner: number }

export type Predictor = {
  /** Puts the prediction of the block at x, y that is nearest to `source` into `predicted`, by the sum of absolute differences. Returns its mode. */
  best(decoded: Plane, source: Plane, x: number, y: number, predicted: Uint8Array): number
  /** Puts the prediction of a mode that is possible there. */
  predict(decoded: Plane, x: number, y: number, mode: number, predicted: Uint8Array): void
}

/** Predicts blocks of 16 (luma) or 8 (chroma) samples a side. It works in memory of its own, for one block at a time. */
export function predictor(size: 16 | 8): Predictor {
  const modes = size === 16 ? LUMA : CHROMA
  const edges: Around = { left: new Uint8Array(size), above: new Uint8Array(size), hasLeft: false, hasAbove: false, corner: 0 }
  const candidate = new Uint8Array(size * size)

  function fill(mode: number, out: Uint8Array): void {
    const { left, above } = edges
    if (mode === modes.dc)
      return size === 16 ? void out.fill(mean(edges.hasLeft ? left : null, edges.hasAbove ? above : null, 0, 0, 16)) : chromaDc(edges, out)
    if (mode === modes.plane) return tilted(edges, size, out)
    for (let row = 0; row < size; row++) {
      if (mode === modes.vertical) out.set(above, row * size)
      else out.fill(left[row]!, row * size, (row + 1) * size)
    }
  }

  return {
    best(decoded, source, x, y, predicted) {
      look(edges, decoded, x, y, size)
      fill(modes.dc, predicted)
      let chosen = modes.dc
      let least = difference(predicted, source, x, y, size, Infinity)
      const choose = (mode: number, sum: number): void => {
        if (sum < least) [chosen, least] = [mode, sum]
      }
      if (edges.hasAbove) choose(modes.vertical, columnsDiffer(edges.above, source, x, y, size, least))
      if (edges.hasLeft) choose(modes.horizontal, rowsDiffer(edges.left, source, x, y, size, least))
      if (edges.hasAbove && edges.hasLeft) {
        tilted(edges, size, candidate)
        choose(modes.plane, difference(candidate, source, x, y, size, least))
      }
      if (chosen === modes.plane) predicted.set(candidate)
      else if (chosen !== modes.dc) fill(chosen, predicted)
      return chosen
    },
    predict(decoded, x, y, mode, predicted) {
      look(edges, decoded, x, y, size)
      fill(mode, predicted)
    },
  }
}

function look(edges: Around, { width, samples }: Plane, x: number, y: number, size: number): void {
  const at = y * width + x
  edges.hasLeft = x > 0
  edges.hasAbove = y > 0
  if (edges.hasLeft) for (let i = 0; i < size; i++) edges.left[i] = samples[at + i * width - 1]!
  if (edges.hasAbove) for (let i = 0; i < size; i++) edges.above[i] = samples[at - width + i]!
  edges.corner = edges.hasLeft && edges.hasAbove ? samples[at - width - 1]! : 0
}

/** The sum of absolute differences, or `limit` or more once it is as large as that. */
function difference(predicted: Uint8Array, { samples, width }: Plane, x: number, y: number, size: number, limit: number): number {
  let sum = 0
  for (let row = 0, i = 0, at = y * width + x; row < size && sum < limit; row++, at += width) {
    for (let column = 0; column < size; column++) sum += Math.abs(samples[at + column]! - predicted[i++]!)
  }
  return sum
}

/** The same of a block whose rows are all like the one above it. */
function columnsDiffer(above: Uint8Array, { samples, width }: Plane, x: number, y: number, size: number, limit: number): number {
  let sum = 0
  for (let row = 0, at = y * width + x; row < size && sum < limit; row++, at += width) {
    for (let column = 0; column < size; column++) sum += Math.abs(samples[at + column]! - above[column]!)
  }
  return sum
}

/** The same of a block whose columns are all like the one left of it. */
function rowsDiffer(left: Uint8Array, { samples, width }: Plane, x: number, y: number, size: number, limit: number): number {
  let sum = 0
  for (let row = 0, at = y * width + x; row < size && sum < limit; row++, at += width) {
    const value = left[row]!
    for (let column = 0; column < size; column++) sum += Math.abs(samples[at + column]! - value)
  }
  return sum
}

/** The rounded mean of `size` samples above and to the left, of those that are there; 128 without any. */
function mean(left: Uint8Array | null, above: Uint8Array | null, fromLeft: number, fromAbove: number, size: number): number {
  let sum = 0
  if (left) for (let i = fromLeft; i < fromLeft + size; i++) sum += left[i]!
  if (above) for (let i = fromAbove; i < fromAbove + size; i++) sum += above[i]!
  const count = (left ? size : 0) + (above ? size : 0)
  return count === 0 ? 128 : Math.floor((sum + count / 2) / count)
}

/** Chroma DC goes by quarters: those off the diagonal look at one edge only, if it is there (8.3.4.1). */
function chromaDc({ left, above, hasLeft, hasAbove }: Around, out: Uint8Array): void {
  for (let quarter = 0; quarter < 4; quarter++) {
    const column = (quarter & 1) * 4
    const row = (quarter >> 1) * 4
    const onlyAbove = quarter === 1 && hasAbove
    const onlyLeft = quarter === 2 && hasLeft
    const value = mean(hasLeft && !onlyAbove ? left : null, hasAbove && !onlyLeft ? above : null, row, column, 4)
    for (let i = 0; i < 16; i++) out[(row + (i >> 2)) * 8 + column + (i & 3)] = value
  }
}

/** Plane prediction: the flat surface that fits the edges best. */
function tilted({ left, above, corner }: Around, size: 16 | 8, out: Uint8Array): void {
  const half = size / 2
  const across = slope(above, corner, size)
  const down = slope(left, corner, size)
  const base = 16 * (left[size - 1]! + above[size - 1]!) + 16
  for (let row = 0, i = 0; row < size; row++) {
    let value = base + across * (1 - half) + down * (row - half + 1)
    for (let column = 0; column < size; column++, value += across) {
      const sample = value >> 5
      out[i++] = sample < 0 ? 0 : sample > 255 ? 255 : sample
    }
  }
}

function slope(edge: Uint8Array, corner: number, size: 16 | 8): number {
  const half = size / 2
  let sum = 0
  for (let i = 0; i < half; i++) sum += (i + 1) * (edge[half + i]! - (i === half - 1 ? corner : edge[half - 2 - i]!))
  return ((size === 16 ? 5 : 34) * sum + 32) >> 6
}
