/** TensorFlow.js on its WebAssembly backend: runs networks on one core, with no native code and nothing to download. For child processes only. */
import { join } from 'node:path'
import * as tf from '@tensorflow/tfjs-core'
import { setWasmPaths } from '@tensorflow/tfjs-backend-wasm'
import { packageFolder } from './packages.ts'

/** The library, ready to work. */
export async function openTensorflow(): Promise<typeof tf> {
  setWasmPaths(join(packageFolder('@tensorflow/tfjs-backend-wasm') ?? '', 'dist/'))
  await tf.setBackend('wasm')
  return tf
}
