/** `upscale`: enlarges a picture 2, 3, or 4 times. */
import { bleed } from './bleed.ts'
import { checkSize, decode, encode, type Image } from './codec.ts'
import type { UpscaleModel } from './models.ts'
import type { Progress, Size } from './operation-result.ts'
import { enlarge, openEnlarger } from './super-resolution.ts'

/** `pixels`: how many the input and the output may have. */
export type UpscaleJob = { input: string; output: string; pixels: number; model: UpscaleModel; scale: 2 | 3 | 4; format: string }

/** Enlarges a picture. Throws an InputError. */
export async function run({ input, output, pixels, model, scale, format }: UpscaleJob, progress: Progress): Promise<Size> {
  const image = await decode(input, pixels)
  checkSize(image.width * scale, image.height * scale, format, pixels)
  const enlarger = await openEnlarger(model)
  const result = await enlarge(enlarger, image.opaque ? image : withHiddenColours(image), scale, progress)
  await encode(result, format, output)
  return result
}

/** Transparent pixels have any colour. They get that of their surroundings, so that none of theirs shows at the edges of the enlarged picture. */
function withHiddenColours(image: Image): Image {
  const alpha = image.pixels.filter((_, i) => i % 4 === 3)
  const pixels = bleed(image.pixels, alpha, image.width, image.height)
  for (const [i, value] of alpha.entries()) pixels[4 * i + 3] = value
  return { ...image, pixels }
}
