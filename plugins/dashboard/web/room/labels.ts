/** Kinds, operations and failures in the words of the page. */
import { taskKind, type Task } from '../api/tasks.ts'
import type { IconName } from '../components/icon.tsx'
import { label, money, span } from '../format.ts'
import type { Kind, Price } from './media-api.ts'

const ICONS: Record<string, IconName> = { image: 'image', video: 'video', music: 'music', trim: 'clock', merge: 'video', upscale: 'plus' }

/** The icon of a kind or operation. */
export const iconOf = (kind: string): IconName => ICONS[kind] ?? 'spark'

const MAKES: Record<string, string> = {
  image: 'An image from your words.',
  video: 'A short video without sound, from your words.',
  music: 'A piece of music from your words.',
}
const ENGINES: Record<string, string> = {
  preview: 'A preview: a placeholder, made without a model.',
  local: 'Runs on this service itself.',
}

/** What a kind does and where: an operation says it itself. */
export function explained({ name, title, engine }: Kind): string {
  return [title === undefined ? MAKES[name] : `${title}.`, engine && ENGINES[engine]].filter(Boolean).join(' ')
}

/** A short name of what a task makes: its prompt, or its operation; `tasks` has the one whose result it changed, if that is known. */
export function nameOf(task: Task, tasks: readonly Task[] = []): string {
  const prompt = (task.prompt ?? String(task.input?.['prompt'] ?? '')).trim()
  if (prompt !== '') return prompt
  const operation = label(taskKind(task))
  const links = [task.input?.['media_url'], ...((task.input?.['media_urls'] ?? []) as unknown[])]
  const source = tasks.find(({ id }) => links.some((link) => typeof link === 'string' && link.includes(`/files/${id}-`)))
  return source && source.id !== task.id ? `${nameOf(source, tasks)} · ${operation}` : operation
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
  unsupported_input: 'Choose another source.',
  start_past_end: 'Start the section earlier.',
  no_sound: 'Choose a source with audio, or a video format.',
  mixed_sources: 'Merge only videos, or only recordings.',
  mask_mismatch: 'Use a mask with the aspect ratio of the picture.',
  result_too_large: 'Make something smaller or shorter.',
  cannot_fill: 'Mark the whole object to remove without touching the edges of other objects, or mark a smaller area.',
  not_supported: 'Choose something else: the service changed what it offers.',
  internal: 'Try again in a moment.',
}

/** What a person can do after a failure with this code. */
export const adviceOf = (code: string): string => ADVICE[code] ?? 'Try again in a moment.'

/** The length of a video or sound: "1.5 s", "2 min 10 s". */
export function lengthInWords(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 100) / 10} s` : span(ms)
}

/** The family of a content type: image, video or audio. */
export const familyOf = (type: string): string => type.split('/', 1)[0] ?? ''
