/** What a model is called with: the parts of a request under the names that its inputs have. Pure but for the addresses of the media, which are handed in. */
import { GENERATION_OPTIONS, type GenerationOption } from '../../../domain/media-generations.ts'
import type { EngineRequest } from '../engine.ts'

/** The parts of requests that a model may have inputs for. */
export const PARTS = [
  'prompt',
  'negativePrompt',
  'seed',
  'n',
  'quality',
  'width',
  'height',
  'size',
  'aspectRatio',
  'seconds',
  'format',
  'media',
  'allMedia',
  'mask',
  'strength',
  'scale',
  'background',
  'crop',
  'startSeconds',
  'endSeconds',
  'transition',
  'fit',
] as const
export type PartName = (typeof PARTS)[number]

/** The model's name of each part; parts without one are not sent. */
export type InputNames = Partial<Record<PartName, string>>

/** What most models of a kind call their inputs. */
export const USUAL_NAMES = {
  image: { prompt: 'prompt', width: 'width', height: 'height', seed: 'seed' },
  video: { prompt: 'prompt', seconds: 'duration', aspectRatio: 'aspect_ratio', seed: 'seed' },
  music: { prompt: 'prompt', seconds: 'duration' },
  background_remove: { media: 'image' },
  upscale: { media: 'image', scale: 'scale' },
  ai_edit: { media: 'image', mask: 'mask', prompt: 'prompt', seed: 'seed' },
  inpaint: { media: 'image', mask: 'mask', prompt: 'prompt', seed: 'seed' },
  trim: { media: 'video', startSeconds: 'start_time', endSeconds: 'end_time' },
  merge: { allMedia: 'videos' },
} satisfies Partial<Record<EngineRequest['kind'], InputNames>>

/** Addresses from which the provider reads the inputs. */
export type MediaUrls = { media: string[]; mask: string | null }

export type ModelInput = { outcome: 'input'; input: Record<string, unknown> } | { outcome: 'lacking'; part: PartName }

/** Parts without which the result would be another one, when they are not as they would be anyway. A seed and a strength are wishes. */
const NEEDED: readonly PartName[] = [
  'prompt',
  'media',
  'allMedia',
  'mask',
  'scale',
  'background',
  'crop',
  'startSeconds',
  'endSeconds',
  'transition',
]

const PARAMETERS: Partial<Record<PartName, string>> = {
  media: 'media_url',
  allMedia: 'media_urls',
  mask: 'mask_url',
  startSeconds: 'start_time',
  endSeconds: 'end_time',
}

/** The parameter of the API that a request with sources of these roles has, and that matters and no input of the model takes; null when there is none. */
export function unsupportedParameter(request: EngineRequest, names: InputNames, roles: readonly ('media' | 'mask')[]): string | null {
  const found = modelInput(request, names, {
    media: roles.filter((role) => role === 'media'),
    mask: roles.includes('mask') ? 'mask' : null,
  })
  return found.outcome === 'lacking' ? (PARAMETERS[found.part] ?? found.part) : null
}

/** The fields of a generation that inputs of these names take. */
export function optionsIn(names: InputNames): GenerationOption[] {
  const taken = { n: names.n, quality: names.quality, negative_prompt: names.negativePrompt, image_url: names.media }
  return GENERATION_OPTIONS.filter((option) => taken[option] !== undefined)
}

/** Names the parts of a request as the model does, with the nearest of the ratios that it takes. `lacking`: the request has a part that matters and that no input of the model takes. */
export function modelInput(request: EngineRequest, names: InputNames, urls: MediaUrls, ratios?: readonly string[]): ModelInput {
  const parts = partsOf(request, urls, ratios)
  const lacking = NEEDED.find((part) => parts[part] !== undefined && names[part] === undefined && !isUsual(part, parts[part], names))
  if (lacking !== undefined) return { outcome: 'lacking', part: lacking }
  const entries = Object.entries(names).flatMap(([part, name]) => {
    const value = parts[part as PartName]
    return value === undefined ? [] : [[name, value] as const]
  })
  return { outcome: 'input', input: Object.fromEntries(entries) }
}

/** What a model does by itself, and what another of its inputs has already. */
function isUsual(part: PartName, value: unknown, names: InputNames): boolean {
  if (part === 'media') return names.allMedia !== undefined
  if (part === 'background') return value === 'transparent'
  if (part === 'crop') return value === false
  if (part === 'startSeconds') return value === 0
  return part === 'transition' && value === 'none'
}

type Parts = Partial<Record<PartName, unknown>>

function partsOf(request: EngineRequest, { media, mask }: MediaUrls, ratios?: readonly string[]): Parts {
  // Models name the extension.
  const format = request.format === 'jpeg' ? 'jpg' : request.format
  const parts: Parts = { ...ownParts(request, ratios), format, mask: mask ?? undefined, media: media[0] }
  return request.kind === 'merge' ? { ...parts, media: undefined, allMedia: media } : parts
}

/** The parameters of a request as parts: times in seconds, sizes as models take them. */
function ownParts(request: EngineRequest, ratios: readonly string[] = RATIOS): Parts {
  const parts: Parts = Object.fromEntries(
    Object.entries(request).map(([name, value]) =>
      name.endsWith('Ms') ? [SECONDS_OF[name] ?? name, value === null ? undefined : value / 1000] : [name, value ?? undefined],
    ),
  )
  if (!('width' in request)) return parts
  const { width, height } = request
  if (width !== null && height !== null) Object.assign(parts, { size: `${width}x${height}`, aspectRatio: ratioOf(width, height, ratios) })
  return parts
}

const SECONDS_OF: Record<string, PartName> = { startMs: 'startSeconds', endMs: 'endSeconds', durationMs: 'seconds' }

/** Ratios that models know by name. */
const RATIOS = ['1:1', '16:9', '9:16', '4:3', '3:4', '3:2', '2:3', '21:9', '9:21', '5:4', '4:5', '2:1', '1:2']

/** The nearest ratio that models know: 1024x576 is 16:9, and 1366x768 as well. */
function ratioOf(width: number, height: number, ratios: readonly string[]): string {
  const far = (ratio: string): number => {
    const [across = 1, down = 1] = ratio.split(':').map(Number)
    return Math.abs(Math.log((across * height) / (down * width)))
  }
  return ratios.toSorted((a, b) => far(a) - far(b))[0] ?? '1:1'
}
