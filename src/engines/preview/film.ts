/** The moving preview: the scene of the prompt, frame by frame, as H.264 in MP4. */
import { scene } from './art.ts'
import { blankCanvas, type Canvas } from './canvas.ts'
import { h264, pictureFor, type Picture } from './h264.ts'
import { frameCount, mp4 } from './mp4.ts'

const FRAMES_PER_SECOND = 12

/** Renders a film of even width and height; `progress` hears how much is done, 0 to 1. */
export function film(prompt: string, seed: number | null, width: number, height: number, durationMs: number, progress: (done: number) => void): Uint8Array {
  const paint = scene(prompt, seed)
  const surface = blankCanvas(width, height)
  const picture = pictureFor(width, height)
  const encoder = h264(width, height, FRAMES_PER_SECOND)
  const count = frameCount(durationMs, FRAMES_PER_SECOND)
  const frames: Uint8Array[] = []
  for (let n = 0; n < count; n++) {
    paint(surface, n / FRAMES_PER_SECOND)
    toPicture(surface, picture)
    frames.push(encoder.encode(picture))
    progress((n + 1) / count)
  }
  return mp4({ width, height, durationMs, framesPerSecond: FRAMES_PER_SECOND, sps: encoder.sps, pps: encoder.pps, frames })
}

/** sRGB to BT.709 in limited range (ITU-R BT.709, 3), two by two pixels at once; the rims of the macroblocks repeat the last pixels. */
function toPicture({ width, height, rgb }: Canvas, { luma, cb, cr }: Picture): void {
  for (let y = 0; y < luma.height; y += 2) {
    for (let x = 0; x < luma.width; x += 2) {
      let red = 0
      let green = 0
      let blue = 0
      for (let i = 0; i < 4; i++) {
        const column = x + (i & 1)
        const row = y + (i >> 1)
        const at = (Math.min(row, height - 1) * width + Math.min(column, width - 1)) * 3
        const r = rgb[at] ?? 0
        const g = rgb[at + 1] ?? 0
        const b = rgb[at + 2] ?? 0
        luma.samples[row * luma.width + column] = Math.round(16 + (219 / 255) * brightness(r, g, b))
        red += r / 4
        green += g / 4
        blue += b / 4
      }
      const bright = brightness(red, green, blue)
      const at = (y / 2) * cb.width + x / 2
      cb.samples[at] = Math.round(128 + ((224 / 255) * (blue - bright)) / 1.8556)
      cr.samples[at] = Math.round(128 + ((224 / 255) * (red - bright)) / 1.5748)
    }
  }
}

function brightness(red: number, green: number, blue: number): number {
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}
