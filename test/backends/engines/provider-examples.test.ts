/** The ENGINES files of examples/providers against the shapes that the vendors document: every route makes what a client may request of it. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseEngines, type Route } from '../../../src/backends/engines/engines-file.ts'
import type { Engine, EngineRequest, OpenEngine } from '../../../src/backends/engines/engine.ts'
import { openaiEngines } from '../../../src/backends/engines/openai/openai.ts'
import { replicateEngines } from '../../../src/backends/engines/replicate/replicate.ts'
import { generationOf, type GenerationBody, type Kind } from '../../../src/domain/media-generations.ts'
import { operationRequest, type Operation, type OperationInput } from '../../../src/domain/media-operations.ts'
import { openOpenai } from '../../fakes/openai.ts'
import { sends } from '../../fakes/provider.ts'
import { inputFaults, REPLICATE_MODELS } from '../../fakes/replicate-models.ts'
import { openReplicate } from '../../fakes/replicate.ts'
import { mp4, png } from './media-samples.ts'
import { fakeOutside, input, runOf } from './provider-run.ts'

const outside = fakeOutside({ keys: { env: () => 'r8_test0123456789abcdefghijklmnopqrstuvw', readFile: () => '' } })

/** The engine of a type, as the file has it, at a server here, and its routes. */
async function example(file: string, type: string, open: OpenEngine, baseUrl: string, apiKey?: string) {
  const { engines, routes } = parseEngines(file, readFileSync(join(import.meta.dirname, '../../../examples/providers', file), 'utf8'))
  const entry = engines.find((engine) => engine.type === type)!
  const { apiKeyEnv, ...options } = entry.options
  const engine = await open(entry.name, { ...options, baseUrl, ...(apiKey === undefined ? { apiKeyEnv } : { apiKey }) })
  return { engine, routes: routes.filter((route) => route.engine === entry.name) }
}

/** The request of a body by a route, as a creation makes it. */
function requested(engine: Engine, route: Route, body: Partial<GenerationBody>): EngineRequest {
  const found = generationOf(route.kind as Kind, { prompt: 'a lighthouse', ...body }, route, engine.offers[route.kind]!.formats, engine.options?.(route.kind, route.model) ?? [])
  if (found.outcome === 'invalid') throw new Error(JSON.stringify(found.errors))
  return found.request
}

/** A frame of 26 ms (ISO/IEC 11172-3, 2.4.1.3), ten times. */
const MP3 = Buffer.concat(Array.from({ length: 10 }, () => Buffer.concat([Buffer.of(0xff, 0xfb, 0x90, 0), Buffer.alloc(413)])))
const PICTURE = png(64, 48)
const RESULTS: Record<string, { file: string; bytes: Buffer; type: string }> = {
  video: { file: 'out.mp4', bytes: mp4(1280, 720, 5000), type: 'video/mp4' },
  music: { file: 'out.mp3', bytes: MP3, type: 'audio/mpeg' },
}
const PICTURES = { file: 'out.png', bytes: PICTURE, type: 'image/png' }

