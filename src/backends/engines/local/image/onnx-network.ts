/**
 * Runs an ONNX graph on TensorFlow.js: the operators that convolutional networks exported from PyTorch have, one sample at a time. ONNX lays tensors out as
 * NCHW, TensorFlow.js as NHWC; whatever a graph computes from shapes stays in ONNX's order. For child processes only.
 */
import type * as Tensorflow from '@tensorflow/tfjs-core'
import type { Attribute, Graph, Node } from './onnx.ts'

type Tensor = Tensorflow.Tensor4D
/** A tensor, or a list of whole numbers that the graph computes sizes with. */
type Value = Tensor | number[]

export type OnnxNetwork = {
  /** NHWC in, the first output of the graph as NHWC out. The caller disposes of both. */
  predict(input: Tensor): Tensor
}

/** Throws an Error that names what of the graph is not supported. */
export function openOnnxNetwork(tf: typeof Tensorflow, graph: Graph): OnnxNetwork {
  const [output = ''] = graph.outputs
  const nodes = neededFor(output, graph)
  const weights = new Map([...graph.weights].map(([name, values]) => [name, 'floats' in values ? weight(tf, values) : values.integers]))
  const lastUse = new Map(nodes.flatMap(({ inputs }, i) => inputs.map((name) => [name, i])))

  function predict(input: Tensor): Tensor {
    const values = new Map<string, Value>([...weights, [graph.input, input]])
    for (const [i, node] of nodes.entries()) {
      values.set(
        node.outputs[0] ?? '',
        compute(
          tf,
          node,
          node.inputs.map((name) => values.get(name) ?? []),
        ),
      )
      for (const name of node.inputs) {
        if (lastUse.get(name) !== i || weights.has(name) || name === graph.input) continue
        dispose(values.get(name))
        values.delete(name)
      }
    }
    return tensor(values.get(output))
  }

  return { predict }
}

/** The nodes that a value depends on, in the order of the graph. */
function neededFor(output: string, graph: Graph): Node[] {
  const needed = new Set([output])
  const nodes = graph.nodes.toReversed().filter(({ inputs, outputs }) => {
    if (!outputs.some((name) => needed.has(name))) return false
    for (const name of inputs) needed.add(name)
    return true
  })
  return nodes.toReversed()
}

/** Kernels of convolutions from OIHW to HWIO; vectors as they are. */
function weight(tf: typeof Tensorflow, { dims, floats }: { dims: number[]; floats: Float32Array }): Tensor {
  if (dims.length !== 4) return tf.tensor(floats, dims) as Tensorflow.Tensor as Tensor
  return tf.tidy(() => tf.transpose(tf.tensor4d(floats, dims as [number, number, number, number]), [2, 3, 1, 0]))
}

function compute(tf: typeof Tensorflow, { op, attributes }: Node, inputs: Value[]): Value {
  const [first = [], second = [], third = []] = inputs
  switch (op) {
    case 'Conv':
      return tf.fused.conv2d({
        x: tensor(first),
        filter: tensor(second),
        bias: tensor(third),
        strides: 1,
        pad: only(attributes['pads']),
        dilations: only(attributes['dilations']),
      }) as Tensor
    case 'Relu':
      return tf.relu(tensor(first))
    case 'Sigmoid':
      return tf.sigmoid(tensor(first))
    case 'Add':
      return tf.add(tensor(first), tensor(second))
    case 'MaxPool':
      return tf.maxPool(tensor(first), only(attributes['kernel_shape']), only(attributes['strides']), 'same')
    case 'Resize':
      return tf.image.resizeBilinear(tensor(first), list(inputs[3]).slice(2) as [number, number], false, true)
    case 'Concat':
      return Array.isArray(first) ? inputs.flatMap(list) : tf.concat(inputs.map(tensor), 3)
    default:
      return computeSizes(op, attributes, inputs)
  }
}

function computeSizes(op: string, attributes: Record<string, Attribute>, [first = [], second = [], third = []]: Value[]): number[] {
  switch (op) {
    case 'Constant': {
      const { value } = attributes
      return typeof value === 'object' && 'integers' in value ? value.integers : []
    }
    case 'Shape': {
      const [n, h, w, c] = tensor(first).shape
      return [n, c, h, w]
    }
    case 'Gather':
      return list(second).map((i) => list(first)[i] ?? 0)
    case 'Slice':
      return list(first).slice(list(second)[0], list(third)[0])
    case 'Unsqueeze':
    case 'Cast':
      return list(first)
    default:
      throw new Error(`the operator ${op} is not supported`)
  }
}

function tensor(value: Value | undefined): Tensor {
  if (value === undefined || Array.isArray(value)) throw new Error('a list of sizes in place of a tensor')
  return value
}

function list(value: Value | undefined): number[] {
  if (!Array.isArray(value)) throw new Error('a tensor in place of a list of sizes')
  return value
}

/** The one number of an attribute that is alike in all directions. */
function only(attribute: Attribute | undefined): number {
  const numbers = Array.isArray(attribute) ? attribute : []
  const [number] = numbers
  if (number === undefined || numbers.some((other) => other !== number)) throw new Error('an attribute differs by direction')
  return number
}

function dispose(value: Value | undefined): void {
  if (value !== undefined && !Array.isArray(value)) value.dispose()
}
