/**
 * `inpaint`: replaces what a mask marks by what is around it, as if it had never been there, by the operator's model or by a classical method. Neither
 * can make what a prompt describes, and gets none. An empty mask leaves the picture as it is.
 */
import { randomOf } from '../../src/backends/engines/painter/seeded-random.ts'
import { complete } from './patch-fill.ts'
import { checkSize, decode, encode } from './codec.ts'
import { readMask } from './mask.ts'
import type { InpaintModel } from './models.ts'
import { openFiller } from './network-fill.ts'
import { InputError, type Progress, type Size } from './operation-result.ts'

/** `pixels`: how many the picture and the mask may have. `growMask`: pixels. Another `seed` may choose other surroundings. */
export type InpaintJob = {
  input: string
  mask: string
  output: string
  pixels: number
  /** Null for the classical method. */
  model: InpaintModel | null
  growMask: number
  seed: number | null
  format: string
}

/** Fills what the mask marks. Throws an InputError. */
export async function run(job: InpaintJob, progress: Progress): Promise<Size> {
  const image = await decode(job.input, job.pixels)
  checkSize(image.width, image.height, job.format, job.pixels)
  const hole = await readMask(job.mask, job.pixels, image, job.growMask)
  if (!hole.includes(0)) throw new InputError('unsupported_input', 'the mask covers the whole picture')
  progress(5)
  if (job.model) await (await openFiller(job.model)).complete({ ...image, hole })
  else if (!complete({ ...image, hole }, randomOf(job.seed ?? 0), progress))
    throw new InputError('cannot_fill', 'the filling does not meet its rim')
  await encode(image, job.format, job.output)
  return image
}