t.test('every route of replicate.yaml sends what its model documents, whatever a client requests', async (t) => {
  const fake = await openReplicate(t)
  const { engine, routes } = await example('replicate.yaml', 'replicate', replicateEngines(outside), fake.url)
  t.teardown(() => engine.close())
  const bodies: Record<string, Partial<GenerationBody>[]> = {
    image: [{}, { n: 4, seed: 7, aspect_ratio: '16:9' }, { output_format: 'jpeg', size: '2048x1024' }],
    video: [{}, { duration_seconds: 7.5, aspect_ratio: '3:4', negative_prompt: 'people' }, { image_url: 'https://example.com/a.png', duration_seconds: 2 }],
    music: [{}, { duration_seconds: 0.4, seed: 1 }, { duration_seconds: 12.3 }],
  }
  const operations: Record<string, OperationInput[]> = {
    background_remove: [{}],
    upscale: [{ scale: 2 }, { scale: 4 }],
    ai_edit: [{ prompt: 'snow' }, { prompt: 'snow', seed: 3, output_format: 'jpeg' }],
    inpaint: [{ prompt: 'a boat', mask_url: 'm' }, { prompt: 'a boat', mask_url: 'm', grow_mask: 2, output_format: 'jpeg' }],
  }
  t.same(routes.map(({ kind }) => kind), [...Object.keys(bodies), ...Object.keys(operations)])
  for (const route of routes) {
    const shape = REPLICATE_MODELS[route.model!.split(':')[0]!]!
    const { file, bytes, type } = RESULTS[route.kind] ?? PICTURES
    const requests = bodies[route.kind]?.map((body) => ({ request: requested(engine, route, body), body })) ??
      operations[route.kind]!.map((body) => ({ request: operationRequest(route.kind as Operation, body, 'png'), body }))
    for (const { request, body } of requests) {
      const hasSource = !('width' in request) || 'image_url' in body
      const inputs = [...(hasSource ? [input('media', png(32, 24))] : []), ...('mask_url' in body ? [input('mask', png(32, 24))] : [])]
      const count = ('width' in request && request.n) || 1
      const urls = Array.from({ length: count }, (_, i) => `${fake.origin}/delivery/${i}-${file}`)
      fake.states = [{ status: 'succeeded', output: shape.output === 'uris' ? urls : urls[0] }]
      fake.next('GET /delivery/*', ...urls.map(() => sends(bytes, type)))
      const before = fake.predictions.size
      // The results here are PNG, for a request of a WebP as well. A JPEG is refused, but requested in the model's word for it.
      const made = await engine.run(request.format === 'webp' ? { ...request, format: 'png' } : request, runOf({ model: route.model, limits: route.max, inputs }))
      t.equal(fake.predictions.size, before + 1)
      t.same(inputFaults(shape, [...fake.predictions.values()].at(-1)!.input), [], `${route.kind} ${JSON.stringify(body)}`)
      if (request.format === 'jpeg') continue
      t.match(made, { outcome: 'made', contentType: type, used: { Job: 1000 * count } }, `${route.kind} ${JSON.stringify(body)}`)
      t.equal(made.outcome === 'made' && (made.others ?? []).length, count - 1)
    }
  }
})

t.test('every route of openai.yaml sends what the API documents, and gets as many pictures as were requested', async (t) => {
  const fake = await openOpenai(t)
  const { engine, routes } = await example('openai.yaml', 'openai', openaiEngines(outside), fake.url, 'sk-test-0123456789abcdef')
  t.teardown(() => engine.close())
  t.same(routes.map(({ kind }) => kind), ['image', 'ai_edit', 'inpaint'])
  const [image, ...edits] = routes
  for (const [body, sent] of [[{}, { quality: 'medium', n: undefined }], [{ n: 3, quality: 'high' }, { quality: 'high', n: 3 }]] as const) {
    const request = requested(engine, image!, body)
    const made = await engine.run(request, runOf({ model: image!.model, limits: image!.max, quality: image!.qualities['width' in request ? request.quality! : '']!.value }))
    t.match(JSON.parse(fake.received.at(-1)!.body.toString()), { model: 'gpt-image-1.5', ...sent })
    const count = body && 'n' in body ? 3 : 1
    t.match(made, { outcome: 'made', used: { Job: 1000 * count } })
    t.equal(made.outcome === 'made' && (made.others ?? []).length, count - 1)
  }
  for (const route of edits) {
    const inputs = [input('media', png(32, 24)), ...(route.kind === 'inpaint' ? [input('mask', png(32, 24, { alpha: 0 }))] : [])]
    const request = operationRequest(route.kind as Operation, { prompt: 'snow' }, 'png')
    t.match(await engine.run(request, runOf({ model: route.model, limits: route.max, inputs })), { outcome: 'made', used: { Job: 1000 } }, route.kind)
  }
  t.same(engine.options?.('image', 'gpt-image-1.5'), ['n', 'quality'], 'the vendor takes no negative prompt')
})
