/** Pictures as the numbers that networks see, and back. */
import type { Image } from './codec.ts'
import type { Planes } from './network.ts'

/** How a network counts colours: what white is to it, in which order they come, and how they are normalised. */
export type Colours = { white: number; channels: 'rgb' | 'bgr'; mean: readonly number[]; deviation: readonly number[] }

/**
 * A part of a picture; beyond the border its last pixels are repeated. `brightest` is the value of the picture, of 255, that counts as white. With `room` there is
 * a channel more, of zeros.
 */
export function planesOf(
  { width, height, pixels }: Image,
  part: { x: number; y: number; width: number; height: number },
  { white, channels, mean, deviation }: Colours,
  brightest = 255,
  room = 0,
): Planes {
  const size = part.width * part.height
  const values = new Float32Array(size * (3 + room))
  for (let y = 0, to = 0; y < part.height; y++) {
    const row = clamp(part.y + y, height) * width
    for (let x = 0; x < part.width; x++, to++) {
      const from = 4 * (row + clamp(part.x + x, width))
      for (let c = 0; c < 3; c++) {
        const plane = channels === 'rgb' ? c : 2 - c
        values[plane * size + to] = (((pixels[from + c] as number) / brightest) * white - (mean[c] as number)) / (deviation[c] as number)
      }
    }
  }
  return { channels: 3 + room, width: part.width, height: part.height, values }
}

/** The picture of a network, opaque. `white` is what white is to it. */
export function imageOf(
  { width, height, values }: Planes,
  { outputWhite, channels }: { outputWhite: number; channels: 'rgb' | 'bgr' },
): Image {
  const size = width * height
  // Rounds to 0 to 255.
  const pixels = new Uint8ClampedArray(4 * size).fill(255)
  for (let c = 0; c < 3; c++) {
    const plane = size * (channels === 'rgb' ? c : 2 - c)
    for (let i = 0; i < size; i++) pixels[4 * i + c] = ((values[plane + i] as number) * 255) / outputWhite
  }
  return { width, height, pixels: new Uint8Array(pixels.buffer), opaque: true }
}

/** The first channel in another size, by linear interpolation. */
export function resizedPlane({ width, height, values }: Planes, toWidth: number, toHeight: number): Float32Array {
  const resized = new Float32Array(toWidth * toHeight)
  for (let y = 0, to = 0; y < toHeight; y++) {
    const [fromY, above, below] = between(y, height, toHeight)
    for (let x = 0; x < toWidth; x++, to++) {
      const [fromX, left, right] = between(x, width, toWidth)
      const at = (row: number): number => {
        const first = values[row * width + left] as number
        return first + fromX * ((values[row * width + right] as number) - first)
      }
      const upper = at(above)
      resized[to] = upper + fromY * (at(below) - upper)
    }
  }
  return resized
}

/** The two lines that a line of another resolution lies between, and how far it is from the first to the second. */
function between(line: number, count: number, toCount: number): [share: number, before: number, after: number] {
  const place = Math.max(0, ((line + 0.5) * count) / toCount - 0.5)
  const before = Math.min(Math.floor(place), count - 1)
  return [place - before, before, Math.min(before + 1, count - 1)]
}

function clamp(value: number, end: number): number {
  return Math.min(Math.max(value, 0), end - 1)
}
