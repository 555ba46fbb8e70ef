/** `background_remove`: the subject of a picture on nothing or on a colour. */
import { cutOut } from './cut-out.ts'
import { checkSize, crop, decode, encode, flatten } from './codec.ts'
import type { BackgroundRemoveModel } from './models.ts'
import type { Progress, Size } from './operation-result.ts'
import { openSaliency } from './saliency.ts'

/** `pixels`: how many the input may have. `background`: `transparent` or `#rrggbb`. `crop`: to the subject; a picture without one stays whole. */
export type BackgroundRemoveJob = {
  input: string
  output: string
  pixels: number
  model: BackgroundRemoveModel
  background: string
  crop: boolean
  format: string
}

/** Cuts the subject out. Throws an InputError. */
export async function run(job: BackgroundRemoveJob, progress: Progress): Promise<Size> {
  const image = await decode(job.input, job.pixels)
  checkSize(image.width, image.height, job.format, job.pixels)
  progress(10)
  const saliency = await openSaliency(job.model)
  progress(20)
  const subject = await cutOut(saliency, image)
  progress(70)
  const framed = job.crop ? await crop(subject) : subject
  const result = job.background === 'transparent' ? framed : await flatten(framed, job.background)
  await encode(result, job.format, job.output)
  return result
}
