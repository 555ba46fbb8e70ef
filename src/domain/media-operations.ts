/**
 * Operations on existing media: a body of `POST /api/v1/operations` → the input that is stored and shown, and the request that an engine runs. Pure.
 * Inputs have the names and units of the API; requests have milliseconds and pixels.
 */
import { Type } from 'typebox'
import type { FieldError } from './errors.ts'
import { FIELD_PATTERNS } from './field-patterns.ts'
import { amountsOf, formatFault, GENERATION_FIELDS, type Amounts, type GenerationRequest, type Limits } from './media-generations.ts'

export const OPERATIONS = ['background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim', 'merge'] as const
export type Operation = (typeof OPERATIONS)[number]

/** A validated operation with its defaults, for engines. */
export type OperationRequest =
  | { verb: 'background_remove'; /** `transparent`, or `#rrggbb` in lower case. */ background: string; crop: boolean; format: string }
  | { verb: 'upscale'; scale: 2 | 3 | 4; format: string }
  | { verb: 'ai_edit'; prompt: string; strength: number | null; seed: number | null; format: string }
  | { verb: 'inpaint'; prompt: string; seed: number | null; /** Pixels by which the mask grows. */ growMask: number; format: string }
  | {
      verb: 'trim'
      startMs: number
      /** Measured from the beginning of the source; null: to its end. */ endMs: number | null
      mode: 'accurate' | 'fast'
      format: string
    }
  | { verb: 'merge'; transition: 'none' | 'fade'; fit: 'contain' | 'cover'; format: string }

/** Longest address of a source. A data: URL is bounded by the body of its request. */
const URL_LENGTH_MAX = 8192
const DATA_URL_LENGTH_MAX = 1024 * 1024
const MERGED_MIN = 2
const MERGED_MAX = 20
/** A day: longer than any route allows, so that times stay exact. */
const SECONDS_MAX = 86_400

const { prompt, seed, output_format } = GENERATION_FIELDS
const source = (description: string) => Type.String({ minLength: 1, maxLength: DATA_URL_LENGTH_MAX, description })
const media_url = source('Address of the source: http or https, a link of an earlier result, or a data: URL in base64.')
const mask_url = source('Address of the mask. A mask with transparency marks by transparent pixels, any other by white.')
const time = (minimum: number, description: string) => Type.Number({ minimum, maximum: SECONDS_MAX, description })

/** The fields of a body by operation, for the schema of its route or tool. `operationFaults` checks the fields against each other. */
export const OPERATION_FIELDS = {
  background_remove: {
    media_url,
    background: Type.Optional(
      Type.String({ pattern: FIELD_PATTERNS.background.pattern, description: 'transparent (default), or a colour such as #ffffff.' }),
    ),
    crop: Type.Optional(Type.Boolean({ description: 'Crops the result to the subject; false by default.' })),
    output_format,
  },
  upscale: { media_url, scale: Type.Optional(Type.Enum([2, 3, 4], { description: '2 by default.' })), output_format },
  ai_edit: {
    media_url,
    prompt,
    mask_url: Type.Optional(mask_url),
    strength: Type.Optional(
      Type.Number({ minimum: 0, maximum: 1, description: 'How far the result may be from the source; the engine chooses by default.' }),
    ),
    seed,
    output_format,
  },
  inpaint: {
    media_url,
    prompt,
    mask_url,
    seed,
    grow_mask: Type.Optional(Type.Integer({ minimum: 0, maximum: 512, description: 'Pixels by which the mask grows; 0 by default.' })),
    output_format,
  },
  trim: {
    media_url,
    start_time: time(0, 'Where the section begins, in seconds from the beginning of the source.'),
    end_time: Type.Optional(time(0.001, 'Where it ends, in seconds from the beginning of the source; the end of the source by default.')),
    duration: Type.Optional(time(0.001, 'Length of the section in seconds, in place of end_time.')),
    mode: Type.Optional(
      Type.Enum(['accurate', 'fast'], { description: 'accurate (default) cuts at the exact time; fast at the key frame before it.' }),
    ),
    output_format,
  },
  merge: {
    media_url: Type.Optional(media_url),
    media_urls: Type.Array(source('An address as in media_url, but no data: URL.'), {
      minItems: 1,
      maxItems: MERGED_MAX,
      description: `${MERGED_MIN} to ${MERGED_MAX} addresses in their order, media_url counted as the first where it is given.`,
    }),
    transition: Type.Optional(Type.Enum(['none', 'fade'], { description: 'none by default.' })),
    fit: Type.Optional(
      Type.Enum(['contain', 'cover'], {
        description: 'How sources of another aspect ratio fill the picture: contain (default) adds bars, cover crops.',
      }),
    ),
    output_format,
  },
} as const

