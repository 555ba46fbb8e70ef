// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the picture that it runs over
/** The moving preview: the scene of the prompt, frame by frame, as H.264 in MP4. */
import { scene } from './scene.ts'
import { blankCanvas, type Canvas } from './canvas.ts'
import { h264 } from './h264.ts'
import { frameCount, mp4 } from './mp4-muxer.ts'
import { pictureFor, type Picture } from './yuv-picture.ts'

const FRAMES_PER_SECOND = 12

/** Renders a film of even width and height; `progress` is called with how much is done, 0 to 1. */
export function film(
  prompt: string,
  seed: number | null,
  width: number,
  height: number,
  durationMs: number,
  progress: (done: number) => void,
): Uint8Array {
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

const LUMA = 219 / 255
const [RED, GREEN, BLUE] = [0.2126, 0.7152, 0.0722]
const CB = 224 / 255 / 1.8556
const CR = 224 / 255 / 1.5748

/** sRGB to BT.709 in limited range (ITU-R BT.709, 3), two by two pixels at once; the rims of the macroblocks repeat the last pixels. */
function toPicture({ width, height, rgb }: Canvas, { luma, cb, cr }: Picture): void {
  for (let y = 0; y < luma.height; y += 2) {
    const upper = Math.min(y, height - 1) * width
    const lower = Math.min(y + 1, height - 1) * width
    for (let x = 0; x < luma.width; x += 2) {
      const left = Math.min(x, width - 1)
      const right = Math.min(x + 1, width - 1)
      const at = y * luma.width + x
      const a = brightness(rgb, (upper + left) * 3)
      const b = brightness(rgb, (upper + right) * 3)
      const c = brightness(rgb, (lower + left) * 3)
      const d = brightness(rgb, (lower + right) * 3)
      luma.samples[at] = 16.5 + LUMA * a
      luma.samples[at + 1] = 16.5 + LUMA * b
      luma.samples[at + luma.width] = 16.5 + LUMA * c
      luma.samples[at + luma.width + 1] = 16.5 + LUMA * d
      const bright = (a + b + c + d) / 4
      const small = (y / 2) * cb.width + x / 2
      cb.samples[small] = 128.5 + CB * (mean(rgb, upper, lower, left, right, 2) - bright)
      cr.samples[small] = 128.5 + CR * (mean(rgb, upper, lower, left, right, 0) - bright)
    }
  }
}

function brightness(rgb: Float32Array, at: number): number {
  return RED * rgb[at]! + GREEN * rgb[at + 1]! + BLUE * rgb[at + 2]!
}

/** One channel of four pixels. */
function mean(rgb: Float32Array, upper: number, lower: number, left: number, right: number, channel: 0 | 2): number {
  return (
    (rgb[(upper + left) * 3 + channel]! +
      rgb[(upper + right) * 3 + channel]! +
      rgb[(lower + left) * 3 + channel]! +
      rgb[(lower + right) * 3 + channel]!) /
    4
  )
}
