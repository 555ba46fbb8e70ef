/** The request of an operation from its form. */
import type { Body, Kind, Source } from './media-api.ts'

export type Edit = {
  operation: string
  prompt: string
  /** A picture with white where the edit is, as a data: URL; null without marks. */
  mask: string | null
  background: string
  crop: boolean
  scale: number
  strength: number | null
  start: number
  /** Null: the end of the source. */
  end: number | null
  isFast: boolean
  isFading: boolean
  fit: 'contain' | 'cover'
}

export const EMPTY_EDIT: Edit = {
  operation: 'background_remove',
  prompt: '',
  mask: null,
  background: 'transparent',
  crop: false,
  scale: 2,
  strength: null,
  start: 0,
  end: null,
  isFast: false,
  isFading: false,
  fit: 'contain',
}

/** True for a factor of `upscale` whose result is larger than what is offered. */
export function isTooLarge({ operation, scale }: Edit, { width, height }: Source, kind: Kind | null): boolean {
  return operation === 'upscale' && (width ?? 0) * (height ?? 0) * scale ** 2 > (kind?.max?.megapixels ?? Infinity) * 1_000_000
}

/** The body, or null while something that the operation needs is missing. */
export function completeBody(edit: Edit, sources: readonly Source[]): Body | null {
  const [source] = sources
  if (!source) return null
  const { operation } = edit
  const one = { operation, media_url: source.url }
  const prompt = edit.prompt.trim()
  switch (operation) {
    case 'background_remove':
      return { ...one, ...(edit.background === 'transparent' ? {} : { background: edit.background }), ...(edit.crop ? { crop: true } : {}) }
    case 'upscale':
      return { ...one, scale: edit.scale }
    case 'ai_edit':
      return prompt === ''
        ? null
        : {
            ...one,
            prompt,
            ...(edit.mask === null ? {} : { mask_url: edit.mask }),
            ...(edit.strength === null ? {} : { strength: edit.strength }),
          }
    case 'inpaint':
      return prompt === '' || edit.mask === null ? null : { ...one, prompt, mask_url: edit.mask }
    case 'trim':
      return edit.start === 0 && edit.end === null
        ? null
        : { ...one, start_time: edit.start, ...(edit.end === null ? {} : { end_time: edit.end }), ...(edit.isFast ? { mode: 'fast' } : {}) }
    case 'merge':
      return sources.length < 2
        ? null
        : {
            operation,
            media_urls: sources.map(({ url }) => url),
            ...(edit.isFading ? { transition: 'fade' } : {}),
            ...(edit.fit === 'cover' ? { fit: 'cover' } : {}),
          }
    default:
      return null
  }
}
