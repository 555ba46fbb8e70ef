/**
 * What an operation on existing media is. Each is one file of this folder, in the list of `../media-operations.ts`: REST, MCP, OpenAPI and the default
 * routes derive from it. Pure.
 */
import { Type, type Static, type TObject, type TProperties } from 'typebox'
import type { FieldError } from '../errors.ts'
import { FIELD_PATTERNS } from '../field-patterns.ts'
import type { Unit } from '../media-generations.ts'

/** The fields of a body that are given. */
export type Given<F extends TProperties> = Partial<Static<TObject<F>>>

/** An operation: the words of its tool, schema, faults, defaults and price. `F`: its fields; `D`: those with a default; `R`: its parameters for engines. */
export type OperationDefinition<F extends TProperties, D, R> = {
  /** Of its MCP tool. The description tells it from the other tools. */
  title: string
  description: string
  /** What its sources are: images, or video and audio. Masks are images. */
  reads: 'image' | 'video'
  /** Its route where no ENGINES file is given. */
  route: { engine: string; price: { amount: string; per: Unit }; max: { megapixels: number; seconds?: number } }
  /** The fields of a body, for the schema of its route and tool. */
  fields: F
  /** Faults between fields that passed the schema. */
  faults?(body: Given<F>): FieldError[]
  /** True where the result needs a format with transparency. */
  isTransparent?(body: Given<F>): boolean
  /** Fields that are stored and shown although they were not given. */
  defaults(body: Given<F>): D
  /** What an engine gets beside the format. Inputs have the names and units of the API; parameters have milliseconds and pixels. */
  parameters(input: Given<F> & D): R
  /** An upper bound of the result's length by that of all sources together, which is Infinity where unknown; none for pictures. */
  durationMs?(parameters: R, sourceMs: number): number
  /** An upper bound of the result's pixels by those of its source; none where the source does not decide. */
  pixels?(parameters: R, sourcePixels: number): number
  /** How much of a source is read, which is what the route bounds; by default all of it. */
  readMs?(parameters: R, sourceMs: number): number
}

/** The definition itself, with its types inferred. */
export function defineOperation<F extends TProperties, D, R>(definition: OperationDefinition<F, D, R>): OperationDefinition<F, D, R> {
  return definition
}

const DATA_URL_LENGTH_MAX = 1024 * 1024

/** The schema of an address. */
export const address = (description: string) => Type.String({ minLength: 1, maxLength: DATA_URL_LENGTH_MAX, description })
export const media_url = address('Address of the source: http or https, a link of an earlier result, or a data: URL in base64.')
export const mask_url = address('Address of the mask: transparent pixels mark the area, or white ones if none is transparent.')

export const filmFormat = Type.Optional(
  Type.String({
    pattern: FIELD_PATTERNS.outputFormat.pattern,
    description: 'Such as mp4. Without it, WAV, FLAC and MP3 stay what they are.',
  }),
)

/** Whether a format has no transparency. */
export function isOpaque(format: string | undefined): boolean {
  return format === 'jpeg' || format === 'jpg'
}

/** A fault of one field. */
export function fault(field: string, code: string, message: string): FieldError {
  return { path: `/${field}`, code, message }
}

/** Whole milliseconds. */
export function millis(seconds: number): number {
  return Math.round(seconds * 1000)
}
