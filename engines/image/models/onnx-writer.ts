/** Writes ONNX models (onnx.proto, IR version 8, operator set 17): as much of the format as networks of floats need. */

/** Whole numbers are written as int64 tensors, others as float tensors. */
export type Weight = { name: string; dims: readonly number[]; values: Float32Array | readonly bigint[] }
/** A whole number is an integer attribute, a list one of integers, text a string. */
export type Node = {
  op: string
  inputs: readonly string[]
  output: string
  attributes?: Record<string, number | readonly number[] | string>
}
/** A side whose length the graph leaves open has a name. */
export type Port = { name: string; dims: readonly (number | string)[]; type?: 'float' | 'uint8' }
export type Graph = { inputs: readonly Port[]; outputs: readonly Port[]; nodes: readonly Node[]; weights: readonly Weight[] }

const TYPES = { float: 1, uint8: 2, int64: 7 }

/** The bytes of a model file. */
export function onnxModel({ inputs, outputs, nodes, weights }: Graph): Uint8Array {
  const graph = join([
    ...nodes.map((node) => message(1, nodeOf(node))),
    message(2, 'graph'),
    ...weights.map((weight) => message(5, tensorOf(weight))),
    ...inputs.map((port) => message(11, portOf(port))),
    ...outputs.map((port) => message(12, portOf(port))),
  ])
  return join([number(1, 8), message(7, graph), message(8, join([message(1, ''), number(2, 17)]))])
}

function nodeOf({ op, inputs, output, attributes = {} }: Node): Uint8Array {
  const all = Object.entries(attributes).map(([name, value]) => message(5, attributeOf(name, value)))
  return join([...inputs.map((input) => message(1, input)), message(2, output), message(4, op), ...all])
}

function attributeOf(name: string, value: number | readonly number[] | string): Uint8Array {
  const [INT, STRING, INTS] = [2, 3, 7]
  if (typeof value === 'number') return join([message(1, name), number(3, value), number(20, INT)])
  if (typeof value === 'string') return join([message(1, name), message(4, value), number(20, STRING)])
  return join([message(1, name), ...value.map((each) => number(8, each)), number(20, INTS)])
}

function tensorOf({ name, dims, values }: Weight): Uint8Array {
  const isFloat = values instanceof Float32Array
  const raw = isFloat ? values : BigInt64Array.from(values)
  const bytes = new Uint8Array(raw.buffer, raw.byteOffset, raw.byteLength)
  return join([...dims.map((dim) => number(1, dim)), number(2, isFloat ? TYPES.float : TYPES.int64), message(8, name), message(9, bytes)])
}

function portOf({ name, dims, type = 'float' }: Port): Uint8Array {
  const shape = join(dims.map((dim) => message(1, typeof dim === 'number' ? number(1, dim) : message(2, dim))))
  return join([message(1, name), message(2, message(1, join([number(1, TYPES[type]), message(2, shape)])))])
}

function number(field: number, value: number): Uint8Array {
  return join([varint(field << 3), varint(value)])
}

function message(field: number, content: Uint8Array | string): Uint8Array {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content
  return join([varint((field << 3) | 2), varint(bytes.length), bytes])
}

function varint(value: number): Uint8Array {
  const bytes = []
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128)
  return Uint8Array.of(...bytes, value)
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts)
}
