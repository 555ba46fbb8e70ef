/**
 * The guided filter (He, Sun, Tang: Guided Image Filtering, 2010; Fast Guided Filter, 2015): a rough mask gets the edges of the picture.
 * Within each window the mask is taken to be a linear function of the colours. Its coefficients are found at a low resolution and applied
 * at the full one.
 */

/** Four numbers a pixel: the mask there is r, g, and b (0 to 1) times the first three, plus the fourth. */
export type Coefficients = { width: number; height: number; values: [Float32Array, Float32Array, Float32Array, Float32Array] }

/**
 * The coefficients for a guide (RGBA) and a mask (0 to 1, one a pixel) of its size. `radius` is that of the window in pixels; differences
 * in colour whose square is below `epsilon` (colours 0 to 1) are no edges.
 */
export function guidedCoefficients(
  guide: Uint8Array,
  mask: Float32Array,
  width: number,
  height: number,
  radius: number,
  epsilon: number,
): Coefficients {
  const scratch = { rows: new Float32Array(mask.length), products: new Float32Array(mask.length) }
  const mean = (plane: Float32Array): Float32Array => boxMean(plane, width, height, radius, scratch.rows)
  const covariance = (a: Float32Array, aMean: Float32Array, b: Float32Array, bMean: Float32Array): Float32Array => {
    for (let i = 0; i < a.length; i++) scratch.products[i] = at(a, i) * at(b, i)
    const result = mean(scratch.products)
    for (let i = 0; i < a.length; i++) result[i] = at(result, i) - at(aMean, i) * at(bMean, i)
    return result
  }
  const colours = [0, 1, 2].map((c) => mask.map((_, i) => at(guide, 4 * i + c) / 255)) as Three
  const [r, g, b] = colours
  const means = colours.map(mean) as Three
  const offset = mean(mask)
  const withMask = colours.map((colour, c) => covariance(colour, means[c] as Float32Array, mask, offset)) as Three
  const among = (
    [
      [r, 0, r, 0],
      [r, 0, g, 1],
      [r, 0, b, 2],
      [g, 1, g, 1],
      [g, 1, b, 2],
      [b, 2, b, 2],
    ] as const
  ).map(([one, i, other, j]) => covariance(one, means[i], other, means[j])) as Six
  for (let i = 0; i < offset.length; i++) solve(among, withMask, means, offset, epsilon, i)
  return { width, height, values: [mean(withMask[0]), mean(withMask[1]), mean(withMask[2]), mean(offset)] }
}

type Three = [Float32Array, Float32Array, Float32Array]
type Six = [Float32Array, Float32Array, Float32Array, Float32Array, Float32Array, Float32Array]

/**
 * Solves (covariance + epsilon) · a = covariance with the mask for one pixel by Cramer's rule. Writes a into `withMask`; `offset`, before
 * the mean of the mask, becomes the offset.
 */
function solve(among: Six, withMask: Three, means: Three, offset: Float32Array, epsilon: number, i: number): void {
  const [rr, rg, rb] = [at(among[0], i) + epsilon, at(among[1], i), at(among[2], i)]
  const [gg, gb, bb] = [at(among[3], i) + epsilon, at(among[4], i), at(among[5], i) + epsilon]
  const [x, y, z] = [at(withMask[0], i), at(withMask[1], i), at(withMask[2], i)]
  const [first, second, third] = [gg * bb - gb * gb, gb * rb - rg * bb, rg * gb - gg * rb]
  const determinant = rr * first + rg * second + rb * third
  const ar = (first * x + second * y + third * z) / determinant
  const ag = (second * x + (rr * bb - rb * rb) * y + (rb * rg - rr * gb) * z) / determinant
  const ab = (third * x + (rb * rg - rr * gb) * y + (rr * gg - rg * rg) * z) / determinant
  withMask[0][i] = ar
  withMask[1][i] = ag
  withMask[2][i] = ab
  offset[i] = at(offset, i) - ar * at(means[0], i) - ag * at(means[1], i) - ab * at(means[2], i)
}

/** The mask of a picture (RGBA) of any size, 0 to 255, one a pixel, by coefficients of the same picture in small. */
export function applyCoefficients(
  { width, height, values }: Coefficients,
  pixels: Uint8Array,
  fullWidth: number,
  fullHeight: number,
): Uint8Array {
  const mask = new Uint8Array(fullWidth * fullHeight)
  const [ar, ag, ab, offset] = values
  const columns = Array.from({ length: fullWidth }, (_, x) => place(x, fullWidth, width))
  for (let y = 0, i = 0; y < fullHeight; y++) {
    const row = place(y, fullHeight, height)
    const [top, bottom] = [row.first * width, row.second * width]
    for (let x = 0; x < fullWidth; x++, i++) {
      const { first, second, share } = columns[x] as Place
      const [nw, ne, sw, se] = [(1 - share) * (1 - row.share), share * (1 - row.share), (1 - share) * row.share, share * row.share]
      const value = (plane: Float32Array): number =>
        nw * at(plane, top + first) + ne * at(plane, top + second) + sw * at(plane, bottom + first) + se * at(plane, bottom + second)
      mask[i] = Math.round(
        Math.min(
          Math.max(
            value(ar) * at(pixels, 4 * i) + value(ag) * at(pixels, 4 * i + 1) + value(ab) * at(pixels, 4 * i + 2) + 255 * value(offset),
            0,
          ),
          255,
        ),
      )
    }
  }
  return mask
}

type Place = { first: number; second: number; share: number }

/** Between which two pixels of a shorter line a pixel of a longer one lies, and how near to the second. */
function place(index: number, length: number, shorter: number): Place {
  const position = Math.min(Math.max(((index + 0.5) * shorter) / length - 0.5, 0), shorter - 1)
  const first = Math.floor(position)
  return { first, second: Math.min(first + 1, shorter - 1), share: position - first }
}

/** The mean over the window around each pixel, as far as it lies in the picture. `rows` is overwritten. */
function boxMean(plane: Float32Array, width: number, height: number, radius: number, rows: Float32Array): Float32Array {
  for (let y = 0; y < height; y++) rowMean(plane, rows, y * width, width, radius)
  const means = new Float32Array(plane.length)
  const sums = new Float32Array(width)
  for (let y = 0; y < height + radius; y++) {
    const [enters, leaves, to] = [y * width, (y - 2 * radius - 1) * width, (y - radius) * width]
    const count = Math.min(y, height - 1) - Math.max(y - 2 * radius, 0) + 1
    for (let x = 0; x < width; x++) {
      if (y < height) sums[x] = at(sums, x) + at(rows, enters + x)
      if (leaves >= 0) sums[x] = at(sums, x) - at(rows, leaves + x)
      if (to >= 0) means[to + x] = at(sums, x) / count
    }
  }
  return means
}

function rowMean(from: Float32Array, to: Float32Array, start: number, length: number, radius: number): void {
  let sum = 0
  let count = 0
  for (let i = 0; i < length + radius; i++) {
    if (i < length) {
      sum += at(from, start + i)
      count++
    }
    if (i > 2 * radius) {
      sum -= at(from, start + i - 2 * radius - 1)
      count--
    }
    if (i >= radius) to[start + i - radius] = sum / count
  }
}

function at(values: Uint8Array | Float32Array, index: number): number {
  return values[index] as number
}
