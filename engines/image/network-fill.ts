/** Fills a hole in a picture by a network of the operator's, such as LaMa. For child processes only. */
import { partAround } from './patch-fill.ts'
import { resize, resizePlane, type Image } from './codec.ts'
import type { InpaintModel } from './models.ts'
import { openNetwork, sideOf, type Network, type Planes, type Port } from './network.ts'
import { imageOf, planesOf } from './planes.ts'
import type { Picture } from './patch-match.ts'

export type Filler = {
  /** Fills the hole in place; what lies outside it stays as it is. */
  complete(picture: Picture): Promise<void>
}

/** The network sees as much around a hole as the hole is wide and high, and so many pixels at least. */
const SURROUNDINGS = 64

/** Throws an Error of one sentence when the graph does not fit. */
export async function openFiller(model: InpaintModel): Promise<Filler> {
  const network = await openNetwork(model.model)
  const { picture, mask } = portsOf(network)
  const side = sideOf(picture, model.size)

  /** The region as the network sees it, black where it is to be filled. */
  async function inputsOf(region: Picture): Promise<Planes[]> {
    const small = await resize({ ...region, opaque: true }, side, side)
    const plane = await resizePlane(
      region.hole.map((marked) => 255 * marked),
      region.width,
      region.height,
      side,
      side,
    )
    const hole = plane.map((share) => (share > 0 ? 1 : 0))
    for (let i = 0; i < hole.length; i++) if (hole[i]) small.pixels.fill(0, 4 * i, 4 * i + 3)
    const marks = Float32Array.from(hole, (marked) => (model.mask === 'white' ? marked : 1 - marked))
    const planes = planesOf(small, { x: 0, y: 0, width: side, height: side }, model, 255, mask ? 0 : 1)
    if (!mask) planes.values.set(marks, 3 * side * side)
    const masked = { channels: 1, width: side, height: side, values: marks }
    return network.inputs.map((port) => (port === mask ? masked : planes))
  }

  async function complete(whole: Picture): Promise<void> {
    const part = partAround(whole, SURROUNDINGS)
    if (!part) return
    const { region } = part
    const made = await network.run(await inputsOf(region))
    if (made.channels !== 3) throw new Error(`its output has ${made.channels} channels; a picture has 3`)
    const filled: Image = await resize(imageOf(made, model), region.width, region.height)
    for (let i = 0; i < region.hole.length; i++) if (region.hole[i]) region.pixels.set(filled.pixels.subarray(4 * i, 4 * i + 4), 4 * i)
    part.paste()
  }

  return { complete }
}

/** The input of the picture, and that of the mask; null where one input has both. */
function portsOf({ inputs }: Network): { picture: Port; mask: Port | null } {
  const [only, other] = inputs
  if (only && !other && only.channels === 4) return { picture: only, mask: null }
  const picture = inputs.find(({ channels }) => channels === 3)
  const mask = inputs.find(({ channels }) => channels === 1)
  if (!picture || !mask || inputs.length !== 2)
    throw new Error('its inputs are not a picture of 3 channels and a mask of 1, nor one of 4 channels')
  return { picture, mask }
}
