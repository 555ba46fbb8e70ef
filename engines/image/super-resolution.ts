/**
 * Enlarging by a network: ESRGAN slim (a residual dense network: https://github.com/thekevinscott/UpscalerJS) or the operator's. For child processes only. Large
 * pictures go through it in tiles. A network of convolutions sees only so far: with that much of its surroundings, a tile comes out as the whole would.
 */
import { resize, resizePlane, type Image } from './codec.ts'
import type { UpscaleModel } from './models.ts'
import { openNetwork, pictureInput, type Planes } from './network.ts'
import { imageOf, planesOf } from './planes.ts'

export type Enlarger = {
  model: UpscaleModel
  /** Width and height of every tile with its surroundings, where the graph has a fixed size. */
  fixed: { width: number; height: number } | null
  /** A part of a picture, `model.scale` times as wide and high. */
  run(planes: Planes): Promise<Planes>
}

export type Tile = { x: number; y: number; width: number; height: number }
/** Tiles that cover a picture without overlap, and the size of each with its surroundings. */
export type Tiling = { tiles: readonly Tile[]; width: number; height: number }

/** Networks that halve their picture several times need sides that are a multiple of this. */
const MULTIPLE = 16

/** Throws an Error of one sentence when the graph does not fit. */
export async function openEnlarger(model: UpscaleModel): Promise<Enlarger> {
  const network = await openNetwork(model.model)
  const { width, height } = pictureInput(network)
  if ((width === null) !== (height === null)) throw new Error('one side of its input is fixed and the other is not')

  async function run(planes: Planes): Promise<Planes> {
    const made = await network.run([planes])
    if (made.channels !== 3) throw new Error(`its output has ${made.channels} channels; a picture has 3`)
    const isLarger = made.width === model.scale * planes.width && made.height === model.scale * planes.height
    if (!isLarger)
      throw new Error(
        `it makes ${made.width} by ${made.height} pixels of ${planes.width} by ${planes.height}: scale cannot be ${model.scale}`,
      )
    return made
  }

  return { model, fixed: width === null || height === null ? null : { width, height }, run }
}

/** Tiles of about the same size, row by row. Each has `overlap` pixels around it. */
export function tilesOf(
  { width, height }: { width: number; height: number },
  { fixed, model: { tile, overlap } }: Pick<Enlarger, 'fixed' | 'model'>,
): Tiling {
  const most = fixed ?? { width: tile, height: tile }
  const [columns, rows] = [cuts(width, most.width - 2 * overlap), cuts(height, most.height - 2 * overlap)]
  const tiles = rows.flatMap(([y, bottom]) => columns.map(([x, right]) => ({ x, y, width: right - x, height: bottom - y })))
  const around = (spans: [number, number][], limit: number): number => {
    const widest = Math.max(...spans.map(([from, to]) => to - from)) + 2 * overlap
    return fixed ? limit : Math.min(limit, Math.ceil(widest / MULTIPLE) * MULTIPLE)
  }
  return { tiles, width: around(columns, most.width), height: around(rows, most.height) }
}

/** Spans of about the same length, none longer than `most`. */
function cuts(whole: number, most: number): [number, number][] {
  if (most < 1) throw new Error('overlap leaves nothing of a tile')
  const count = Math.ceil(whole / most)
  return Array.from({ length: count }, (_, i) => [Math.round((i * whole) / count), Math.round(((i + 1) * whole) / count)])
}

/** A picture in `scale` times its size. Colours of transparent pixels have to suit their surroundings; alpha is enlarged by a filter. `progress` gets percents. */
export async function enlarge(enlarger: Enlarger, image: Image, scale: number, progress: (percent: number) => void): Promise<Image> {
  const [width, height] = [image.width * scale, image.height * scale]
  const result: Image = { width, height, pixels: new Uint8Array(width * height * 4).fill(255), opaque: image.opaque }
  const tiling = tilesOf(image, enlarger)
  const { model } = enlarger
  for (const [i, tile] of tiling.tiles.entries()) {
    const around = { x: tile.x - model.overlap, y: tile.y - model.overlap, width: tiling.width, height: tiling.height }
    const made = imageOf(await enlarger.run(planesOf(image, around, model)), model)
    place(await resize(made, tiling.width * scale, tiling.height * scale), tile, scale * model.overlap, scale, result)
    progress((100 * (i + 1)) / tiling.tiles.length)
  }
  if (!image.opaque) {
    const alpha = await resizePlane(
      image.pixels.filter((_, i) => i % 4 === 3),
      image.width,
      image.height,
      width,
      height,
    )
    for (const [i, value] of alpha.entries()) result.pixels[4 * i + 3] = value
  }
  return result
}

/** Copies a tile, which has `margin` pixels on its left and above it, to its place in the result. */
function place(made: Image, tile: Tile, margin: number, scale: number, result: Image): void {
  for (let row = 0; row < tile.height * scale; row++) {
    const from = 4 * ((margin + row) * made.width + margin)
    result.pixels.set(
      made.pixels.subarray(from, from + 4 * tile.width * scale),
      4 * ((tile.y * scale + row) * result.width + tile.x * scale),
    )
  }
}
