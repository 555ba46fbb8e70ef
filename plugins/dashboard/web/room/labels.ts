/** Kinds, operations and failures in the words of the page. */
import { taskKind, type Task } from '../api/tasks.ts'
import type { IconName } from '../components/icon.tsx'
import { money, span } from '../format.ts'
import type { Price } from './media-api.ts'

export type Words = { name: string; does: string; icon: IconName }

export const WORDS: Record<string, Words> = {
  image: { name: 'Image', does: 'An image from your words', icon: 'image' },
  video: { name: 'Video', does: 'A short video from your words', icon: 'video' },
  music: { name: 'Music', does: 'A piece of music from your words', icon: 'music' },
  background_remove: { name: 'Remove background', does: 'Cuts out the subject', icon: 'image' },
  upscale: { name: 'Upscale', does: 'More pixels, sharp', icon: 'plus' },
  inpaint: { name: 'Inpaint', does: 'Replaces what you mark', icon: 'spark' },
  ai_edit: { name: 'Edit by prompt', does: 'Changes the image by words', icon: 'spark' },
  trim: { name: 'Trim', does: 'Keeps a section', icon: 'clock' },
  merge: { name: 'Merge', does: 'Joins video or audio', icon: 'video' },
}

/** How a kind or operation is shown. */
export const wordsOf = (kind: string): Words => WORDS[kind] ?? { name: kind, does: '', icon: 'spark' }

/** A short name of what a task makes: its prompt, or its operation. */
export function nameOf(task: Task): string {
  const prompt = task.prompt?.trim() ?? ''
  return prompt === '' ? wordsOf(taskKind(task)).name : prompt
}

const PER: Record<Price['per'], string> = { Job: 'each', Second: 'a second', Megapixel: 'a megapixel' }

/** A price with its unit. */
export function priceInWords({ amount, per }: Price): string {
  return /^0(\.0*)?$/.test(amount) ? 'free' : `${money(amount)} ${PER[per]}`
}

/** What a person can do about a failure, by its code. */
const ADVICE: Record<string, string> = {
  provider_error: 'Try again; if it fails once more, try other words.',
  provider_timeout: 'Try again, or make something smaller or shorter.',
  provider_rejected: 'Other words or another source may be accepted.',
  input_unreachable: 'The link of the source may have expired. Upload it again, or take a newer result.',
  input_not_allowed: 'Upload the file instead of linking to it.',
  input_too_large: 'Use a smaller or shorter source.',
  unsupported_input: 'Choose another source, or check the times and the mask.',
  not_supported: 'Choose something else: the service changed what it offers.',
  internal: 'Try again in a moment.',
}

/** What a person can do after a failure with this code. */
export const adviceOf = (code: string): string => ADVICE[code] ?? 'Try again in a moment.'

/** The length of a film or sound: "1.5 s", "2 min 10 s". */
export function lengthInWords(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 100) / 10} s` : span(ms)
}

/** The family of a content type: image, video or audio. */
export const familyOf = (type: string): string => type.split('/', 1)[0] ?? ''
