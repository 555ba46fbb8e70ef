/**
 * Operations on existing media: a body of `POST /api/v1/operations` → the input that is stored and shown, and the request that an engine runs. Pure.
 * What is special to one operation is its file in `operations/`.
 */
import type { Static, TObject, TProperties } from 'typebox'
import type { FieldError } from './errors.ts'
import type { MediaInfo } from './media-info.ts'
import { amountsOf, formatFault, type Amounts, type GenerationRequest, type Limits, type Unit } from './media-generations.ts'
import { aiEdit } from './operations/ai-edit.ts'
import { backgroundRemove } from './operations/background-remove.ts'
import { inpaint } from './operations/inpaint.ts'
import { merge } from './operations/merge.ts'
import { fault, isOpaque, type OperationDefinition } from './operations/operation.ts'
import { trim } from './operations/trim.ts'
import { upscale } from './operations/upscale.ts'

/** Every operation by its name in the API. */
export const OPERATION_DEFINITIONS = {
  background_remove: backgroundRemove,
  upscale,
  ai_edit: aiEdit,
  inpaint,
  trim,
  merge,
}
type Definitions = typeof OPERATION_DEFINITIONS
export type Operation = keyof Definitions
export const OPERATIONS = Object.keys(OPERATION_DEFINITIONS) as Operation[]

/** A validated operation with its defaults, for engines. */
export type OperationRequest = {
  [V in Operation]: { kind: V; format: string } & ReturnType<Definitions[V]['parameters']>
}[Operation]

type AllOf<U> = (U extends unknown ? (one: U) => void : never) extends (all: infer I) => void ? I : never
type AnyFields = { [V in Operation]: Partial<Static<TObject<Definitions[V]['fields']>>> }[Operation]

/** The fields of every operation, as their schemas let them pass. */
export type OperationBody = { operation: Operation } & AllOf<AnyFields>

/** The parameters of a body with every default: `input` of the record. The bytes of a data: URL are in the files backend. */
export type OperationInput = Omit<OperationBody, 'operation' | 'media_url' | 'mask_url'> & {
  media_url?: string | StoredData
  mask_url?: string | StoredData
}
/** What of a body or a stored input, of an operation or a generation, names its sources. */
export type Sourced = Pick<OperationInput, 'media_url' | 'media_urls' | 'mask_url'> & { image_url?: string | StoredData }
/** A data: URL in the record. */
export type StoredData = { content_type: string; bytes: number }

/** Media that an operation reads. */
export type Source = {
  /** JSON Pointer into the body. */
  path: string
  role: 'media' | 'mask'
  from: string | StoredData
}

/** Longest address of a source. A data: URL is bounded by the body of its request. */
const URL_LENGTH_MAX = 8192

/** As one type of definition, whose methods take the fields of every operation. */
function definitionOf(operation: Operation): OperationDefinition<TProperties, object, object> {
  return OPERATION_DEFINITIONS[operation] as unknown as OperationDefinition<TProperties, object, object>
}

/** The sources of a body or of a stored input, the media in the order of merging. */
export function sourcesOf({ image_url, media_url, media_urls = [], mask_url }: Sourced): Source[] {
  return [
    ...(image_url === undefined ? [] : [{ path: '/image_url', role: 'media' as const, from: image_url }]),
    ...(media_url === undefined ? [] : [{ path: '/media_url', role: 'media' as const, from: media_url }]),
    ...media_urls.map((from, i) => ({ path: `/media_urls/${i}`, role: 'media' as const, from })),
    ...(mask_url === undefined ? [] : [{ path: '/mask_url', role: 'mask' as const, from: mask_url }]),
  ]
}

/** The same without the mask. */
export function mediaSourcesOf(body: Sourced): Source[] {
  return sourcesOf(body).filter(({ role }) => role === 'media')
}