/** The fields of every operation, as those schemas let them pass. */
export type OperationBody = {
  operation: Operation
  media_url?: string
  mask_url?: string
  media_urls?: string[]
  background?: string
  crop?: boolean
  scale?: 2 | 3 | 4
  prompt?: string
  strength?: number
  seed?: number
  grow_mask?: number
  start_time?: number
  end_time?: number
  duration?: number
  mode?: 'accurate' | 'fast'
  transition?: 'none' | 'fade'
  fit?: 'contain' | 'cover'
  output_format?: string
}

/** The parameters of a body with every default: `input` of the record. The bytes of a data: URL are in the files backend. */
export type OperationInput = Omit<OperationBody, 'operation' | 'media_url' | 'mask_url'> & {
  media_url?: string | StoredData
  mask_url?: string | StoredData
}
/** A data: URL in the record. */
export type StoredData = { content_type: string; bytes: number }

/** Media that an operation reads. */
export type Source = {
  /** JSON Pointer into the body. */
  path: string
  role: 'media' | 'mask'
  from: string | StoredData
}

/** The sources of a body or of a stored input, the media in the order of merging. */
export function sourcesOf({
  media_url,
  media_urls = [],
  mask_url,
}: Pick<OperationInput, 'media_url' | 'media_urls' | 'mask_url'>): Source[] {
  return [
    ...(media_url === undefined ? [] : [{ path: '/media_url', role: 'media' as const, from: media_url }]),
    ...media_urls.map((from, i) => ({ path: `/media_urls/${i}`, role: 'media' as const, from })),
    ...(mask_url === undefined ? [] : [{ path: '/mask_url', role: 'mask' as const, from: mask_url }]),
  ]
}

