/** A Replicate-compatible predictions API that follows the published OpenAPI document: predictions by model and by version, their states, cancel, and files. */
import type { ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { png } from '../backends/engines/media-samples.ts'
import { fileOf, formOf, json, openProvider, sends, type FakeProvider, type Received } from './provider.ts'

export const REPLICATE_TOKEN = 'r8_test0123456789abcdefghijklmnopqrstuvw'

export type Prediction = {
  id: string
  model: string
  version: string
  input: Record<string, unknown>
  status: 'starting' | 'processing' | 'succeeded' | 'failed' | 'canceled' | 'aborted'
  output: unknown
  error: string | null
  data_removed: boolean
}

export type FakeReplicate = FakeProvider & {
  /** The `baseUrl` of the engine. */
  url: string
  predictions: Map<string, Prediction>
  files: Map<string, { name: string; type: string; bytes: Buffer }>
  /** The states of the next polls, in order; the last one stays. */
  states: Partial<Prediction>[]
}

/** An error body of the API. */
export const problem = (status: number, title: string, detail: string) => ({ title, detail, status })

export async function openReplicate(t: Test): Promise<FakeReplicate> {
  const provider = await openProvider(t, async (response, request) => {
    if (request.path.startsWith('/delivery/')) return sends(png(64, 48), 'image/png')(response, request)
    if (request.headers.authorization !== `Bearer ${REPLICATE_TOKEN}`) return json(response, 401, problem(401, 'Unauthenticated', 'You did not pass a valid authentication token'))
    const [, , ...steps] = request.path.split('/').map(decodeURIComponent)
    await answer(fake, response, request, steps)
  })
  const output = `${provider.origin}/delivery/out-0.png`
  const fake: FakeReplicate = Object.assign(provider, {
    url: `${provider.origin}/v1`,
    predictions: new Map<string, Prediction>(),
    files: new Map<string, { name: string; type: string; bytes: Buffer }>(),
    states: [{ status: 'processing' }, { status: 'succeeded', output: [output] }] as Partial<Prediction>[],
  })
  return fake
}

async function answer(fake: FakeReplicate, response: ServerResponse, request: Received, steps: string[]): Promise<void> {
  const [first, second, third, fourth] = steps
  const route = `${request.method} ${first}`
  if (route === 'POST models' && fourth === 'predictions') return create(fake, response, request, `${second}/${third}`)
  if (route === 'POST predictions' && second === undefined) return create(fake, response, request, null)
  const prediction = first === 'predictions' ? fake.predictions.get(second ?? '') : undefined
  if (first === 'predictions' && !prediction) return json(response, 404, problem(404, 'Not found', 'The requested resource could not be found.'))
  if (prediction && request.method === 'GET' && third === undefined) {
    Object.assign(prediction, fake.states.length > 1 ? fake.states.shift() : fake.states[0])
    return json(response, 200, body(fake, prediction))
  }
  if (prediction && request.method === 'POST' && third === 'cancel') {
    if (['starting', 'processing'].includes(prediction.status)) prediction.status = 'canceled'
    return json(response, 200, body(fake, prediction))
  }
  if (route === 'POST files' && second === undefined) return upload(fake, response, request)
  json(response, 404, problem(404, 'Not found', 'The requested resource could not be found.'))
}

function create(fake: FakeReplicate, response: ServerResponse, request: Received, model: string | null): void {
  const fields = JSON.parse(request.body.toString()) as { version?: string; input?: Record<string, unknown> }
  const unknown = Object.keys(fields).find((name) => !['version', 'input', 'stream', 'webhook', 'webhook_events_filter'].includes(name))
  if (unknown || typeof fields.input !== 'object' || (model === null) !== (typeof fields.version === 'string')) {
    return json(response, 422, problem(422, 'Input validation failed', unknown ? `- ${unknown}: Additional property is not allowed` : '- input is required'))
  }
  const id = `p${fake.predictions.size + 1}gm3qorzdhgbfurvjtvhg6dck`
  const prediction: Prediction = { id, model: model ?? 'acme/versioned', version: fields.version ?? 'hidden', input: fields.input, status: 'starting', output: null, error: null, data_removed: false }
  fake.predictions.set(id, prediction)
  json(response, 201, body(fake, prediction))
}

function body(fake: FakeReplicate, { id, model, version, input, status, output, error, data_removed }: Prediction): object {
  const url = `${fake.url}/predictions/${id}`
  const ended = ['succeeded', 'failed', 'canceled', 'aborted'].includes(status)
  return {
    id, model, version, input, logs: '', output, data_removed, error, source: 'api', status, created_at: '2026-09-08T16:19:34.765994Z',
    ...(ended ? { started_at: '2026-09-08T16:19:34.779176Z', completed_at: '2026-09-08T16:19:34.791859Z', metrics: { predict_time: 0.012683, total_time: 0.025865 } } : {}),
    urls: { web: `https://replicate.com/p/${id}`, get: url, cancel: `${url}/cancel` },
  }
}

async function upload(fake: FakeReplicate, response: ServerResponse, request: Received): Promise<void> {
  const file = await fileOf(await formOf(request), 'content')
  if (!file) return json(response, 400, problem(400, 'Bad request', 'Missing content'))
  const id = `f${fake.files.size + 1}neqzikepnug6xezperrr4z55o`
  fake.files.set(id, file)
  json(response, 201, {
    id, name: file.name, content_type: file.type, size: file.bytes.length, etag: 'e', checksums: { sha256: '…' }, metadata: {},
    created_at: '2026-09-08T16:19:34Z', expires_at: '2026-09-09T16:19:34Z', urls: { get: `${fake.url}/files/${id}` },
  })
}
