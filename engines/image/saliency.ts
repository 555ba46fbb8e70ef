/**
 * What stands out in a picture, by a network: u2netp (U²-Net, Qin et al. 2020, Apache-2.0: https://github.com/xuebinqin/U-2-Net) or the operator's. For child
 * processes only.
 */
import { resize, type Image } from './codec.ts'
import type { BackgroundRemoveModel } from './models.ts'
import { openNetwork, pictureInput, sideOf } from './network.ts'
import { planesOf, resizedPlane } from './planes.ts'

export type Saliency = {
  /** How much each pixel of an opaque picture belongs to its subject, 0 to 1, in a picture of the requested size. */
  maskOf(image: Image, width: number, height: number): Promise<Float32Array>
}

/** Throws an Error of one sentence when the graph does not fit. */
export async function openSaliency(model: BackgroundRemoveModel): Promise<Saliency> {
  const network = await openNetwork(model.model)
  const side = sideOf(pictureInput(network), model.size)

  async function maskOf(image: Image, width: number, height: number): Promise<Float32Array> {
    const small = await resize(image, side, side)
    const brightest = small.pixels.reduce((most, value, i) => (i % 4 === 3 ? most : Math.max(most, value)), 1)
    const made = await network.run([planesOf(small, { x: 0, y: 0, width: side, height: side }, model, brightest)])
    if (made.channels !== 1) throw new Error(`its output has ${made.channels} channels; a mask has 1`)
    const shares = model.output === 'logits' ? made.values.map((logit) => 1 / (1 + Math.exp(-logit))) : made.values
    if (shares.some((share) => !(share >= -0.01 && share <= 1.01)))
      throw new Error('its output is not between 0 and 1: is it of logits? (output: logits)')
    return resizedPlane({ ...made, values: shares }, width, height)
  }

  return { maskOf }
}
