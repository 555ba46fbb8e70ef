/** Colours for pixels that have none, or none to rely on, from those around them. */

/** Four floats a pixel: red, green, and blue, each times the weight, and the weight, 0 to 1. */
type Level = { width: number; height: number; values: Float32Array }

/**
 * Continues colours smoothly from pixels that have a weight into those that have little or none (pull-push: averages at ever lower
 * resolution until everything is covered, then back). `pixels` are RGBA; `weights` are 0 to 255, one a pixel. Returns RGBA, opaque; black
 * when nothing has a weight.
 */
export function bleed(pixels: Uint8Array, weights: Uint8Array, width: number, height: number): Uint8Array {
  const values = new Float32Array(width * height * 4)
  for (let i = 0; i < values.length; i += 4) {
    const weight = at(weights, i >> 2) / 255
    for (let c = 0; c < 3; c++) values[i + c] = weight * at(pixels, i + c)
    values[i + 3] = weight
  }
  complete({ width, height, values })
  const bled = new Uint8Array(values.length)
  for (let i = 0; i < values.length; i++) bled[i] = i % 4 === 3 ? 255 : Math.round(at(values, i))
  return bled
}

/** Brings every pixel to full weight, by what the level of half the size has there. */
function complete(level: Level): void {
  if (level.width === 1 && level.height === 1) return
  const half = halved(level)
  complete(half)
  const { width, height, values } = level
  for (let y = 0, i = 0; y < height; y++) {
    for (let x = 0; x < width; x++, i += 4) if (at(values, i + 3) < 1) addSample(half, x / 2 - 0.25, y / 2 - 0.25, values, i)
  }
}

function halved({ width, height, values }: Level): Level {
  const half = { width: (width + 1) >> 1, height: (height + 1) >> 1 }
  const sums = new Float32Array(half.width * half.height * 4)
  for (let y = 0, i = 0; y < height; y++) {
    for (let x = 0; x < width; x++, i += 4) {
      const to = 4 * ((y >> 1) * half.width + (x >> 1))
      for (let c = 0; c < 4; c++) sums[to + c] = at(sums, to + c) + at(values, i + c)
    }
  }
  for (let i = 0; i < sums.length; i += 4) {
    const weight = at(sums, i + 3)
    if (weight > 1) for (let c = 0; c < 4; c++) sums[i + c] = at(sums, i + c) / weight
  }
  return { ...half, values: sums }
}

/** Adds what a level has at a place between its pixels, with as much weight as the pixel at `to` lacks. */
function addSample({ width, height, values }: Level, x: number, y: number, target: Float32Array, to: number): void {
  const [left, top] = [Math.floor(x), Math.floor(y)]
  const missing = 1 - at(target, to + 3)
  for (let corner = 0; corner < 4; corner++) {
    const [right, below] = [corner & 1, corner >> 1]
    const share = missing * (right ? x - left : 1 - x + left) * (below ? y - top : 1 - y + top)
    const from = 4 * (clamp(top + below, height) * width + clamp(left + right, width))
    for (let c = 0; c < 4; c++) target[to + c] = at(target, to + c) + share * at(values, from + c)
  }
}

function clamp(index: number, length: number): number {
  return Math.min(Math.max(index, 0), length - 1)
}

function at(values: Uint8Array | Float32Array, index: number): number {
  return values[index] ?? 0
}
