/** Pictures: `images/generations`, and `images/edits` with or without a mask. Both answer with the picture itself; there is no job that could be resumed. */
import type { GenerationRequest, Limits } from '../../../domain/media-generations.ts'
import { notMade, type Made, type NotMade, type Run } from '../engine.ts'
import { jsonBody, type Api, type Body } from '../provider/api-requests.ts'
import { contentOf } from '../provider/content.ts'
import type { OperationRequest } from '../../../domain/media-operations.ts'
import { failureOf, faulty, isGood } from '../provider/failure.ts'
import { bytesOf, extensionOf, loadSharp, maskFor, PICTURE_TYPES, pictureOf } from '../provider/mask.ts'
import { filePart, multipart, type Part } from '../provider/multipart.ts'
import { measured, together, type Fetched, type Results } from '../provider/result.ts'
import { complaintOf } from './error-codes.ts'
import { imageSize, styleOf, type Size } from './model-traits.ts'

export type Edit = Extract<OperationRequest, { kind: 'ai_edit' | 'inpaint' }>
type Around = { api: Api; results: Results }

/** A picture larger than this is not answered within JSON. */
const PICTURE_BYTES = 64 * 1024 * 1024
/** What the vendor takes as `image`. */
const SOURCE_BYTES = 50 * 1024 * 1024

/** Makes a picture from a prompt. */
export async function generate(around: Around, request: GenerationRequest, run: Run): Promise<Made | NotMade> {
  const { width, height } = request
  if (width === null || height === null) return notMade('not_supported', false)
  const { prompt, n, negativePrompt } = request
  const fields = {
    ...parametersOf(run, { width, height }, request.format, request.seed),
    prompt,
    ...(n !== undefined && { n }),
    ...(run.quality !== undefined && { quality: run.quality }),
    ...(negativePrompt !== undefined && { negative_prompt: negativePrompt }),
  }
  return made(around, '/images/generations', jsonBody(fields), request, run)
}

/** The mask marks the edit by transparent pixels, as the vendor's documentation has it. Without a mask all of the picture may change. */
export async function edit(around: Around, request: Edit, run: Run): Promise<Made | NotMade> {
  const media = run.inputs.find(({ role }) => role === 'media')
  const mask = run.inputs.find(({ role }) => role === 'mask')
  if (!media || (request.kind === 'inpaint' && !mask)) return notMade('unsupported_input', false)
  if (media.bytes > SOURCE_BYTES) return notMade('input_too_large', false)
  const types = styleOf(run.model) === 'dall-e' ? ['image/png'] : PICTURE_TYPES
  const picture = await pictureOf(await bytesOf(media), types, run.limits, loadSharp)
  if ('outcome' in picture) return picture
  const drawn =
    mask &&
    (await maskFor(picture, await bytesOf(mask), request.kind === 'inpaint' ? request.growMask : 0, 'transparent', run.limits, loadSharp))
  if (drawn && 'outcome' in drawn) return drawn
  const size = imageSize(run.model, picture, run.limits)
  if (!size) return faulty(`${run.model} makes no picture within the route's max.megapixels (${run.limits.pixels} pixels)`, false)
  const fields = { ...parametersOf(run, size, request.format, request.seed), prompt: request.prompt }
  const parts: Part[] = Object.entries(fields).map(([name, value]) => ({ name, value: String(value) }))
  parts.push(filePart('image', `image.${extensionOf(picture)}`, picture), ...(drawn ? [filePart('mask', 'mask.png', drawn)] : []))
  return made(around, '/images/edits', multipart(parts), request, run)
}

/** GPT image models choose no `response_format` and take `output_format`; the others the other way round. Only compatible servers take a seed. */
function parametersOf({ model }: Run, { width, height }: Size, format: string, seed: number | null): Record<string, string | number> {
  const style = styleOf(model)
  return {
    ...(model === null ? {} : { model }),
    size: `${width}x${height}`,
    ...(style === 'gpt-image' ? { output_format: format } : { response_format: 'b64_json' }),
    ...(style === 'compatible' && seed !== null ? { seed } : {}),
  }
}

async function made(
  { api, results }: Around,
  path: string,
  body: Body,
  request: GenerationRequest | Edit,
  run: Run,
): Promise<Made | NotMade> {
  const { signal, limits, idempotencyKey } = run
  const count = ('width' in request && request.n) || 1
  const pictureBytes = Math.min(PICTURE_BYTES, limits.bytes * count)
  const answer = await api.send({
    method: 'POST',
    path,
    body,
    signal,
    headers: { 'idempotency-key': idempotencyKey },
    maxBytes: Math.ceil((pictureBytes * 4) / 3) + 64 * 1024,
  })
  if (!isGood(answer)) return failureOf(`POST ${path}`, answer, complaintOf)
  const data: unknown[] = Array.isArray(answer.body['data']) ? answer.body['data'] : []
  const pictures: (Made | NotMade)[] = []
  for (const picture of data.slice(0, count)) pictures.push(await measured(await pictureIn(picture, results, run, limits), request, limits))
  return pictures.length === 0 ? faulty('the answer holds no picture', true) : together(pictures)
}

async function pictureIn(picture: unknown, results: Results, run: Run, limits: Limits): Promise<Fetched> {
  const { b64_json: base64, url } = (picture ?? {}) as { b64_json?: unknown; url?: unknown }
  if (typeof base64 === 'string') {
    const bytes = Buffer.from(base64, 'base64')
    return bytes.length > limits.bytes
      ? faulty(`the result is larger than ${limits.bytes} bytes`, false)
      : { outcome: 'fetched', content: contentOf(bytes) }
  }
  return typeof url === 'string' ? results.fetch(url, run) : faulty('the answer holds no picture', true)
}
