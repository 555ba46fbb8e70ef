/** Reads ONNX model files (onnx.proto, IR version 3 to 10), as far as networks of floats need it. */

export type Values = { dims: number[]; floats: Float32Array } | { dims: number[]; integers: number[] }
export type Attribute = number | number[] | string | Values
export type Node = { op: string; inputs: string[]; outputs: string[]; attributes: Record<string, Attribute> }
export type Graph = { nodes: Node[]; weights: Map<string, Values>; input: string; outputs: string[] }

type Field = { number: number; value: bigint; bytes: Uint8Array }

const FLOAT = 1
const INT64 = 7

/** Throws an Error when the bytes are no such model. */
export function readOnnx(bytes: Uint8Array): Graph {
  const graph = fieldsOf(new Uint8Array(bytes)).find(({ number }) => number === 7)
  if (!graph) throw new Error('no graph')
  const fields = fieldsOf(graph.bytes)
  const all = (wanted: number) => fields.filter(({ number }) => number === wanted).map(({ bytes }) => bytes)
  const weights = new Map(all(5).map((tensor) => [text(fieldsOf(tensor), 8), readTensor(tensor)]))
  const names = (wanted: number) => all(wanted).map((info) => text(fieldsOf(info), 1))
  const input = names(11).find((name) => !weights.has(name))
  if (input === undefined) throw new Error('no input')
  return { nodes: all(1).map(readNode), weights, input, outputs: names(12) }
}

function readNode(bytes: Uint8Array): Node {
  const fields = fieldsOf(bytes)
  const texts = (wanted: number) => fields.filter(({ number }) => number === wanted).map(({ bytes }) => decode(bytes))
  const attributes = fields.filter(({ number }) => number === 5).map(({ bytes }) => readAttribute(bytes))
  return { op: text(fields, 4), inputs: texts(1), outputs: texts(2), attributes: Object.fromEntries(attributes) }
}

function readAttribute(bytes: Uint8Array): [string, Attribute] {
  const fields = fieldsOf(bytes)
  const name = text(fields, 1)
  for (const { number, value, bytes } of fields) {
    if (number === 2) return [name, new DataView(bytes.buffer, bytes.byteOffset).getFloat32(0, true)]
    if (number === 3) return [name, Number(BigInt.asIntN(64, value))]
    if (number === 4) return [name, decode(bytes)]
    if (number === 5) return [name, readTensor(bytes)]
    if (number === 8) return [name, integers(fields, 8)]
  }
  return [name, []]
}

function readTensor(bytes: Uint8Array): Values {
  const fields = fieldsOf(bytes)
  const dims = integers(fields, 1)
  const type = Number(fields.find(({ number }) => number === 2)?.value ?? 0)
  const raw = fields.find(({ number }) => number === 9)?.bytes
  if (type === FLOAT && raw) return { dims, floats: new Float32Array(raw.slice().buffer) }
  if (type === INT64) return { dims, integers: raw ? Array.from(new BigInt64Array(raw.slice().buffer), Number) : integers(fields, 7) }
  throw new Error(`tensors of type ${type} are not supported`)
}

/** Repeated integers, packed or not. */
function integers(fields: Field[], wanted: number): number[] {
  return fields
    .filter(({ number }) => number === wanted)
    .flatMap(({ value, bytes }) => (bytes.length > 0 ? varints(bytes) : [value]))
    .map((value) => Number(BigInt.asIntN(64, value)))
}

function text(fields: Field[], wanted: number): string {
  const field = fields.find(({ number }) => number === wanted)
  return field ? decode(field.bytes) : ''
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}

function varints(bytes: Uint8Array): bigint[] {
  const found: bigint[] = []
  for (let at = 0; at < bytes.length;) {
    const { value, next } = varint(bytes, at)
    found.push(value)
    at = next
  }
  return found
}

function varint(bytes: Uint8Array, from: number): { value: bigint; next: number } {
  let value = 0n
  for (let at = from, shift = 0n; at < bytes.length; at++, shift += 7n) {
    const byte = bytes[at] ?? 0
    value |= BigInt(byte & 127) << shift
    if (byte < 128) return { value, next: at + 1 }
  }
  throw new Error('cut off')
}

/** The fields of a protobuf message (https://protobuf.dev/programming-guides/encoding): a varint in `value`, everything else in `bytes`. */
function fieldsOf(message: Uint8Array): Field[] {
  const fields: Field[] = []
  for (let at = 0; at < message.length;) {
    const tag = varint(message, at)
    const number = Number(tag.value >> 3n)
    const wire = Number(tag.value & 7n)
    const { value, next } = wire === 0 || wire === 2 ? varint(message, tag.next) : { value: 0n, next: tag.next }
    const length = wire === 1 ? 8 : wire === 5 ? 4 : wire === 2 ? Number(value) : 0
    if (wire > 5 || wire === 3 || wire === 4 || next + length > message.length) throw new Error('not a protobuf message')
    fields.push({ number, value, bytes: message.subarray(next, next + length) })
    at = next + length
  }
  return fields
}
