/**
 * `ai_edit`: the scene of the prompt, as the preview engine draws it, laid over the source, everywhere or where a mask marks it, with the word "preview" on it. No
 * model has a part in it: it shows what a request does until a provider is there.
 */
import { blend, type Canvas } from '../../src/backends/engines/painter/canvas.ts'
import { painted } from '../../src/backends/engines/painter/scene.ts'
import { watermark } from '../../src/backends/engines/painter/watermark.ts'
import { checkSize, decode, encode, flatten } from './codec.ts'
import { readMask } from './mask.ts'
import type { Progress, Size } from './operation-result.ts'

/** `pixels`: how many the picture and the mask may have. `mask` is empty without one. `strength`: how much of the scene shows, 0 to 1; null for half. */
export type AiEditJob = {
  input: string
  mask: string
  output: string
  pixels: number
  prompt: string
  seed: number | null
  strength: number | null
  format: string
}

const STRENGTH = 0.5

/** Edits a picture. Throws an InputError. */
export async function run(job: AiEditJob, progress: Progress): Promise<Size> {
  const { input, mask, output, pixels, prompt, seed, strength, format } = job
  const { width, height, pixels: source } = await flatten(await decode(input, pixels), '#ffffff')
  checkSize(width, height, format, pixels)
  const image = { width, height, pixels: source, opaque: true }
  const marked = mask === '' ? null : await readMask(mask, pixels, image, 0)
  progress(20)
  const { rgb: over, ...size } = painted(prompt, seed, width, height)
  const canvas: Canvas = { ...size, rgb: Float32Array.from(source.filter((_, i) => i % 4 !== 3)) }
  for (let pixel = 0, at = 0; at < over.length; pixel++, at += 3) {
    if (marked && !marked[pixel]) continue
    blend(canvas.rgb, at, strength ?? STRENGTH, [over[at] ?? 0, over[at + 1] ?? 0, over[at + 2] ?? 0])
  }
  watermark(canvas)
  for (const [i, value] of canvas.rgb.entries()) source[i + Math.floor(i / 3)] = Math.round(value)
  await encode(image, format, output)
  return image
}
