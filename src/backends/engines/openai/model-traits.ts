/**
 * Parameters, sizes and lengths that the vendor documents for its models. A model of another name belongs to a compatible server and gets
 * what was requested. Pure.
 */
import type { GenerationOption, Limits } from '../../../domain/media-generations.ts'
import { orderedMs, type Order } from '../provider/ordered-request.ts'

export type Size = { width: number; height: number }

/** `gpt-image` and `dall-e` as the vendor's models take their parameters; `compatible` as most other servers do. */
export type Style = 'gpt-image' | 'dall-e' | 'compatible'

/** The style of a model by its name; `compatible` without one. */
export function styleOf(model: string | null): Style {
  if (/^(gpt-image|chatgpt-image)-/.test(model ?? '')) return 'gpt-image'
  return model?.startsWith('dall-e-') ? 'dall-e' : 'compatible'
}

/** Fields of a generation that a model takes: the vendor documents no negative prompt. */
export function optionsOf(kind: string, model: string | null): GenerationOption[] {
  if (kind === 'video') return ['image_url']
  if (kind !== 'image') return []
  return [
    ...(model === 'dall-e-3' ? [] : ['n' as const]),
    'quality',
    ...(styleOf(model) === 'compatible' ? ['negative_prompt' as const] : []),
  ]
}

const size = (text: string): Size => {
  const [width = 0, height = 0] = text.split('x').map(Number)
  return { width, height }
}

/** Models that take some sizes only. */
const IMAGE_SIZES: [RegExp, Size[]][] = [
  [/^gpt-image-1(\.5|-mini)?(-\d{4}-\d{2}-\d{2})?$|^chatgpt-image-/, ['1024x1024', '1536x1024', '1024x1536'].map(size)],
  [/^dall-e-2$/, ['256x256', '512x512', '1024x1024'].map(size)],
  [/^dall-e-3$/, ['1024x1024', '1792x1024', '1024x1792'].map(size)],
]
const VIDEO_SIZES: [RegExp, Size[]][] = [
  [/^sora-2-pro/, ['1280x720', '720x1280', '1792x1024', '1024x1792', '1920x1080', '1080x1920'].map(size)],
  [/^sora-/, ['1280x720', '720x1280'].map(size)],
]
const SORA_SECONDS = [4, 8, 12, 16, 20]

/** What newer GPT image models take: any size within these. */
const FREE = { step: 16, ratio: 3, pixelsMin: 655_360, pixelsMax: 3840 * 2160, edgeMax: 3840, rounding: 1.05 }

/** The size to request of an image model: the nearest that it takes within the limits, or null when it takes none. */
export function imageSize(model: string | null, wanted: Size, limits: Limits): Size | null {
  const fixed = IMAGE_SIZES.find(([name]) => name.test(model ?? ''))?.[1]
  if (fixed) return nearest(fixed, wanted, limits)
  return styleOf(model) === 'gpt-image' ? freeSize(wanted, limits) : wanted
}

/** The most pixels that `imageSize` gives an edit. `limits` are by its source, which decides only where the model takes any size. */
export function editPixels(model: string | null, limits: Limits, max: Limits): number {
  const fixed = IMAGE_SIZES.find(([name]) => name.test(model ?? ''))?.[1]
  if (fixed) return Math.max(0, ...fixed.map(({ width, height }) => width * height).filter((pixels) => pixels <= max.pixels))
  if (styleOf(model) !== 'gpt-image') return limits.pixels
  return Math.min(FREE.pixelsMax, max.pixels, Math.ceil(Math.max(FREE.pixelsMin, limits.pixels) * FREE.rounding))
}

/**
 * The documented size of a video model that is nearest to the requested one within the limits, or null when none fits; a model of another
 * server gets the requested one.
 */
export function videoSize(model: string | null, wanted: Size, limits: Limits): Size | null {
  const fixed = VIDEO_SIZES.find(([name]) => name.test(model ?? ''))?.[1]
  return fixed ? nearest(fixed, wanted, limits) : wanted
}

/** A picture or a video of the size and length that the model makes. */
export const ordered: Order = (request, model, limits) => {
  const { kind, width, height, durationMs } = request
  if (width === null || height === null) return request
  if (kind === 'image') return sized(request, imageSize(model, { width, height }, limits))
  const lastsMs = durationMs === null ? null : orderedMs(durationMs, limits, model?.startsWith('sora-') ? SORA_SECONDS : undefined)
  return lastsMs === null ? null : sized({ ...request, durationMs: lastsMs }, videoSize(model, { width, height }, limits))
}

const sized = <T>(request: T, size: Size | null): (T & Size) | null => size && { ...request, ...size }

/** Nearest by shape first, since a picture can be scaled but not reshaped, then by size. */
function nearest(sizes: readonly Size[], wanted: Size, limits: Limits): Size | null {
  const far = ({ width, height }: Size): number =>
    4 * Math.abs(Math.log((width * wanted.height) / (height * wanted.width))) +
    Math.abs(Math.log((width * height) / (wanted.width * wanted.height)))
  const [best] = sizes.filter(({ width, height }) => width * height <= limits.pixels).sort((a, b) => far(a) - far(b))
  return best ?? null
}

function freeSize(wanted: Size, limits: Limits): Size | null {
  const ratio = Math.min(FREE.ratio, Math.max(1 / FREE.ratio, wanted.width / wanted.height))
  const most = Math.min(FREE.pixelsMax, limits.pixels, ratio >= 1 ? FREE.edgeMax ** 2 / ratio : FREE.edgeMax ** 2 * ratio)
  const area = Math.min(most, Math.max(FREE.pixelsMin, wanted.width * wanted.height))
  const candidates = [Math.floor, Math.ceil].flatMap((roundWidth) =>
    [Math.floor, Math.ceil].map((roundHeight) => ({
      width: FREE.step * roundWidth(Math.sqrt(area * ratio) / FREE.step),
      height: FREE.step * roundHeight(Math.sqrt(area / ratio) / FREE.step),
    })),
  )
  const allowed = candidates.filter(({ width, height }) => {
    const pixels = width * height
    return (
      pixels >= FREE.pixelsMin &&
      pixels <= Math.min(FREE.pixelsMax, limits.pixels) &&
      Math.max(width, height) <= FREE.edgeMax &&
      Math.max(width / height, height / width) <= FREE.ratio
    )
  })
  return nearest(allowed, wanted, limits)
}