/** Whether a kind or an operation reads media of a content type in that role. */
export function takes(kind: string, role: Source['role'], contentType: string): boolean {
  const isVideo = role === 'media' && Object.hasOwn(OPERATION_DEFINITIONS, kind) && definitionOf(kind as Operation).reads === 'video'
  return (isVideo ? /^(video|audio)\// : /^image\//).test(contentType)
}

/** The faults of a body that passed its schema, without those that depend on the route. */
export function operationFaults(body: OperationBody): FieldError[] {
  return definitionOf(body.operation).faults?.(body) ?? []
}

/** Addresses of sources that are too long. */
export function addressFaults(body: Sourced): FieldError[] {
  return sourcesOf(body)
    .filter(({ from }) => typeof from === 'string' && from.length > URL_LENGTH_MAX && !isDataUrl(from))
    .map(({ path }) => fault(path.slice(1), 'maxLength', `must have at most ${URL_LENGTH_MAX} characters`))
}

/** Whether an address has the scheme `data:`; whether its data is valid is not checked. */
export function isDataUrl(url: string): boolean {
  return /^data:/i.test(url)
}

/**
 * Completes a body by the defaults of its operation. `formats` are those of the route's
 * engine, the first by default. Returns the input, or every faulty field (400).
 */
export function operationOf(
  body: OperationBody,
  formats: readonly [string, ...string[]],
): { outcome: 'ok'; input: OperationInput } | { outcome: 'invalid'; errors: FieldError[] } {
  const definition = definitionOf(body.operation)
  const fields = Object.keys(definition.fields) as (keyof OperationBody)[]
  const given: Partial<OperationBody> = Object.fromEntries(
    fields.filter((field) => body[field] !== undefined).map((field) => [field, body[field]]),
  )
  const errors: FieldError[] = []
  const isTransparent = definition.isTransparent?.(given) ?? false
  const usual = isTransparent ? formats.find((one) => !isOpaque(one)) : undefined
  // That of a video or a sound follows from the source (`formatKept`).
  const format = given.output_format ?? (definition.reads === 'video' ? undefined : (usual ?? formats[0]))
  if (format !== undefined && !formats.includes(format)) errors.push(formatFault(formats))
  else if (isTransparent && isOpaque(format))
    errors.push(fault('background', 'not_allowed', `must be a colour: ${formats.join(' or ')} cannot be transparent`))
  return errors.length > 0
    ? { outcome: 'invalid', errors }
    : { outcome: 'ok', input: { ...given, ...definition.defaults(given), ...(format === undefined ? {} : { output_format: format }) } }
}

/** Sounds that stay what they are: another codec would lose some of them. */
const KEPT: Readonly<Record<string, string>> = { 'audio/wav': 'wav', 'audio/flac': 'flac', 'audio/mpeg': 'mp3' }

/** The format of a result where none was requested: of sounds that of the first source, if it stays what it is and the engine writes it, else the engine's default. */
export function formatKept(contentTypes: readonly string[], formats: readonly [string, ...string[]]): string {
  const kept = contentTypes.every((type) => type.startsWith('audio/')) ? KEPT[contentTypes[0] ?? ''] : undefined
  return kept !== undefined && formats.includes(kept) ? kept : formats[0]
}

/** The engine's request of a stored input. `format` is that of the result where the input names none. */
export function operationRequest(kind: Operation, input: OperationInput, format: string): OperationRequest {
  const { defaults, parameters } = definitionOf(kind)
  const complete = { ...input, ...defaults(input) }
  return { kind, ...parameters(complete), format: input.output_format ?? format } as OperationRequest
}

/** An upper bound of a request's amounts by the limits of its result (`resultLimits`). */
export function amountsAtMost(request: GenerationRequest | OperationRequest, { pixels, durationMs }: Limits): Amounts {
  if ('width' in request) return amountsOf(request)
  const longestMs = definitionOf(request.kind).durationMs?.(request, Infinity) ?? 0
  return { Job: 1000, Second: Math.min(longestMs, durationMs), Megapixel: Math.ceil(pixels / 1000) }
}

/** What the header of a source says; null for a source that is not here, or whose type is unknown. */
export type SourceInfo =
  (Pick<MediaInfo, 'contentType' | 'width' | 'height' | 'durationMs'> & Partial<Pick<MediaInfo, 'atMostMs'> & { bytes: number }>) | null

/**
 * The limits of the result of an operation: those of its route, or lower where the headers of all its media (without the mask) say so, with room for
 * their lengths.
 */
export function resultLimits(request: OperationRequest, media: readonly SourceInfo[], max: Limits): Limits {
  const decided = decidedBySources(request, media)
  return {
    bytes: max.bytes,
    durationMs: Math.round(Math.min(max.durationMs, decided.durationMs ?? Infinity)),
    pixels: Math.min(max.pixels, decided.pixels ?? Infinity),
  }
}

/** Whether an amount of the result follows from its media, and their headers do not tell it: then the limit of the route bounds it alone. */
export function isOpen(request: OperationRequest, media: readonly SourceInfo[], per: Unit): boolean {
  const exact = media.map((info) => (info?.atMostMs ? null : info))
  const { durationMs, pixels } = decidedBySources(request, exact)
  return (per === 'Second' && durationMs === Infinity) || (per === 'Megapixel' && pixels === Infinity)
}

/** Upper bounds by the media; Infinity where they do not tell, undefined where they do not decide. */
function decidedBySources(request: OperationRequest, media: readonly SourceInfo[]): { durationMs?: number; pixels?: number } {
  const { durationMs, pixels } = definitionOf(request.kind)
  const sourceMs = media.reduce((sum, info) => sum + lengthOf(info), 0)
  const sourcePixels = Math.max(...media.map((info) => (info?.width && info.height ? info.width * info.height : Infinity)))
  return {
    // With room for what headers and packets differ by: a tenth, and a second.
    ...(durationMs && { durationMs: durationMs(request, sourceMs * 1.1 + 1000) }),
    ...(pixels && { pixels: pixels(request, sourcePixels) }),
  }
}

/** Milliseconds; Infinity where unknown, or where the header tells none that a source can have. */
function lengthOf(info: SourceInfo): number {
  const told = info?.atMostMs || info?.durationMs || 0
  return told > 0 ? told : Infinity
}

/** Of a picture that a video begins with: a photograph. */
export const PICTURE_PIXELS = 16_000_000

/** The limits of the sources of a kind or an operation: those of its route. The first picture of a video is scaled to its pictures, and may be larger than they are. */
export function sourceLimits(kind: string, max: Limits): Limits {
  return kind === 'video' ? { ...max, pixels: Math.max(max.pixels, PICTURE_PIXELS) } : max
}

/** How much of a source an operation reads, in milliseconds: this is what the route bounds. */
export function lengthRead(request: OperationRequest, sourceMs: number): number {
  return definitionOf(request.kind).readMs?.(request, sourceMs) ?? sourceMs
}
