/** The request of an operation from its form, by the schema of the operation. */
import type { Stroke } from './mask-strokes.ts'
import type { Body, FieldSchema, Kind, Source } from './media-api.ts'
import { promptFault } from './prompt-fault.ts'

export type Edit = {
  operation: string
  /** Fields that were set, by their names in the API. */
  values: Record<string, unknown>
  /** Of the brush. */
  strokes: Stroke[]
  /** A picture of the strokes with white where the edit is, as a data: URL; null without marks. */
  mask: string | null
  start: number
  /** Null: the end of the source. */
  end: number | null
}

/** What belongs to the source that it was made on. */
export const UNMARKED = { strokes: [], mask: null, start: 0, end: null }

export const EMPTY_EDIT: Edit = { operation: '', values: {}, ...UNMARKED }

/** Fields that the source, the brush and the handles give. */
const GIVEN = ['media_url', 'media_urls', 'mask_url', 'start_time', 'end_time', 'duration']
/** What most people leave as it is. */
const RARE = ['output_format', 'seed', 'grow_mask']
const LIST_MIN = 2

export const has = ({ fields = {} }: Kind, field: string): boolean => field in fields
export const needs = ({ required = [] }: Kind, field: string): boolean => required.includes(field)

/** The fields of a form, in the order of the operation's file; `rare` are those under More settings. */
export function fieldsOf({ fields = {} }: Kind): { usual: [string, FieldSchema][]; rare: [string, FieldSchema][] } {
  const own = Object.entries(fields).filter(([name]) => !GIVEN.includes(name))
  return { usual: own.filter(([name]) => !RARE.includes(name)), rare: own.filter(([name]) => RARE.includes(name)) }
}

/** Pixels above what is offered, for a factor that enlarges the source. */
export function isTooLarge(kind: Kind, { values }: Edit, { width, height }: Source): boolean {
  const scale = Number(values['scale'] ?? kind.values?.['scale'] ?? 1)
  return has(kind, 'scale') && (width ?? 0) * (height ?? 0) * scale ** 2 > (kind.max?.megapixels ?? Infinity) * 1_000_000
}

/** What is missing, as a sentence; null when the request is complete. */
export function missingOf(kind: Kind, edit: Edit, sources: readonly Source[]): string | null {
  const [source] = sources
  if (!source) return 'Choose a source.'
  if (isTooLarge(kind, edit, source)) return 'Choose a smaller factor or image.'
  if (has(kind, 'media_urls') && sources.length < LIST_MIN) return 'Add at least one more file.'
  if (has(kind, 'start_time') && edit.start === 0 && edit.end === null) return 'Move a handle.'
  if (promptFault(text(edit, 'prompt')) !== null) return 'Shorten the prompt.'
  const isPromptMissing = needs(kind, 'prompt') && text(edit, 'prompt') === ''
  if (needs(kind, 'mask_url') && edit.mask === null)
    return isPromptMissing ? 'Mark a part, and write what should be there.' : 'Mark a part.'
  return isPromptMissing ? 'Write a prompt.' : null
}

const text = ({ values }: Edit, field: string): string => String(values[field] ?? '').trim()

/** The body of a complete form. */
export function bodyOf(kind: Kind, edit: Edit, sources: readonly Source[]): Body {
  const { usual, rare } = fieldsOf(kind)
  const values = [...usual, ...rare].flatMap(([name]): [string, unknown][] => {
    const value = edit.values[name]
    if (value === undefined || value === '' || value === kind.values?.[name]) return []
    return [[name, typeof value === 'string' ? value.trim() : value]]
  })
  return {
    operation: kind.name,
    ...(has(kind, 'media_urls') ? { media_urls: sources.map(({ url }) => url) } : { media_url: sources[0]?.url }),
    ...(has(kind, 'mask_url') && edit.mask !== null ? { mask_url: edit.mask } : {}),
    ...(has(kind, 'start_time') ? { start_time: edit.start, ...(edit.end === null ? {} : { end_time: edit.end }) } : {}),
    ...Object.fromEntries(values),
  }
}
