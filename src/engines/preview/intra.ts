// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/** Intra prediction of H.264 (ITU-T H.264, 8.3.3 and 8.3.4): what a block may look like, judged by the decoded samples left of it and above. */
export type Plane = { width: number; height: number; samples: Uint8Array }

export type Prediction = {
  /** The number of the mode in the bit stream. */
  mode: number
  /** Row by row. */
  predicted: Uint8Array
}

/** The samples around a block; null where the picture ends. */
type Around = { left: Uint8Array | null; above: Uint8Array | null; corner: number }

function around({ width, samples }: Plane, x: number, y: number, size: number): Around {
  const at = y * width + x
  const left = new Uint8Array(size)
  if (x > 0) for (let i = 0; i < size; i++) left[i] = samples[at + i * width - 1]!
  return {
    left: x > 0 ? left : null,
    above: y > 0 ? samples.subarray(at - width, at - width + size) : null,
    corner: x > 0 && y > 0 ? samples[at - width - 1]! : 0,
  }
}

/** The predictions that a 16x16 luma block at x, y can have. */
export function lumaModes(decoded: Plane, x: number, y: number): Prediction[] {
  const edges = around(decoded, x, y, 16)
  return [{ mode: 2, predicted: new Uint8Array(256).fill(mean(edges.left, edges.above, 0, 0, 16)) }, ...directional(edges, 16, { vertical: 0, horizontal: 1, plane: 3 })]
}

/** The predictions that an 8x8 chroma block at x, y can have. */
export function chromaModes(decoded: Plane, x: number, y: number): Prediction[] {
  const edges = around(decoded, x, y, 8)
  return [{ mode: 0, predicted: chromaDc(edges) }, ...directional(edges, 8, { vertical: 2, horizontal: 1, plane: 3 })]
}

function directional(edges: Around, size: 16 | 8, modes: { vertical: number; horizontal: number; plane: number }): Prediction[] {
  const { left, above } = edges
  const found: Prediction[] = []
  if (above) found.push({ mode: modes.vertical, predicted: filled(size, (column) => above[column]!) })
  if (left) found.push({ mode: modes.horizontal, predicted: filled(size, (_, row) => left[row]!) })
  if (above && left) found.push({ mode: modes.plane, predicted: tilted(left, above, edges.corner, size) })
  return found
}

function filled(size: number, sample: (column: number, row: number) => number): Uint8Array {
  const out = new Uint8Array(size * size)
  for (let row = 0, i = 0; row < size; row++) for (let column = 0; column < size; column++) out[i++] = sample(column, row)
  return out
}

/** The rounded mean of `size` samples above and to the left, of those that are there; 128 without any. */
function mean(left: Uint8Array | null, above: Uint8Array | null, fromLeft: number, fromAbove: number, size: number): number {
  let sum = 0
  let count = 0
  for (const [edge, from] of [[left, fromLeft], [above, fromAbove]] as const) {
    if (!edge) continue
    for (let i = from; i < from + size; i++) sum += edge[i]!
    count += size
  }
  return count === 0 ? 128 : Math.floor((sum + count / 2) / count)
}

/** Chroma DC goes by quarters: those off the diagonal look at one edge only, if it is there (8.3.4.1). */
function chromaDc({ left, above }: Around): Uint8Array {
  const out = new Uint8Array(64)
  for (let quarter = 0; quarter < 4; quarter++) {
    const [column, row] = [(quarter & 1) * 4, (quarter >> 1) * 4]
    const onlyAbove = quarter === 1 && above
    const onlyLeft = quarter === 2 && left
    const value = mean(onlyAbove ? null : left, onlyLeft ? null : above, row, column, 4)
    for (let i = 0; i < 16; i++) out[(row + (i >> 2)) * 8 + column + (i & 3)] = value
  }
  return out
}

/** Plane prediction: the flat surface that fits the edges best. */
function tilted(left: Uint8Array, above: Uint8Array, corner: number, size: 16 | 8): Uint8Array {
  const half = size / 2
  const factor = size === 16 ? 5 : 34
  const slope = (edge: Uint8Array): number => {
    let sum = 0
    for (let i = 0; i < half; i++) sum += (i + 1) * (edge[half + i]! - (i === half - 1 ? corner : edge[half - 2 - i]!))
    return (factor * sum + 32) >> 6
  }
  const [across, down] = [slope(above), slope(left)]
  const base = 16 * (left[size - 1]! + above[size - 1]!)
  return filled(size, (column, row) => {
    const value = (base + across * (column - half + 1) + down * (row - half + 1) + 16) >> 5
    return value < 0 ? 0 : value > 255 ? 255 : value
  })
}
