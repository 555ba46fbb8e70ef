// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the picture that it runs over
/** The moving preview: the scene of the prompt, frame by frame, as H.264 in MP4. */
import { blankCanvas, type Canvas } from '../painter/canvas.ts'
import { chromaAt, h264, lumaAt, pictureFor, type Picture } from './h264.ts'
import { frameCount, mp4 } from './mp4-muxer.ts'
import { scene } from '../painter/scene.ts'

const FRAMES_PER_SECOND = 12

/** Renders a video of even width and height; one picture a second can be seeked to. `progress` is called with how much is done, 0 to 1. */
export function film(
  prompt: string,
  seed: number | null,
  width: number,
  height: number,
  durationMs: number,
  progress: (done: number) => void,
): Uint8Array {
  const { still, moving } = scene(prompt, seed)
  const [background, surface] = [blankCanvas(width, height), blankCanvas(width, height)]
  still(background)
  const picture = pictureFor(width, height)
  const encoder = h264(width, height, FRAMES_PER_SECOND)
  const count = frameCount(durationMs, FRAMES_PER_SECOND)
  const frames = Array.from({ length: count }, (_, n) => {
    surface.rgb.set(background.rgb)
    moving(surface, n / FRAMES_PER_SECOND)
    toPicture(surface, picture)
    progress((n + 1) / count)
    return encoder.encode(picture, n % FRAMES_PER_SECOND === 0)
  })
  const keyFrames = [...frames.keys()].filter((n) => n % FRAMES_PER_SECOND === 0)
  return mp4({ width, height, durationMs, framesPerSecond: FRAMES_PER_SECOND, sps: encoder.sps, pps: encoder.pps, frames, keyFrames })
}

/** sRGB to BT.709 in limited range (ITU-R BT.709, 3); the rims of the macroblocks repeat the last pixels. */
function toPicture({ width, height, rgb }: Canvas, picture: Picture): void {
  const { wide, high, samples } = picture
  for (let y = 0; y < high * 16; y++) {
    const row = Math.min(y, height - 1) * width
    for (let x = 0; x < wide * 16; x++) {
      const at = 3 * (row + Math.min(x, width - 1))
      const bright = 0.2126 * rgb[at]! + 0.7152 * rgb[at + 1]! + 0.0722 * rgb[at + 2]!
      samples[lumaAt(picture, x, y)] = 16.5 + (219 / 255) * bright
      if (y % 2 || x % 2) continue
      const small = chromaAt(picture, x / 2, y / 2)
      samples[small] = 128.5 + (224 / 255 / 1.8556) * (rgb[at + 2]! - bright)
      samples[small + 64] = 128.5 + (224 / 255 / 1.5748) * (rgb[at]! - bright)
    }
  }
}
