/**
 * An OpenAI-compatible media API that follows the published OpenAPI document: images/generations, images/edits, videos, audio/speech; and audio/generate as
 * vLLM-Omni documents it. Parameters that a model does not take are refused as the vendor refuses them.
 */
import type { ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { mediaInfo } from '../../src/domain/media-info.ts'
import { mp4, png, wav } from '../backends/engines/media-samples.ts'
import { fileOf, formOf, json, openProvider, sends, type FakeProvider, type Received } from './provider.ts'

export const OPENAI_KEY = 'sk-test-0123456789abcdef'

export type FakeOpenai = FakeProvider & {
  /** What `baseUrl` is. */
  url: string
  videos: Map<string, Video>
  /** How many polls find a video in progress before it is completed. */
  polls: number
  /** Answers pictures as URLs, as dall-e does by default. */
  asUrls: boolean
}

export type Video = { id: string; polls: number; status: 'queued' | 'in_progress' | 'completed' | 'failed'; error: { code: string; message: string } | null; fields: Record<string, string> }

const GENERATION_FIELDS = ['prompt', 'model', 'n', 'quality', 'response_format', 'output_format', 'output_compression', 'stream', 'partial_images', 'size', 'moderation', 'background', 'style', 'user']
const EDIT_FIELDS = ['image', 'mask', 'prompt', 'background', 'model', 'n', 'size', 'response_format', 'output_format', 'output_compression', 'user', 'input_fidelity', 'stream', 'partial_images', 'quality']
const VIDEO_FIELDS = ['model', 'prompt', 'input_reference', 'seconds', 'size']
const SPEECH_FIELDS = ['model', 'input', 'instructions', 'voice', 'response_format', 'speed', 'stream_format']
const SIZES: [RegExp, string[]][] = [
  [/^gpt-image-1/, ['auto', '1024x1024', '1536x1024', '1024x1536']],
  [/^dall-e-2$/, ['256x256', '512x512', '1024x1024']],
  [/^dall-e-3$/, ['1024x1024', '1792x1024', '1024x1792']],
]

/** The body of a failure, as the vendor writes it. */
export const openaiError = (code: string | null, message: string, type = 'invalid_request_error', param: string | null = null) => ({ error: { message, type, param, code } })

function refuse(response: ServerResponse, param: string, message = `Unknown parameter: '${param}'.`, code = 'unknown_parameter'): void {
  json(response, 400, openaiError(code, message, 'invalid_request_error', param))
}

export async function openOpenai(t: Test): Promise<FakeOpenai> {
  const provider = await openProvider(t, async (response, request) => {
    if (request.path.startsWith('/results/')) return sends(png(8, 8), 'image/png')(response, request)
    if (request.headers.authorization !== `Bearer ${OPENAI_KEY}`) {
      return json(response, 401, openaiError('invalid_api_key', `Incorrect API key provided: ${String(request.headers.authorization).slice(7, 14)}***cdef.`))
    }
    const route = `${request.method} ${request.path.replace(/^\/v1/, '').replace(/^\/videos\/[^/]+/, '/videos/{id}')}`
    await ROUTES[route]?.(fake, response, request)
    if (!ROUTES[route]) json(response, 404, openaiError(null, `Invalid URL (${request.method} ${request.path})`))
  })
  const fake: FakeOpenai = Object.assign(provider, { url: `${provider.origin}/v1`, videos: new Map<string, Video>(), polls: 1, asUrls: false })
  return fake
}

const ROUTES: Record<string, (fake: FakeOpenai, response: ServerResponse, request: Received) => void | Promise<void>> = {
  'POST /images/generations': (fake, response, request) => {
    const fields = JSON.parse(request.body.toString()) as Record<string, string>
    const unknown = Object.keys(fields).find((name) => !GENERATION_FIELDS.includes(name) && !(name === 'seed' && !vendors(fields['model'])) && !(name === 'negative_prompt' && !vendors(fields['model'])))
    if (unknown) return refuse(response, unknown)
    answerPicture(fake, response, fields)
  },
  'POST /images/edits': async (fake, response, request) => {
    const form = await formOf(request)
    const fields = Object.fromEntries([...form].filter((entry): entry is [string, string] => typeof entry[1] === 'string'))
    const unknown = [...form.keys()].find((name) => !EDIT_FIELDS.includes(name) && !(name === 'seed' && !vendors(fields['model'])))
    if (unknown) return refuse(response, unknown)
    const [image, mask] = [await fileOf(form, 'image'), await fileOf(form, 'mask')]
    const picture = image && mediaInfo(image.bytes, image.bytes.length)
    const taken = fields['model'] === 'dall-e-2' ? ['image/png'] : ['image/png', 'image/jpeg', 'image/webp']
    if (!picture || picture.contentType !== image.type || !taken.includes(picture.contentType)) return refuse(response, 'image', 'Invalid image file or mode for image 1, please check your image file.', 'invalid_image_file')
    if (mask) {
      const drawn = mediaInfo(mask.bytes, mask.bytes.length)
      const fits = drawn?.contentType === 'image/png' && drawn.width === picture.width && drawn.height === picture.height
      if (!fits || !drawn.alpha) return refuse(response, 'mask', 'Invalid mask image format - mask image missing alpha channel, or of another size.', 'invalid_mask_image_format')
    }
    answerPicture(fake, response, fields)
  },
  'POST /videos': async (fake, response, request) => {
    const form = await formOf(request)
    const fields = Object.fromEntries([...form].map(([name, value]) => [name, String(value)]))
    const unknown = Object.keys(fields).find((name) => !VIDEO_FIELDS.includes(name))
    if (unknown) return refuse(response, unknown)
    if (fields['model']?.startsWith('sora') && !['4', '8', '12'].includes(fields['seconds'] ?? '4')) return refuse(response, 'seconds', 'Invalid value.', 'invalid_value')
    if (fields['model'] === 'sora-2' && !['720x1280', '1280x720'].includes(fields['size'] ?? '')) return refuse(response, 'size', 'Invalid value.', 'invalid_value')
    const video: Video = { id: `video_${fake.videos.size + 1}`, polls: 0, status: 'queued', error: null, fields }
    fake.videos.set(video.id, video)
    json(response, 200, videoBody(video))
  },
  'GET /videos/{id}': (fake, response, request) => {
    const video = videoOf(fake, request)
    if (!video) return json(response, 404, openaiError('not_found', `Video with id '${request.path.split('/').at(-1)}' not found.`))
    video.polls++
    if (video.status !== 'failed') video.status = video.polls > fake.polls ? 'completed' : 'in_progress'
    json(response, 200, videoBody(video, Math.min(99, Math.floor((100 * video.polls) / (fake.polls + 1)))))
  },
  'GET /videos/{id}/content': (fake, response, request) => {
    const video = videoOf(fake, request)
    if (video?.status !== 'completed') return json(response, 404, openaiError('not_found', 'Video is not ready yet, or not there any more.'))
    const [width = 0, height = 0] = (video.fields['size'] ?? '720x1280').split('x').map(Number)
    sends(mp4(width, height, 1000 * Number(video.fields['seconds'] ?? 4), { index: 'end' }), 'video/mp4')(response, request)
  },
  'DELETE /videos/{id}': (fake, response, request) => {
    const id = videoOf(fake, request)?.id
    if (id === undefined) return json(response, 404, openaiError('not_found', 'There is no such video.'))
    fake.videos.delete(id)
    json(response, 200, { id, object: 'video.deleted', deleted: true })
  },
  'POST /audio/speech': (_fake, response, request) => {
    const fields = JSON.parse(request.body.toString()) as Record<string, unknown>
    const unknown = Object.keys(fields).find((name) => !SPEECH_FIELDS.includes(name))
    if (unknown) return refuse(response, unknown)
    const missing = ['model', 'input', 'voice'].find((name) => typeof fields[name] !== 'string')
    if (missing) return refuse(response, missing, `Missing required parameter: '${missing}'.`, 'missing_required_parameter')
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'transfer-encoding': 'chunked' }).end(wav(1200))
  },
  'POST /audio/generate': (_fake, response, request) => {
    const { audio_length: seconds } = JSON.parse(request.body.toString()) as { audio_length?: number }
    sends(wav((seconds ?? 47) * 1000), 'audio/wav')(response, request)
  },
}

