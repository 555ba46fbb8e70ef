/** The engine `replicate`: any kind or operation by a model of the Replicate API, or of a server that speaks it. */
import { Type, type Static } from 'typebox'
import { notMade, type Made, type NotMade, type EngineRequest, type Input, type OpenEngine, type Run } from '../engine.ts'
import { mediaInfo, PREFIX_BYTES } from '../../../domain/media-info.ts'
import { FIELD_PATTERNS } from '../../../domain/field-patterns.ts'
import { jsonBody, openApi, type Api } from '../provider/api-requests.ts'
import { failureOf, faulty, isGood, ProviderError } from '../provider/failure.ts'
import { failedPoll, runJob } from '../provider/job.ts'
import { bytesOf, hasSharp, loadSharp, maskFor, PICTURE_TYPES, pictureOf, type Marks, type Picture } from '../provider/mask.ts'
import type { Outside } from '../provider/environment.ts'
import { CANCEL_MS, offersOf, POLL_MS, providedEngine } from '../provider/provided-engine.ts'
import { measured, openResults, together } from '../provider/result.ts'
import { orderedMs, type Order } from '../provider/ordered-request.ts'
import { formatsOf, reachOf, readOptions, SHARED, strict } from '../provider/settings.ts'
import { urlOf } from './media-upload.ts'
import { modelInput, optionsIn, PARTS, unsupportedParameter, USUAL_NAMES, type InputNames, type MediaUrls } from './model-inputs.ts'
import { complaintOf, predictionStatus, resultUrls, targetOf } from './predictions.ts'

const VENDOR_URL = 'https://api.replicate.com/v1'

const formats = (...all: [string, ...string[]]) => formatsOf(all, [all[0]])
const name = Type.String({ minLength: 1, maxLength: 100 })
const inputs = Type.Optional(
  Type.Object(Object.fromEntries(PARTS.map((part) => [part, Type.Optional(name)])), {
    ...strict,
    description:
      "The model's name of each part of a request, in place of the usual names of the kind. Parts that are not named are not sent.",
  }),
)
const masks = Type.Enum(['white', 'black', 'transparent'], { default: 'white', description: "How the model's masks mark what is edited." })
const aspectRatios = Type.Optional(
  Type.Array(Type.String({ pattern: FIELD_PATTERNS.aspectRatio.pattern }), {
    minItems: 1,
    description: 'Those that the model takes; the nearest is requested.',
  }),
)
const seconds = Type.Optional(
  Type.Array(Type.Number({ minimum: 0.1, maximum: 3600 }), {
    minItems: 1,
    description: 'Lengths that the model takes, if not any; the nearest is requested.',
  }),
)
const picture = () => Type.Optional(Type.Object({ formats: formats('png', 'jpeg', 'webp'), inputs }, strict))
const masked = () => Type.Optional(Type.Object({ formats: formats('png', 'jpeg', 'webp'), inputs, masks }, strict))
const film = () => Type.Optional(Type.Object({ formats: formats('mp4'), inputs }, strict))

export const ReplicateOptions = Type.Object(
  {
    ...SHARED,
    offers: Type.Object(
      {
        image: Type.Optional(Type.Object({ formats: formats('png', 'jpeg', 'webp'), inputs, aspectRatios }, strict)),
        video: Type.Optional(Type.Object({ formats: formats('mp4'), inputs, aspectRatios, seconds }, strict)),
        music: Type.Optional(Type.Object({ formats: formats('wav', 'mp3', 'flac'), inputs, seconds }, strict)),
        background_remove: picture(),
        upscale: picture(),
        ai_edit: masked(),
        inpaint: masked(),
        trim: film(),
        merge: film(),
      },
      { ...strict, minProperties: 1, description: 'What its models make, one member for each kind and operation.' },
    ),
  },
  strict,
)

type Offer = { formats: string[]; inputs?: InputNames; masks?: Marks; seconds?: readonly number[]; aspectRatios?: readonly string[] }
const usualNames: Partial<Record<EngineRequest['kind'], InputNames>> = USUAL_NAMES
const namesOf = ({ inputs: named }: Offer, kind: EngineRequest['kind']): InputNames => named ?? usualNames[kind] ?? {}
type Around = { api: Api; outside: Outside; background(work: Promise<unknown>): void }

