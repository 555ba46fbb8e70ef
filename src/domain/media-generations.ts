/**
 * Generations: a body of `POST /api/v1/generations` → the request that is stored, quoted and run; and the cost of every task. Pure.
 * Amounts are in thousandths of a unit, so that milliseconds and thousands of pixels are whole numbers.
 */
import { Type, type Static } from 'typebox'
import type { FieldError } from './errors.ts'
import { multiply } from './money.ts'
import { FIELD_PATTERNS } from './field-patterns.ts'
import type { Price } from './plans.ts'

export const KINDS = ['image', 'video', 'music'] as const
export type Kind = (typeof KINDS)[number]

export type Unit = Price['per']
/** Thousandths of each unit; 0 where the unit does not apply. */
export type Amounts = Record<Unit, number>

/** Limits of the sources and the result of a route: pixels of one picture, length, and size. */
export type Limits = { pixels: number; durationMs: number; bytes: number }

/** The terms of a kind or operation: its price, limits and defaults, from its route. */
export type Terms = {
  /** The kind or operation. */
  kind: string
  price: Price
  max: Limits
  defaults: { size: string; durationMs: number; quality?: string }
  /** What `quality` may be: how many times the price it costs, in thousandths, and what the model calls it. */
  qualities: Readonly<Record<string, { factor: number; value: string }>>
}

/** A complete request, with the route's defaults where the client gave nothing. Null where a member does not apply to the kind. */
export type GenerationRequest = {
  kind: Kind
  prompt: string
  width: number | null
  height: number | null
  durationMs: number | null
  /** Null: the engine chooses. */
  seed: number | null
  /** One of the engine's, such as `png`. */
  format: string
  /** How many results; one when left out. */
  n?: number
  quality?: string
  negativePrompt?: string
}

/** Fields that only some engines and models take, and the kinds that have them. */
export const OPTION_KINDS = {
  n: ['image'],
  quality: ['image', 'video'],
  negative_prompt: ['image', 'video'],
  image_url: ['video'],
} as const satisfies Record<string, readonly Kind[]>
export type GenerationOption = keyof typeof OPTION_KINDS
export const GENERATION_OPTIONS = Object.keys(OPTION_KINDS) as GenerationOption[]

export const QUALITIES = ['low', 'medium', 'high'] as const
/** Results of one task. */
export const RESULTS_MAX = 4

/** The fields of the body that decide what is made, for the schema of the route. `generationOf` checks what depends on the kind. */
export const GENERATION_FIELDS = {
  prompt: Type.String({ minLength: 1, maxLength: 8000, description: 'What to make or change, in words.' }),
  size: Type.Optional(
    Type.String({ pattern: FIELD_PATTERNS.size.pattern, description: 'Width and height in pixels, such as 1024x1024. Image and video.' }),
  ),
  aspect_ratio: Type.Optional(
    Type.String({ pattern: FIELD_PATTERNS.aspectRatio.pattern, description: 'Such as 16:9, in place of size. Image and video.' }),
  ),
  duration_seconds: Type.Optional(Type.Number({ minimum: 0.1, maximum: 3600, description: 'Length in seconds. Video and music.' })),
  seed: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 2_147_483_647, description: 'The same seed repeats a result, where the engine takes one.' }),
  ),
  output_format: Type.Optional(Type.String({ pattern: FIELD_PATTERNS.outputFormat.pattern, description: 'Such as png, mp4, wav.' })),
  n: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: RESULTS_MAX,
      description: 'How many images, each paid; 1 by default.',
    }),
  ),
  quality: Type.Optional(Type.Enum([...QUALITIES], { description: 'Image and video, where offered; each has its price.' })),
  negative_prompt: Type.Optional(
    Type.String({ minLength: 1, maxLength: 8000, description: 'What is not to be seen. Image and video, where offered.' }),
  ),
  image_url: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1024 * 1024,
      description: 'The picture that a video begins with, where offered: http or https, a link of an earlier result, or a data: URL.',
    }),
  ),
}
const Fields = Type.Object(GENERATION_FIELDS)
export type GenerationBody = Static<typeof Fields>

/** The units that a price of a kind or operation may have. */
export function unitsOf(kind: string): Unit[] {
  if (kind === 'music') return ['Job', 'Second']
  if (kind === 'video' || kind === 'trim' || kind === 'merge') return ['Job', 'Second', 'Megapixel']
  return ['Job', 'Megapixel']
}

/** Shortest side of a picture, in pixels. */
const SIDE_MIN = 16
/** Sides that follow from an aspect ratio are multiples of this: encoders like it. */
const SIDE_STEP = 8

type Found<T> = { value: T } | { error: FieldError }

function fault(field: string, code: string, message: string): { error: FieldError } {
  return { error: { path: `/${field}`, code, message } }
}

/**
 * Completes a body of a kind by its route's defaults and checks it against the route's limits. `formats` are those of the route's engine, the first by default;
 * `options` are what it takes. Returns the request, or every faulty field (400).
 */
export function generationOf(
  kind: Kind,
  body: GenerationBody,
  route: Terms,
  formats: readonly [string, ...string[]],
  options: readonly GenerationOption[],
): { outcome: 'ok'; request: GenerationRequest } | { outcome: 'invalid'; errors: FieldError[] } {
  const found = { size: sizeOf(kind, body, route), duration: durationOf(kind, body, route), format: formatOf(body, formats) }
  const errors = [
    ...Object.values(found).flatMap((part) => ('error' in part ? [part.error] : [])),
    ...optionFaults(kind, body, route, options),
  ]
  if (errors.length > 0 || 'error' in found.size || 'error' in found.duration || 'error' in found.format)
    return { outcome: 'invalid', errors }
  const quality = body.quality ?? defaultQuality(route, options)
  const request = {
    kind,
    prompt: body.prompt,
    ...found.size.value,
    durationMs: found.duration.value,
    seed: body.seed ?? null,
    format: found.format.value,
    ...(body.n !== undefined && body.n > 1 && { n: body.n }),
    ...(quality !== undefined && { quality }),
    ...(body.negative_prompt !== undefined && { negativePrompt: body.negative_prompt }),
  }
  return { outcome: 'ok', request }
}