const vendors = (model = ''): boolean => /^(gpt-image|chatgpt-image|dall-e)-/.test(model)
const videoOf = (fake: FakeOpenai, { path }: Received): Video | undefined => fake.videos.get(decodeURIComponent(path.split('/')[3] ?? ''))

function answerPicture(fake: FakeOpenai, response: ServerResponse, fields: Record<string, string>): void {
  const { model = 'the model of a compatible server', prompt, size = '1024x1024' } = fields
  if (typeof prompt !== 'string') return refuse(response, 'prompt', "Missing required parameter: 'prompt'.", 'missing_required_parameter')
  const isGpt = /^(gpt-image|chatgpt-image)-/.test(model)
  if (isGpt && fields['response_format'] !== undefined) return refuse(response, 'response_format')
  if (!isGpt && fields['output_format'] !== undefined) return refuse(response, 'output_format')
  const allowed = SIZES.find(([name]) => name.test(model))?.[1]
  if (allowed && !allowed.includes(size)) return refuse(response, 'size', `Invalid value: '${size}'. Supported values are: ${allowed.join(', ')}.`, 'invalid_value')
  const [width = 0, height = 0] = size.split('x').map(Number)
  if (fake.asUrls) return json(response, 200, { created: 1_713_833_628, data: [{ url: `${fake.origin}/results/picture.png` }] })
  const usage = { total_tokens: 100, input_tokens: 50, output_tokens: 50, input_tokens_details: { text_tokens: 10, image_tokens: 40 } }
  json(response, 200, { created: 1_713_833_628, data: Array.from({ length: Number(fields['n'] ?? 1) }, () => ({ b64_json: png(width, height).toString('base64') })), ...(isGpt ? { background: 'opaque', output_format: fields['output_format'] ?? 'png', size, quality: 'high', usage } : {}) })
}

function videoBody({ id, status, error, fields }: Video, progress = 0): object {
  const { model = 'sora-2', prompt, size = '720x1280', seconds = '4' } = fields
  const done = status === 'completed'
  return {
    id, object: 'video', model, status, progress: done ? 100 : progress, created_at: 1_712_697_600, completed_at: done ? 1_712_697_700 : null,
    expires_at: done ? 1_712_784_000 : null, prompt, size, seconds, remixed_from_video_id: null, error,
  }
}