/** Opens engines of this type. Throws an Error of one sentence when the options make no sense. */
export function replicateEngines(outside: Outside): OpenEngine {
  return async (_name, options, { runs } = { runs: true }) => {
    const { offers: offered, ...shared }: Static<typeof ReplicateOptions> = readOptions(ReplicateOptions, options)
    const offers: Partial<Record<EngineRequest['kind'], Offer>> = offered
    const reach = reachOf(shared, VENDOR_URL, outside.keys)
    const api = openApi(reach, outside.clock)
    const results = openResults(api, reach, outside)
    const engine = providedEngine(api, offersOf(offered, !runs || hasSharp()), orderOf(offers), async (request, run, background) => {
      const offer = offers[request.kind] as Offer
      const job = await predict({ api, outside, background }, offer, request, run)
      if (job.outcome === 'failed') return job
      const urls = resultUrls(job.value, request.format, ('width' in request && request.n) || 1)
      if (urls.length === 0) return faulty(`the output of the model holds no URL: ${shapeOf(job.value)}`, job.value === null)
      const media: (Made | NotMade)[] = []
      for (const url of urls) media.push(await measured(await results.fetch(url, run), request, run.limits))
      return together(media)
    })
    return {
      ...engine,
      options: (kind) => {
        const offer = offers[kind as EngineRequest['kind']]
        return offer ? optionsIn(namesOf(offer, kind as EngineRequest['kind'])) : []
      },
      quote(request, limits, model, max = limits) {
        const quoted = engine.quote(request, limits, model)
        const offer = offers[request.kind]
        if (!offer || isSized(request, namesOf(offer, request.kind))) return quoted
        return { ...quoted, Megapixel: (Math.ceil(max.pixels / 1000) * quoted.Job) / 1000 }
      },
      unsupported: (request, roles) => unsupportedParameter(request, namesOf(offers[request.kind] as Offer, request.kind), roles),
    }
  }
}

/** The length that the prediction gets; a model that is not told any, and has no list, makes what it makes, up to the limit. */
const orderOf =
  (offers: Partial<Record<EngineRequest['kind'], Offer>>): Order =>
  (request, _model, limits) => {
    const offer = offers[request.kind]
    if (!offer || request.durationMs === null) return request
    if (!(offer.seconds ?? namesOf(offer, request.kind).seconds)) return { ...request, durationMs: limits.durationMs }
    const durationMs = orderedMs(request.durationMs, limits, offer.seconds)
    return durationMs === null ? null : { ...request, durationMs }
  }

/** Whether a model is told the size of its result. Another one makes what it makes, up to the route's limit, whatever the source is. */
function isSized(request: EngineRequest, { size, width, height }: InputNames): boolean {
  if (!('width' in request)) return 'scale' in request
  return request.width === null || size !== undefined || (width !== undefined && height !== undefined)
}

/** A quality under the name that the model has for it. */
const asModelsSay = (request: EngineRequest, { quality }: Run): EngineRequest =>
  'width' in request && quality !== undefined ? { ...request, quality } : request

/** Members rather than values, which may be a tenant's. */
const shapeOf = (output: unknown): string =>
  typeof output === 'object' && output !== null ? `{${Object.keys(output).slice(0, 10).join(', ')}}` : typeof output

/**
 * Runs a prediction to its output. Without `Prefer: wait`: the id of a prediction that is paid for would be unknown until that request is answered.
 */
