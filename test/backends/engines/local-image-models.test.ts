/** Models of the operator in the engine `local-image`: small graphs that are made here, each with an effect that can be seen in a picture. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { missingOperations, openLocalImage } from '../../../engines/image/image-engine.ts'
import type { CheckJob } from '../../../engines/image/check-model.ts'
import { readModels, type Modelled, type Models } from '../../../engines/image/models.ts'
import { onnxModel, type Graph, type Port } from '../../../engines/image/models/onnx-writer.ts'
import { openEngines, type Input } from '../../../src/backends/engines/engine.ts'
import type { OperationRequest } from '../../../src/domain/media-operations.ts'
import { runControl } from '../../fakes/engine.ts'
import { folderFor } from '../../temporary-folder.ts'
import { at, decoded, decodedBytes, distance, open, paint, type Raw } from './pictures.ts'

const skip = Object.values(missingOperations(readModels({}).models))[0] ?? false

const port = (name: string, channels: number, side: number | null = null): Port => ({ name, dims: [1, channels, ...(side === null ? [`${name} height`, `${name} width`] : [side, side])] })
const floats = (name: string, dims: number[], values: readonly number[]) => ({ name, dims, values: Float32Array.from(values) })

/** Each colour of the output is a mixture of the input's channels. */
function mixing(rows: readonly (readonly number[])[], inputs: readonly Port[], more: Partial<Graph> = {}): Graph {
  const mixed = { op: 'Conv', inputs: ['all', 'mixture'], output: 'out' }
  const join = inputs.length > 1 ? [{ op: 'Concat', inputs: inputs.map(({ name }) => name), output: 'all', attributes: { axis: 1 } }] : []
  const nodes = [...join, { ...mixed, inputs: [join.length > 0 ? 'all' : (inputs[0]?.name ?? ''), 'mixture'] }, ...(more.nodes ?? [])]
  return { inputs, outputs: more.outputs ?? [port('out', rows.length)], nodes, weights: [floats('mixture', [rows.length, rows[0]?.length ?? 0, 1, 1], rows.flat()), ...(more.weights ?? [])] }
}

