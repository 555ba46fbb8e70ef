/**
 * `node engines/image/models/convert-esrgan.ts <folder> <file>`: makes `esrgan-slim.onnx` of the weights that the npm package @upscalerjs/esrgan-slim 1.0.0 (MIT)
 * has for Keras, in its unpacked folder. Run once; it is kept to say what the file is.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { onnxModel, type Node, type Weight } from './onnx-writer.ts'

const SCALE = 4
const BACK_PROJECTIONS = 2

type Layer = { class_name: string; name: string; inbound_nodes: [[string, ...unknown[]][]] | [] }
type Spec = { name: string; shape: number[] }

const [folder = '', file = 'esrgan-slim.onnx'] = process.argv.slice(2)
const { modelTopology, weightsManifest } = JSON.parse(readFileSync(join(folder, `models/x${SCALE}/model.json`), 'utf8'))
const data = readFileSync(join(folder, `models/x${SCALE}/${weightsManifest[0].paths[0]}`))
const weights: Weight[] = []
let at = 0
for (const { name, shape } of weightsManifest[0].weights as Spec[]) {
  const length = shape.reduce((product, side) => product * side, 1)
  const values = new Float32Array(data.buffer.slice(data.byteOffset + at, data.byteOffset + at + 4 * length))
  weights.push(
    shape.length === 4
      ? { name, dims: [shape[3], shape[2], shape[0], shape[1]] as number[], values: transposed(values, shape) }
      : { name, dims: shape, values },
  )
  at += 4 * length
}

/** Kernels of convolutions: Keras has height, width, inputs, outputs; ONNX has outputs, inputs, height, width. */
function transposed(values: Float32Array, [height = 0, width = 0, ins = 0, outs = 0]: number[]): Float32Array {
  return Float32Array.from(values, (_, i) => {
    const [o, c, y, x] = [
      Math.floor(i / (ins * height * width)),
      Math.floor(i / (height * width)) % ins,
      Math.floor(i / width) % height,
      i % width,
    ]
    return values[((y * width + x) * ins + c) * outs + o] as number
  })
}

const floats = (name: string, values: number[]): Weight => ({ name, dims: [values.length], values: Float32Array.from(values) })
weights.push(floats('scales', [1, 1, SCALE, SCALE]))

const nodes: Node[] = (modelTopology.model_config.config.layers as Layer[]).flatMap(
  ({ class_name, name, inbound_nodes: [inbound = []] }) => {
    const inputs = inbound.map(([input]) => input)
    if (class_name === 'Conv2D')
      return [{ op: 'Conv', inputs: [...inputs, `${name}/kernel`, `${name}/bias`], output: name, attributes: { auto_pad: 'SAME_UPPER' } }]
    if (class_name === 'Activation') return [{ op: 'Relu', inputs, output: name }]
    if (class_name === 'Concatenate') return [{ op: 'Concat', inputs, output: name, attributes: { axis: 1 } }]
    if (class_name === 'Add') return [{ op: 'Add', inputs, output: name }]
    if (class_name === 'UpSampling2D') return [resized(inputs[0] ?? '', name, 'nearest')]
    return []
  },
)

function resized(input: string, output: string, mode: 'nearest' | 'linear'): Node {
  const attributes = {
    mode,
    coordinate_transformation_mode: mode === 'linear' ? 'half_pixel' : 'asymmetric',
    ...(mode === 'nearest' ? { nearest_mode: 'floor' } : {}),
  }
  return { op: 'Resize', inputs: [input, '', 'scales'], output, attributes }
}

// The last convolution follows an upsampling by repetition and is too small to look beyond the repeated pixels: it leaves a grid, which a mean over its period removes.
nodes.push({ op: 'AveragePool', inputs: ['SR'], output: 'larger0', attributes: { kernel_shape: [SCALE, SCALE], auto_pad: 'SAME_UPPER' } })
// The network shifts colours and softens details. What its picture lacks when it is made small again is added to it (back-projection, Irani and Peleg 1991): 0.5 to 2 dB.
for (let round = 0; round < BACK_PROJECTIONS; round++) {
  const [made, next] = [`larger${round}`, `larger${round + 1}`]
  nodes.push({
    op: 'AveragePool',
    inputs: [made],
    output: `small${round}`,
    attributes: { kernel_shape: [SCALE, SCALE], strides: [SCALE, SCALE] },
  })
  nodes.push({ op: 'Sub', inputs: ['LR', `small${round}`], output: `lost${round}` })
  nodes.push(resized(`lost${round}`, `added${round}`, 'linear'))
  nodes.push({ op: 'Add', inputs: [made, `added${round}`], output: next })
}

const port = (name: string) => ({ name, dims: [1, 3, `${name} height`, `${name} width`] })
writeFileSync(file, onnxModel({ inputs: [port('LR')], outputs: [port(`larger${BACK_PROJECTIONS}`)], nodes, weights }))
