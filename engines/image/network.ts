/** Networks in ONNX files, run by ONNX Runtime on one core. For child processes only. */

/** Numbers of a picture, channel after channel, row by row. */
export type Planes = { channels: number; width: number; height: number; values: Float32Array }
/** A side that the graph leaves open is null. */
export type Port = { name: string; channels: number | null; width: number | null; height: number | null }
export type Network = {
  inputs: readonly Port[]
  /** The first output for inputs in the order of the ports. Throws an Error with ONNX Runtime's message. */
  run(inputs: readonly Planes[]): Promise<Planes>
}

type Tensor = { dims: readonly number[]; data: unknown }
type Metadata = { name: string; isTensor: boolean; type?: string; shape?: readonly (number | string)[] }
type Session = {
  outputNames: readonly string[]
  inputMetadata: readonly Metadata[]
  run(feeds: Record<string, Tensor>, fetches: readonly string[]): Promise<Record<string, Tensor>>
}
/** As much of ONNX Runtime as is used here. */
type Runtime = {
  InferenceSession: { create(path: string, options: object): Promise<Session> }
  Tensor: new (type: 'float32', data: Float32Array, dims: readonly number[]) => Tensor
}

// By a name of its own, so that the program is checked where the optional package is not installed.
const RUNTIME = 'onnxruntime-node'
/** Workers run as many runs at once as they have slots: each gets one core. An arena would keep the most that any part of the network took. */
const OPTIONS = { intraOpNumThreads: 1, interOpNumThreads: 1, enableCpuMemArena: false, logSeverityLevel: 3 }

/** Loads a model. Throws an Error of one sentence when it is none, or takes something other than pictures of floats. */
export async function openNetwork(model: string): Promise<Network> {
  const { InferenceSession, Tensor } = ((await import(RUNTIME)) as { default: Runtime }).default
  const session = await InferenceSession.create(model, OPTIONS).catch((error: unknown) => {
    throw new Error(`${model} is not a model that ONNX Runtime can load: ${messageOf(error)}`, { cause: error })
  })
  const inputs = session.inputMetadata.map(portOf)

  async function run(planes: readonly Planes[]): Promise<Planes> {
    const tensors = planes.map(({ channels, height, width, values }) => new Tensor('float32', values, [1, channels, height, width]))
    const [output = ''] = session.outputNames
    const feeds = Object.fromEntries(inputs.map(({ name }, i) => [name, tensors[i] as Tensor]))
    const { [output]: made } = await session.run(feeds, [output])
    return planesOf(output, made)
  }

  return { inputs, run }
}

/** The only input of a graph that sees pictures. Throws an Error of one sentence when it has another or more. */
export function pictureInput({ inputs }: Network): Port {
  const [input] = inputs
  if (!input || inputs.length > 1) throw new Error(`it has ${inputs.length} inputs; a picture is one`)
  if (input.channels !== null && input.channels !== 3) throw new Error(`its input has ${input.channels} channels; a picture has 3`)
  return input
}

/** The side of the square that a graph sees: its own, or the one that the operator says. Throws an Error of one sentence when they contradict, or none is known. */
export function sideOf({ width, height }: Port, size: number | undefined): number {
  if (width !== height) throw new Error(`its input is of ${width ?? 'any'} by ${height ?? 'any'} pixels; a square is needed`)
  if (width === null && size === undefined) throw new Error('its input is of any size: size is missing')
  if (width !== null && size !== undefined && width !== size)
    throw new Error(`its input is of ${width} by ${width} pixels: size cannot be ${size}`)
  return width ?? size ?? 0
}

function portOf({ name, isTensor, type, shape = [] }: Metadata): Port {
  if (!isTensor || type !== 'float32') throw new Error(`its input ${name} is of the type ${type ?? 'unknown'}; float32 is needed`)
  if (shape.length !== 4)
    throw new Error(`its input ${name} has ${shape.length} dimensions; a picture has 4: one, channels, height and width`)
  const [, channels, height, width] = shape.map((side) => (typeof side === 'number' && side > 0 ? side : null))
  return { name, channels: channels ?? null, height: height ?? null, width: width ?? null }
}

function planesOf(name: string, tensor: Tensor | undefined): Planes {
  const { dims = [], data } = tensor ?? {}
  if (!(data instanceof Float32Array)) throw new Error(`its output ${name} is not of the type float32`)
  const [height = 0, width = 0] = dims.slice(-2)
  return { channels: data.length / Math.max(1, width * height), width, height, values: data }
}

function messageOf(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).split('\n', 1)[0] ?? ''
}
