/** Tries an operator's model on a small picture, when the engine is opened. For a child process. */
import type { Image } from './codec.ts'
import type { BackgroundRemoveModel, InpaintModel, UpscaleModel } from './models.ts'
import { openFiller } from './network-fill.ts'
import { InputError, type Size } from './operation-result.ts'
import { openSaliency } from './saliency.ts'
import { enlarge, openEnlarger } from './super-resolution.ts'

export type CheckJob =
  | { operation: 'background_remove'; model: BackgroundRemoveModel }
  | { operation: 'upscale'; model: UpscaleModel }
  | { operation: 'inpaint'; model: InpaintModel }

const SIDE = 32

/** Throws an InputError with the sentence about a model that does not fit. */
export async function run(job: CheckJob): Promise<Size> {
  await trial(job).catch((error: unknown) => {
    throw new InputError('unsupported_input', error instanceof Error ? error.message : String(error))
  })
  return { width: SIDE, height: SIDE }
}

async function trial(job: CheckJob): Promise<void> {
  const pixels = Uint8Array.from({ length: 4 * SIDE * SIDE }, (_, i) => (i % 4 === 3 ? 255 : (i >> 2) % 256))
  const picture: Image = { width: SIDE, height: SIDE, pixels, opaque: true }
  if (job.operation === 'background_remove') await (await openSaliency(job.model)).maskOf(picture, SIDE, SIDE)
  else if (job.operation === 'upscale') await enlarge(await openEnlarger(job.model), picture, job.model.scale, () => {})
  else await (await openFiller(job.model)).complete({ ...picture, hole: new Uint8Array(SIDE * SIDE).fill(1, 400, 410) })
}
