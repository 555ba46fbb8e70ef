/**
 * Enlarging by a network, ESRGAN slim (a residual dense network, range 0 to 255): https://github.com/thekevinscott/UpscalerJS. For child processes only.
 * Large pictures go through it in tiles. A network of convolutions sees only so far: with that much of its surroundings, a tile comes out as the whole would.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type * as Tensorflow from '@tensorflow/tfjs-core'
import { loadLayersModel, type LayersModel } from '@tensorflow/tfjs-layers'
import type { Image } from './codec.ts'
import { packageFolder } from './packages.ts'
import { openTensorflow } from './tensorflow.ts'

export type Network = { tf: typeof Tensorflow; model: LayersModel; scale: 2 | 3 | 4 }

type Tensor = Tensorflow.Tensor4D

export type Tile = { x: number; y: number; width: number; height: number }

/**
 * So many pixels around a tile are looked at. A result depends on 12 to each side, the network's 10 and those of the back-projections;
 * beyond 8 the difference is 1 of 255.
 */
const REACH = 8
const BACK_PROJECTIONS = 2
/** The border of the picture is continued by so many pixels; without, the zeros that convolutions see there darken it. */
const BORDER = 3
/** Pixels of a tile with its surroundings. They decide the memory: about 1 GB at scale 4. */
const TILE_PIXELS = 140_000

export async function openNetwork(scale: Network['scale']): Promise<Network> {
  const tf = await openTensorflow()
  const folder = join(packageFolder('@upscalerjs/esrgan-slim') ?? '', `models/x${scale}`)
  const { modelTopology, weightsManifest } = JSON.parse(await readFile(join(folder, 'model.json'), 'utf8'))
  const [{ weights: weightSpecs, paths }] = weightsManifest
  const weightData = new Uint8Array(await readFile(join(folder, paths[0]))).buffer
  return { tf, scale, model: await loadLayersModel({ load: async () => ({ modelTopology, weightSpecs, weightData }) }) }
}

/** Tiles of about the same size that cover a picture without overlap, each of at most `pixels` with what it needs around it. Row by row. */
export function tilesOf(width: number, height: number, pixels: number): Tile[] {
  const parts = { columns: 1, rows: 1 }
  const side = (whole: number, count: number): number => Math.ceil(whole / count)
  for (;;) {
    const [tileWidth, tileHeight] = [side(width, parts.columns), side(height, parts.rows)]
    if ((tileWidth + 2 * REACH) * (tileHeight + 2 * REACH) <= pixels || (tileWidth === 1 && tileHeight === 1)) break
    if (tileWidth >= tileHeight) parts.columns++
    else parts.rows++
  }
  const cuts = (whole: number, count: number): number[] => Array.from({ length: count + 1 }, (_, i) => Math.round((i * whole) / count))
  const [xs, ys] = [cuts(width, parts.columns), cuts(height, parts.rows)]
  const spans = (at: number[]): [number, number][] => at.slice(1).map((end, i) => [at[i] ?? 0, end])
  return spans(ys).flatMap(([y, bottom]) => spans(xs).map(([x, right]) => ({ x, y, width: right - x, height: bottom - y })))
}

/** A picture in `scale` times its size. Colours of transparent pixels have to suit their surroundings. `progress` gets percents. */
export async function enlarge(
  network: Network,
  image: Image,
  progress: (percent: number) => void,
  tilePixels = TILE_PIXELS,
): Promise<Image> {
  const [width, height] = [image.width * network.scale, image.height * network.scale]
  const result: Image = { width, height, pixels: new Uint8Array(width * height * 4).fill(255), opaque: image.opaque }
  const tiles = tilesOf(image.width, image.height, tilePixels)
  for (const [i, tile] of tiles.entries()) {
    await enlargeTile(network, image, tile, result)
    progress((100 * (i + 1)) / tiles.length)
  }
  return result
}

/**
 * Enlarges one tile into its place in `result`. The last convolution of the network follows an upsampling by repetition; at scales 3 and 4
 * it is too small to look beyond the repeated pixels and leaves a grid, which a mean over its period removes. The network shifts colours
 * and softens details; what its picture lacks when it is made small again is added to it (back-projection, Irani and Peleg 1991). That is
 * worth 0.5 to 2 dB. Alpha is enlarged without the network.
 */
async function enlargeTile({ tf, model, scale }: Network, image: Image, tile: Tile, result: Image): Promise<void> {
  const around = withSurroundings(tile, image)
  const channels = image.opaque ? 3 : 4
  const made = tf.tidy(() => {
    const input = tf.tensor4d(cut(image, around, channels), [1, around.height, around.width, channels])
    const larger = (values: Tensor): Tensor => tf.image.resizeBilinear(values, [around.height * scale, around.width * scale], false, true)
    const colours = model.predict(image.opaque ? input : tf.slice(input, 0, [1, around.height, around.width, 3])) as Tensor
    const all = image.opaque ? colours : tf.concat([colours, larger(tf.slice(input, [0, 0, 0, 3]))], 3)
    let picture = scale === 2 ? all : tf.avgPool(all, scale, 1, 'same')
    for (let round = 0; round < BACK_PROJECTIONS; round++) {
      picture = tf.add(picture, larger(tf.sub<Tensor>(input, tf.avgPool(picture, scale, scale, 'valid'))))
    }
    return picture
  })
  const values = await made.data()
  made.dispose()
  const [left, top] = [tile.x - around.x, tile.y - around.y]
  // Rounds to 0 to 255.
  const pixels = new Uint8ClampedArray(result.pixels.buffer)
  for (let row = 0; row < tile.height * scale; row++) {
    let from = channels * ((top * scale + row) * around.width * scale + left * scale)
    let to = 4 * ((tile.y * scale + row) * result.width + tile.x * scale)
    for (let column = 0; column < tile.width * scale; column++, from += channels, to += 4) {
      for (let c = 0; c < channels; c++) pixels[to + c] = values[from + c] as number
    }
  }
}

function withSurroundings({ x, y, width, height }: Tile, image: Image): Tile {
  const left = Math.max(x - REACH, -BORDER)
  const top = Math.max(y - REACH, -BORDER)
  return {
    x: left,
    y: top,
    width: Math.min(x + width + REACH, image.width + BORDER) - left,
    height: Math.min(y + height + REACH, image.height + BORDER) - top,
  }
}

/** A part of a picture in floats; beyond the border its last pixels are repeated. */
function cut({ width, height, pixels }: Image, part: Tile, channels: 3 | 4): Float32Array {
  const values = new Float32Array(part.width * part.height * channels)
  let to = 0
  for (let y = part.y; y < part.y + part.height; y++) {
    const row = Math.min(Math.max(y, 0), height - 1) * width
    for (let x = part.x; x < part.x + part.width; x++) {
      const from = 4 * (row + Math.min(Math.max(x, 0), width - 1))
      for (let c = 0; c < channels; c++) values[to++] = pixels[from + c] as number
    }
  }
  return values
}