const RED = [[1, 0, 0]]
const SWAPPED = [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
/** The picture, and where the mask is, the colour of 0.2, 0.4 and 0.6. */
const FILL = [[1, 0, 0, 0.2], [0, 1, 0, 0.4], [0, 0, 1, 0.6]]
/** Repeats every pixel, and swaps red and blue. */
const repeating = (scale: number, side: number | null = null): Graph =>
  mixing(SWAPPED, [port('picture', 3, side)], {
    nodes: [{ op: 'Resize', inputs: ['out', '', 'scales'], output: 'larger', attributes: { mode: 'nearest', coordinate_transformation_mode: 'asymmetric', nearest_mode: 'floor' } }],
    outputs: [port('larger', 3)],
    weights: [floats('scales', [4], [1, 1, scale, scale])],
  })

async function fileOf(t: Test, graph: Graph | Uint8Array): Promise<{ folder: string; model: string }> {
  const folder = await folderFor(t)
  const model = join(folder, 'model.onnx')
  await writeFile(model, graph instanceof Uint8Array ? graph : onnxModel(graph))
  return { folder, model }
}

async function opened(t: Test, operation: string, graph: Graph | Uint8Array, wants: object = {}) {
  const { folder, model } = await fileOf(t, graph)
  return openLocalImage('pictures', { scratch: folder, [operation]: { model, ...wants } })
}

/** What the child process that tries a model does, in this one: its start takes longer. Rejects as `opened` does. */
async function tried(operation: Modelled, options: object): Promise<Models> {
  const { models } = readModels({ [operation]: options })
  const { run } = await import('../../../engines/image/check-model.ts')
  await run({ operation, model: models[operation] } as CheckJob).catch((error: Error) => {
    throw new Error(`${operation}.model: ${error.message}`, { cause: error })
  })
  return models
}

const input = (bytes: Buffer): Input => ({ role: 'media', contentType: 'image/png', bytes: bytes.length, async *read() { yield bytes } })

/** What the child process of a run does, in this one. */
async function made(t: Test, request: OperationRequest, graph: Graph, wants: object, picture: Raw, mask?: Raw): Promise<Raw> {
  const { folder, model } = await fileOf(t, graph)
  const operation = request.kind as Modelled
  const models = await tried(operation, { model, ...wants })
  const { run } = (await import(`../../../engines/image/${operation.replace('_', '-')}.ts`)) as { run(job: object, progress: () => void): Promise<unknown> }
  const path = (name: string) => join(folder, name)
  await writeFile(path('media'), await open(picture).png().toBuffer())
  if (mask) await writeFile(path('mask'), await open(mask).png().toBuffer())
  await run({ ...request, input: path('media'), mask: path('mask'), output: path('result'), pixels: 1e6, model: models[operation] }, () => {})
  return decoded(path('result'))
}

const UPSCALE = { kind: 'upscale', format: 'png' } as const
const REMOVE = { kind: 'background_remove', background: 'transparent', crop: false, format: 'png' } as const
const INPAINT = { kind: 'inpaint', prompt: 'x', seed: 1, growMask: 0, format: 'png' } as const

const halves = paint(50, 30, (x) => (x < 25 ? [200, 100, 0] : [0, 50, 250]))

t.test('upscale by a model: its colours, its scale, and other scales by a filter', { skip }, async (t) => {
  for (const [scale, graph, wants] of [[2, repeating(2), { scale: 2 }], [3, repeating(4), { scale: 4 }], [4, repeating(2), { scale: 2 }]] as const) {
    const result = await made(t, { ...UPSCALE, scale }, graph, wants, halves)
    t.same([result.width, result.height], [50 * scale, 30 * scale])
    t.ok(distance(at(result, 10, 10), [0, 100, 200, 255]) <= 1 && distance(at(result, 45 * scale, 20 * scale), [250, 50, 0, 255]) <= 1, `${at(result, 10, 10)}`)
  }
  const engine = await opened(t, 'upscale', repeating(2), { scale: 2 })
  const result = await engine.run({ ...UPSCALE, scale: 2 }, runControl({ inputs: [input(await open(halves).png().toBuffer())] }))
  if (result.outcome !== 'made') throw new Error(result.code, { cause: result.cause })
  const bytes = Buffer.concat(await Array.fromAsync(result.body as AsyncIterable<Uint8Array>))
  const enlarged = await decodedBytes(bytes)
  t.same([enlarged.width, enlarged.height, result.contentType], [100, 60, 'image/png'], 'by the engine, in processes of its own')
  t.ok(distance(at(enlarged, 10, 10), [0, 100, 200, 255]) <= 1)
})

t.test('upscale by a graph of a fixed size goes in tiles of that size; bgr, 255 and normalised colours come back as they were', { skip }, async (t) => {
  const same = await made(t, { ...UPSCALE, scale: 2 }, repeating(2, 32), { scale: 2, overlap: 4, white: 255, outputWhite: 255 }, halves)
  t.ok(distance(at(same, 10, 10), [0, 100, 200, 255]) <= 1)
  const swapped = await made(t, { ...UPSCALE, scale: 2 }, repeating(2), { scale: 2, channels: 'bgr' }, halves)
  t.ok(distance(at(swapped, 10, 10), [0, 100, 200, 255]) <= 1, 'swapped, in the other order')
  const shifted = await made(t, { ...UPSCALE, scale: 2 }, repeating(2), { scale: 2, mean: [0.1, 0, 0], deviation: [1, 2, 1] }, halves)
  t.ok(distance(at(shifted, 10, 10), [0, 50, 174.5, 255]) <= 1, `${at(shifted, 10, 10)}`)
})

t.test('background_remove by a model: what it calls the subject stays, by probabilities or logits', { skip }, async (t) => {
  const plain = { mean: [0, 0, 0], deviation: [1, 1, 1] }
  const scene = paint(60, 40, (x) => (x < 30 ? [255, 255, 255] : [0, 0, 0]))
  const logits = { ...RED, 0: [100, 0, 0] }
  for (const [graph, wants] of [[mixing(RED, [port('picture', 3, 64)]), plain], [mixing(RED, [port('picture', 3)]), { ...plain, size: 48 }], [mixing([logits[0]], [port('picture', 3, 64)]), { ...plain, mean: [0.5, 0, 0], output: 'logits' }]] as const) {
    const result = await made(t, REMOVE, graph, wants, scene)
    t.same([at(result, 10, 20)[3], at(result, 50, 20)[3]], [255, 0])
  }
  for (const [width, height] of [[1, 1], [8000, 20]] as const) {
    const result = await made(t, REMOVE, mixing(RED, [port('picture', 3, 64)]), plain, paint(width, height, () => [255, 255, 255]))
    t.same([result.width, result.height, at(result, 0, 0)[3]], [width, height, 255], 'the smallest and the widest pictures')
  }
})

t.test('inpaint by a model: the hole gets what it makes, all else stays; masks as an input or a channel, white or black', { skip }, async (t) => {
  const inHole = (x: number, y: number) => x >= 20 && x < 30 && y >= 10 && y < 20
  const mask = paint(50, 30, (x, y) => (inHole(x, y) ? [255, 255, 255] : [0, 0, 0]))
  const black = FILL.map(([r = 0, g = 0, b = 0, fill = 0]) => [r, g, b, -fill])
  const filled = mixing(black, [port('picture', 3, 64), port('mask', 1, 64)])
  for (const [graph, wants] of [
    [mixing(FILL, [port('picture', 3, 64), port('mask', 1, 64)]), {}],
    [mixing(FILL.map(([r = 0, g = 0, b = 0, fill = 0]) => [fill, r, g, b]), [port('mask', 1), port('picture', 3)]), { size: 32 }],
    [mixing(FILL, [port('picture', 4, 64)]), {}],
    [{ ...filled, nodes: [...filled.nodes, { op: 'Add', inputs: ['out', 'colour'], output: 'sum' }], outputs: [port('sum', 3)], weights: [...filled.weights, floats('colour', [1, 3, 1, 1], [0.2, 0.4, 0.6])] }, { mask: 'black' }],
  ] as const) {
    const result = await made(t, INPAINT, graph, wants, halves, mask)
    t.ok(distance(at(result, 25, 15), [51, 102, 153, 255]) <= 1, `${at(result, 25, 15)}`)
    t.same([at(result, 5, 5), at(result, 40, 5)], [[200, 100, 0, 255], [0, 50, 250, 255]])
  }
})

t.test('what is no model, or does not fit, is refused when the engine is opened, with what to change', { skip }, async (t) => {
  const open = [port('picture', 3)]
  const cases: [operation: Modelled, graph: Graph | Uint8Array, wants: object, message: RegExp][] = [
    ['upscale', Buffer.from('no model'), { scale: 2 }, /^upscale\.model: .*model\.onnx is not a model that ONNX Runtime can load: /],
    ['upscale', repeating(2), { scale: 4 }, /^upscale\.model: it makes 128 by 128 pixels of 64 by 64: scale cannot be 4$/],
    ['upscale', repeating(2), {}, /^upscale\.scale is required$/],
    ['upscale', repeating(2), { scale: 2, colours: 3 }, /^upscale\.colours is not a setting$/],
    ['upscale', repeating(2, 32), { scale: 2, overlap: 16 }, /^upscale\.model: overlap leaves nothing of a tile$/],
    ['upscale', mixing(RED, open), { scale: 2 }, /^upscale\.model: its output has 1 channels; a picture has 3$/],
    ['upscale', mixing(FILL, [port('picture', 3), port('mask', 1)]), { scale: 2 }, /^upscale\.model: it has 2 inputs; a picture is one$/],
    ['upscale', mixing(SWAPPED, [{ name: 'picture', dims: [1, 3, 'h', 'w'], type: 'uint8' }]), { scale: 2 }, /^upscale\.model: .*(uint8|float32)/],
    ['background_remove', mixing(RED, open), {}, /^background_remove\.model: its input is of any size: size is missing$/],
    ['background_remove', mixing(RED, [port('picture', 3, 64)]), { size: 32 }, /^background_remove\.model: its input is of 64 by 64 pixels: size cannot be 32$/],
    ['background_remove', mixing([[100, 0, 0]], open), { size: 32 }, /^background_remove\.model: its output is not between 0 and 1: is it of logits\?/],
    ['background_remove', mixing(SWAPPED, open), { size: 32 }, /^background_remove\.model: its output has 3 channels; a mask has 1$/],
    ['inpaint', mixing(SWAPPED, open), { size: 32 }, /^inpaint\.model: its inputs are not a picture of 3 channels and a mask of 1, nor one of 4 channels$/],
  ]
  for (const [operation, graph, wants, message] of cases) {
    const { model } = await fileOf(t, graph)
    await t.rejects(tried(operation, { model, ...wants }), message, `${message}`)
  }
  await t.rejects(opened(t, 'upscale', repeating(2), { scale: 4 }), /^upscale\.model: it makes 128 by 128 pixels of 64 by 64: scale cannot be 4$/)
  await t.rejects(openLocalImage('pictures', { upscale: { model: '/nowhere.onnx', scale: 2 } }), /^upscale\.model: \/nowhere\.onnx cannot be read \(ENOENT\)$/)
  await t.rejects(openLocalImage('pictures', { upscale: { model: 'here.onnx', scale: 2 } }), /^upscale\.model must be an absolute path$/)
})

t.test('a process that only quotes trusts the ENGINES file, and looks for no model or package', async (t) => {
  const folder = t.testdir({ 'engines.yaml': `
engines: [{ name: pictures, type: local-image, upscale: { model: /elsewhere/model.onnx, scale: 4 } }, { name: films, type: local, ffmpeg: /elsewhere }]
routes:
  - { operation: upscale, engine: pictures, price: { amount: "0.01", per: Job } }
  - { operation: trim, engine: films, price: { amount: "0.01", per: Job } }` })
  const file = join(folder, 'engines.yaml')
  const engines = (runs: boolean) => openEngines({ file, runs, log: { info() {}, warn() {} }, pollMs: 60_000 })
  const gateway = await engines(false)
  t.teardown(() => gateway.close())
  await gateway.ready()
  t.same([gateway.offer('upscale')?.formats, gateway.offer('trim')?.formats[0]], [['png', 'jpeg', 'webp'], 'mp4'])
  t.match(await gateway.run({ ...UPSCALE, scale: 2 }, runControl({})), { outcome: 'failed', code: 'not_supported' })
  if (skip) return
  const worker = await engines(true)
  t.teardown(() => worker.close())
  await t.rejects(worker.ready(), /engines\.yaml, line 2: engine pictures: upscale\.model: \/elsewhere\/model\.onnx cannot be read/)
})