/** Whether an operation reads media of a content type in that role. */
export function takes(operation: Operation, role: Source['role'], contentType: string): boolean {
  const isFilm = operation === 'trim' || operation === 'merge'
  return (isFilm && role === 'media' ? /^(video|audio)\// : /^image\//).test(contentType)
}

/** The faults of a body that passed its schema, without those that depend on the route. */
export function operationFaults(body: OperationBody): FieldError[] {
  const {
    operation,
    media_url,
    media_urls = [],
    start_time = 0,
    end_time,
    duration,
    background = 'transparent',
    output_format: format,
  } = body
  const faults: FieldError[] = []
  const add = (field: string, code: string, message: string): void => void faults.push({ path: `/${field}`, code, message })
  if (operation === 'merge') {
    const count = media_urls.length + (media_url === undefined ? 0 : 1)
    if (count < MERGED_MIN) add('media_urls', 'minItems', `must have at least ${MERGED_MIN} entries, media_url counted`)
    if (count > MERGED_MAX) add('media_urls', 'maxItems', `must have at most ${MERGED_MAX} entries, media_url counted`)
  }
  if (end_time !== undefined && duration !== undefined) add('duration', 'not_allowed', 'cannot be given together with end_time')
  if (end_time !== undefined && ms(end_time) <= ms(start_time)) add('end_time', 'minimum', 'must be above start_time')
  if (operation === 'background_remove' && background === 'transparent' && isOpaque(format))
    add('output_format', 'not_allowed', 'cannot be transparent: give a background colour, or another format')
  for (const { path, from } of sourcesOf(body)) {
    if (typeof from === 'string' && from.length > URL_LENGTH_MAX && !isDataUrl(from))
      add(path.slice(1), 'maxLength', `must have at most ${URL_LENGTH_MAX} characters`)
  }
  return faults
}

/** Whether a format has no transparency. */
function isOpaque(format: string | undefined): boolean {
  return format === 'jpeg' || format === 'jpg'
}

/** Whether an address has the scheme `data:`; whether its data is valid is not checked. */
export function isDataUrl(url: string): boolean {
  return /^data:/i.test(url)
}

/**
 * Completes a body by the defaults of its operation and checks it against the limits of its route. `formats` are those of the route's
 * engine, the first by default. Returns the input, or every faulty field (400).
 */
export function operationOf(
  body: OperationBody,
  max: Limits,
  formats: readonly [string, ...string[]],
): { outcome: 'ok'; input: OperationInput } | { outcome: 'invalid'; errors: FieldError[] } {
  const { operation } = body
  const fields = Object.keys(OPERATION_FIELDS[operation]) as (keyof OperationBody)[]
  const given: Partial<OperationBody> = Object.fromEntries(
    fields.filter((field) => body[field] !== undefined).map((field) => [field, body[field]]),
  )
  const errors: FieldError[] = []
  const isTransparent = operation === 'background_remove' && (given.background ?? 'transparent') === 'transparent'
  const format = given.output_format ?? (isTransparent ? formats.find((one) => !isOpaque(one)) : undefined) ?? formats[0]
  if (!formats.includes(format)) errors.push(formatFault(formats))
  else if (isTransparent && isOpaque(format))
    errors.push({ path: '/background', code: 'not_allowed', message: `must be a colour: ${formats.join(' or ')} cannot be transparent` })
  if (operation === 'trim' && ms(given.start_time ?? 0) >= max.durationMs)
    errors.push({ path: '/start_time', code: 'maximum', message: `must be below ${max.durationMs / 1000}` })
  return errors.length > 0
    ? { outcome: 'invalid', errors }
    : { outcome: 'ok', input: { ...given, ...defaultsOf(operation, given), output_format: format } }
}

function defaultsOf(operation: Operation, given: Partial<OperationBody>): Partial<OperationInput> {
  switch (operation) {
    case 'background_remove':
      return { background: (given.background ?? 'transparent').toLowerCase(), crop: given.crop ?? false }
    case 'upscale':
      return { scale: given.scale ?? 2 }
    case 'inpaint':
      return { grow_mask: given.grow_mask ?? 0 }
    case 'trim':
      return { mode: given.mode ?? 'accurate' }
    case 'merge':
      return { transition: given.transition ?? 'none', fit: given.fit ?? 'contain' }
    default:
      return {}
  }
}

/** The engine's request of a stored input. */
export function operationRequest(verb: Operation, input: OperationInput): OperationRequest {
  const { output_format: format = '', prompt = '', seed = null } = input
  switch (verb) {
    case 'background_remove':
      return { verb, background: input.background ?? 'transparent', crop: input.crop ?? false, format }
    case 'upscale':
      return { verb, scale: input.scale ?? 2, format }
    case 'ai_edit':
      return { verb, prompt, strength: input.strength ?? null, seed, format }
    case 'inpaint':
      return { verb, prompt, seed, growMask: input.grow_mask ?? 0, format }
    case 'trim': {
      const startMs = ms(input.start_time ?? 0)
      const endMs = input.end_time === undefined ? (input.duration === undefined ? null : startMs + ms(input.duration)) : ms(input.end_time)
      return { verb, startMs, endMs, mode: input.mode ?? 'accurate', format }
    }
    case 'merge':
      return { verb, transition: input.transition ?? 'none', fit: input.fit ?? 'contain', format }
  }
}

const ms = (seconds: number): number => Math.round(seconds * 1000)

/** An upper bound of a request's amounts. Where the source decides, which is not fetched yet, it is the route's limit. */
export function amountsAtMost(request: GenerationRequest | OperationRequest, { pixels, durationMs }: Limits): Amounts {
  if ('width' in request) return amountsOf(request)
  const { verb } = request
  if (verb !== 'trim' && verb !== 'merge') return { Job: 1000, Second: 0, Megapixel: Math.ceil(pixels / 1000) }
  const Second = verb === 'trim' ? Math.min(request.endMs ?? durationMs, durationMs) - request.startMs : durationMs
  return { Job: 1000, Second: Math.max(0, Second), Megapixel: Math.ceil(pixels / 1000) }
}