async function predict(
  { api, outside, background }: Around,
  offer: Offer,
  request: EngineRequest,
  run: Run,
): Promise<{ outcome: 'ended'; value: unknown } | NotMade> {
  const path = (id: string): string => `/predictions/${encodeURIComponent(id)}`
  return runJob(
    {
      async start() {
        const target = targetOf(run.model)
        if (!target) return faulty(`the route's model must be owner/name, owner/name:version or a version, not ${run.model}`, false)
        const urls = await urlsOf(api, request, offer.masks ?? 'white', run)
        if ('outcome' in urls) return urls
        const given = modelInput(asModelsSay(request, run), namesOf(offer, request.kind), urls, offer.aspectRatios)
        if (given.outcome === 'lacking')
          return notMade(
            'not_supported',
            false,
            new ProviderError(`the inputs of ${request.kind} name no input of the model for ${given.part}`),
          )
        run.signal.throwIfAborted()
        const body = jsonBody({ ...target.fields, input: given.input })
        const answer = await api.send({
          method: 'POST',
          path: target.path,
          body,
          signal: new AbortController().signal,
          firstByteMs: POLL_MS,
          headers: { 'idempotency-key': run.idempotencyKey },
        })
        const id = isGood(answer) ? answer.body['id'] : undefined
        if (!isGood(answer) || typeof id !== 'string' || id === '') return failureOf(`POST ${target.path}`, answer, complaintOf)
        return { outcome: 'started', id, status: predictionStatus(answer.body) }
      },
      async poll(id) {
        const answer = await api.send({
          method: 'GET',
          path: path(id),
          signal: run.signal,
          firstByteMs: POLL_MS,
          // An output may be a data URL, and an answer repeats the input, which may be one as well.
          maxBytes: 4 * 1024 * 1024 + Math.ceil((Math.min(run.limits.bytes, 64 * 1024 * 1024) * 4) / 3),
        })
        return isGood(answer) && typeof answer.body['status'] === 'string'
          ? predictionStatus(answer.body)
          : failedPoll('GET /predictions/{id}', answer, complaintOf)
      },
      cancel: (id) => api.send({ method: 'POST', path: `${path(id)}/cancel`, signal: AbortSignal.timeout(CANCEL_MS) }),
    },
    run,
    { ...outside, background },
  )
}

async function urlsOf(api: Api, request: EngineRequest, marks: Marks, run: Run): Promise<MediaUrls | NotMade> {
  const prepared = await preparedInputs(request, marks, run)
  if ('outcome' in prepared) return prepared
  const urls: string[] = []
  for (const input of prepared) {
    const url = await urlOf(api, input, run.signal)
    if (typeof url !== 'string') return url
    urls.push(url)
  }
  const mask = prepared.findIndex(({ role }) => role === 'mask')
  return { media: urls.filter((_url, i) => i !== mask), mask: mask < 0 ? null : (urls[mask] ?? null) }
}

/** The inputs as they are sent: with a mask, the picture upright and the mask in the model's form. */
async function preparedInputs(request: EngineRequest, marks: Marks, { inputs: given, limits }: Run): Promise<readonly Input[] | NotMade> {
  const [media, mask] = [given.find(({ role }) => role === 'media'), given.find(({ role }) => role === 'mask')]
  if (request.kind === 'upscale' && media && (await scaledPixels(media, request.scale)) > limits.pixels)
    return notMade('input_too_large', false)
  if (!media || !mask) return given
  const upright = await pictureOf(await bytesOf(media), PICTURE_TYPES, limits, loadSharp)
  if ('outcome' in upright) return upright
  const drawn = await maskFor(upright, await bytesOf(mask), request.kind === 'inpaint' ? request.growMask : 0, marks, limits, loadSharp)
  return 'outcome' in drawn ? drawn : [inputOf('media', upright), inputOf('mask', drawn)]
}

function inputOf(role: Input['role'], { bytes, contentType }: Picture): Input {
  return {
    role,
    contentType,
    bytes: bytes.length,
    async *read() {
      yield bytes
    },
  }
}

/** How many pixels an enlarged picture has, by its header. */
async function scaledPixels(media: Input, scale: number): Promise<number> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of media.read()) {
    chunks.push(chunk)
    if ((bytes += chunk.length) >= PREFIX_BYTES) break
  }
  const info = mediaInfo(Buffer.concat(chunks), media.bytes)
  return (info?.width ?? 0) * (info?.height ?? 0) * scale ** 2
}