/** What is wrong with these fields of a request: an engine that takes only the options `taken` is to make it. */
export function optionFaults(
  kind: Kind,
  given: Readonly<Partial<Record<GenerationOption, unknown>>>,
  { qualities }: Pick<Terms, 'qualities'>,
  taken: readonly GenerationOption[],
): FieldError[] {
  return GENERATION_OPTIONS.flatMap((option) => {
    const value = given[option]
    const kinds: readonly Kind[] = OPTION_KINDS[option]
    if (value === undefined) return []
    if (!kinds.includes(kind)) return fault(option, 'not_allowed', `does not apply to ${kind}`).error
    if (!taken.includes(option) && value !== 1) return fault(option, 'not_allowed', `is not supported here for ${kind}`).error
    if (option !== 'quality' || Object.hasOwn(qualities, String(value))) return []
    return fault(option, 'enum', `must be ${Object.keys(qualities).join(' or ')}`).error
  })
}

type Size = { width: number; height: number }

function sizeOf(
  kind: Kind,
  { size, aspect_ratio: ratio }: GenerationBody,
  { defaults, max }: Terms,
): Found<Size | { width: null; height: null }> {
  const given = size === undefined ? 'aspect_ratio' : 'size'
  if (kind === 'music') {
    return size === undefined && ratio === undefined
      ? { value: { width: null, height: null } }
      : fault(given, 'not_allowed', 'does not apply to music')
  }
  if (size !== undefined && ratio !== undefined) return fault('aspect_ratio', 'not_allowed', 'cannot be given together with size')
  const { width, height } = ratio === undefined ? readSize(size ?? defaults.size) : sizeFor(ratio, readSize(defaults.size))
  if (Math.min(width, height) < SIDE_MIN) return fault(given, 'minimum', `must not give a side below ${SIDE_MIN} pixels`)
  if (kind === 'video' && (width % 2 || height % 2)) return fault(given, 'multiple_of', 'must have an even width and height for video')
  if (width * height > max.pixels) return fault(given, 'maximum', `must not be above ${max.pixels / 1_000_000} megapixels`)
  return { value: { width, height } }
}

/** Reads a size such as "1024x768". */
export function readSize(text: string): Size {
  const [width = 0, height = 0] = text.split('x').map(Number)
  return { width, height }
}

/** The size of an aspect ratio that has the area of another, or a little less. */
function sizeFor(ratio: string, { width, height }: Size): Size {
  const [across = 1, down = 1] = ratio.split(':').map(Number)
  const side = (share: number): number => Math.floor((Math.sqrt(width * height * share) + 1e-6) / SIDE_STEP) * SIDE_STEP
  return { width: side(across / down), height: side(down / across) }
}

function durationOf(kind: Kind, { duration_seconds: seconds }: GenerationBody, { defaults, max }: Terms): Found<number | null> {
  if (kind === 'image')
    return seconds === undefined ? { value: null } : fault('duration_seconds', 'not_allowed', 'does not apply to an image')
  const durationMs = seconds === undefined ? defaults.durationMs : Math.round(seconds * 1000)
  return durationMs > max.durationMs
    ? fault('duration_seconds', 'maximum', `must not be above ${max.durationMs / 1000}`)
    : { value: durationMs }
}

function formatOf({ output_format: format }: GenerationBody, formats: readonly [string, ...string[]]): Found<string> {
  if (format === undefined || formats.includes(format)) return { value: format ?? formats[0] }
  return { error: formatFault(formats) }
}

/** The fault of a format that the engine does not write. */
export function formatFault(formats: readonly string[]): FieldError {
  return { path: '/output_format', code: 'enum', message: `must be ${formats.join(' or ')}` }
}

/** The amounts of a request, of all its results. Pixels of a video are those of one picture. */
export function amountsOf({ width, height, durationMs, n = 1 }: Pick<GenerationRequest, 'width' | 'height' | 'durationMs' | 'n'>): Amounts {
  return { Job: 1000 * n, Second: (durationMs ?? 0) * n, Megapixel: Math.ceil(((width ?? 0) * (height ?? 0)) / 1000) * n }
}

/** The quality of a request that names none; undefined where its model has no qualities. `options`: of the route's engine. */
export function defaultQuality({ defaults }: Pick<Terms, 'defaults'>, options: readonly string[]): string | undefined {
  return options.includes('quality') ? defaults.quality : undefined
}

/** The price of a kind or operation in a quality: the plan's before the service's. A stored plan's price in a unit that the kind does not have is ignored: it would make it free. */
export function priceOf(route: Pick<Terms, 'kind' | 'price' | 'qualities'>, planPrices: readonly Price[], quality?: string): Price {
  const price = planPrices.find(({ kind, per }) => kind === route.kind && unitsOf(kind).includes(per)) ?? route.price
  const factor = quality === undefined ? undefined : route.qualities[quality]?.factor
  return factor === undefined ? price : { ...price, micro: multiply(price.micro, factor) }
}

/** The cost of amounts in micro-units, rounded up once. */
export function costOf(price: Pick<Price, 'micro' | 'per'>, amounts: Amounts): number {
  return multiply(price.micro, amounts[price.per])
}
