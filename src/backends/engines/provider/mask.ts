/**
 * Pictures and masks as a provider takes them. Ours: a mask with transparency marks the edit by transparent pixels, any other by white
 * ones; it is scaled to the picture. A provider marks it in one way. What is in the provider's form already passes as it is.
 */
import { notMade, type NotMade, type Input } from '../engine.ts'
import { mediaInfo, type MediaInfo } from '../../../domain/media-info.ts'
import type { Limits } from '../../../domain/media-generations.ts'
import { ProviderError } from './failure.ts'

/** How a provider's masks mark what is edited. */
export type Marks = 'transparent' | 'white' | 'black'

export type Picture = { bytes: Uint8Array; contentType: string; width: number; height: number }

/** What every provider takes as a picture. */
export const PICTURE_TYPES: readonly string[] = ['image/png', 'image/jpeg', 'image/webp']
/** Of the file name of a picture. */
export const extensionOf = ({ contentType }: Picture): string => contentType.slice('image/'.length)

type Raw = { raw: { width: number; height: number; channels: 1 } }
type Image = {
  metadata(): Promise<{ width: number; height: number; hasAlpha: boolean }>
  stats(): Promise<{ isOpaque: boolean }>
  autoOrient(): Image
  extractChannel(channel: 'alpha'): Image
  negate(): Image
  greyscale(): Image
  toColourspace(space: 'b-w'): Image
  extract(area: { left: number; top: number; width: number; height: number }): Image
  resize(width: number, height: number, options: { fit: 'fill'; kernel: 'nearest' }): Image
  threshold(value: number): Image
  joinChannel(channel: Uint8Array, options: Raw): Image
  png(): Image
  raw(): Image
  toBuffer(): Promise<Buffer>
}
type Source = Uint8Array | { create: { width: number; height: number; channels: 3; background: string } }

/** As much of sharp as is used here. */
export type Sharp = (source: Source, options?: { limitInputPixels?: number; sequentialRead?: boolean; failOn?: 'error' } | Raw) => Image

// By a name of its own, so that the program starts, and is checked, where the optional package is not installed.
const SHARP = 'sharp'

/** Whether sharp is installed; it is loaded only when it is needed. */
export function hasSharp(): boolean {
  try {
    import.meta.resolve(SHARP)
    return true
  } catch {
    return false
  }
}

export type LoadSharp = () => Promise<Sharp | null>

export const loadSharp: LoadSharp = () =>
  import(SHARP).then(
    (module: { default: Sharp }) => module.default,
    () => null,
  )

/** The whole of an input. Its size was bounded when it was fetched. */
export async function bytesOf(input: Input): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(input.read()))
}

/**
 * A picture upright and of a type that the provider takes: as it is, else as PNG. Fails with `unsupported_input` when it cannot be decoded, with
 * `input_too_large` when it has too many pixels.
 */
export async function pictureOf(bytes: Uint8Array, types: readonly string[], limits: Limits, load: LoadSharp): Promise<Picture | NotMade> {
  const info = mediaInfo(bytes, bytes.length)
  if (!info?.contentType.startsWith('image/')) return notMade('unsupported_input', false)
  const { contentType, width, height, orientation } = info
  if ((width ?? 0) * (height ?? 0) > limits.pixels) return notMade('input_too_large', false)
  if (width && height && types.includes(contentType) && orientation === 1) return { bytes, contentType, width, height }
  const sharp = await load()
  if (!sharp)
    return notMade(
      'unsupported_input',
      false,
      new ProviderError(`the provider does not take ${contentType}, and sharp, which converts it, is not installed`),
    )
  try {
    const png = await sharp(bytes, { limitInputPixels: limits.pixels }).autoOrient().png().toBuffer()
    const upright = await sharp(png).metadata()
    return { bytes: png, contentType: 'image/png', width: upright.width, height: upright.height }
  } catch (cause) {
    return notMade('unsupported_input', false, cause)
  }
}

/**
 * The mask for a picture, grown by so many of the picture's pixels. Fails with `unsupported_input` when it cannot be decoded, with
 * `mask_mismatch` when it has another aspect ratio. Without sharp, only a mask that already has the provider's form can be used.
 */
export async function maskFor(
  picture: Picture,
  bytes: Uint8Array,
  growPx: number,
  marks: Marks,
  limits: Limits,
  load: LoadSharp,
): Promise<Picture | NotMade> {
  const { width, height } = picture
  const info = mediaInfo(bytes, bytes.length)
  if (!info?.contentType.startsWith('image/')) return notMade('unsupported_input', false)
  const sharp = await load()
  const fits = info.width === width && info.height === height && growPx === 0 && info.contentType === 'image/png'
  if (!sharp) {
    if (fits && info.alpha === (marks === 'transparent') && marks !== 'black') return { bytes, contentType: 'image/png', width, height }
    return notMade('not_supported', false, new ProviderError('sharp, which converts masks, is not installed'))
  }
  try {
    const options = { limitInputPixels: limits.pixels }
    const known =
      info.width !== null && info.orientation === 1
        ? (info as MediaInfo & { width: number; height: number })
        : await uprightSize(sharp, bytes, options)
    if (!isSameRatio(picture, known)) return notMade('mask_mismatch', false, undefined, { source: '/mask_url', limit: { width, height } })
    // Decodes all of it: what passes as it is must be whole as well.
    const { isOpaque } = await sharp(bytes, options).stats()
    const isTransparent = info.alpha && !isOpaque
    if (fits && isTransparent === (marks === 'transparent') && marks !== 'black') return { bytes, contentType: 'image/png', width, height }
    const edit = await editOf(sharp, bytes, options, isTransparent, picture, growPx)
    return { bytes: await drawn(sharp, edit, picture, marks), contentType: 'image/png', width, height }
  } catch (cause) {
    return notMade('unsupported_input', false, cause)
  }
}

async function uprightSize(
  sharp: Sharp,
  bytes: Uint8Array,
  options: { limitInputPixels: number },
): Promise<{ width: number; height: number }> {
  return sharp(await sharp(bytes, options).autoOrient().png().toBuffer()).metadata()
}

/** Scaled to the picture's width, the mask is as high as the picture, but for the pixel that was lost when it was made smaller. */
function isSameRatio(picture: { width: number; height: number }, mask: { width: number; height: number }): boolean {
  const scale = picture.width / mask.width
  return Math.abs(mask.height * scale - picture.height) <= Math.max(1, scale)
}

/** One byte for each pixel of the picture: 255 where it is edited, else 0. Each step on its own: sharp does not keep the order of calls. */
async function editOf(
  sharp: Sharp,
  bytes: Uint8Array,
  options: { limitInputPixels: number },
  isTransparent: boolean,
  { width, height }: Picture,
  growPx: number,
): Promise<Buffer> {
  const source = sharp(bytes, options).autoOrient()
  const grey = isTransparent
    ? await source.extractChannel('alpha').png().toBuffer()
    : await source.greyscale().toColourspace('b-w').png().toBuffer()
  const scaled = await sharp(isTransparent ? await sharp(grey).negate().png().toBuffer() : grey)
    .resize(width, height, { fit: 'fill', kernel: 'nearest' })
    .png()
    .toBuffer()
  const edit = await sharp(scaled).threshold(128).toColourspace('b-w').raw().toBuffer()
  if (growPx > 0) {
    // By rows, then by columns.
    for (let y = 0; y < height; y++) growLine(edit, y * width, 1, width, growPx)
    for (let x = 0; x < width; x++) growLine(edit, x, width, height, growPx)
  }
  return edit
}

/** Marks what is at most so many steps away from what is marked on a line of pixels. By hand: in sharp 0.35 `dilate` and `erode` are swapped. */
function growLine(edit: Buffer, from: number, step: number, length: number, growPx: number): void {
  const end = from + step * length
  let last = -Infinity
  let ahead = from
  for (let at = from; at < end; at += step) {
    // The nearest mark up to here, and the next one from here on, both of the line as it was.
    for (ahead = Math.max(ahead, at); ahead < end && edit[ahead] !== 255; ahead += step);
    if (edit[at] === 255) last = at
    else if (at - last <= growPx * step || (ahead < end && ahead - at <= growPx * step)) edit[at] = 254
  }
  for (let at = from; at < end; at += step) if (edit[at] === 254) edit[at] = 255
}

async function drawn(sharp: Sharp, edit: Buffer, { width, height }: Picture, marks: Marks): Promise<Buffer> {
  const raw: Raw = { raw: { width, height, channels: 1 } }
  if (marks === 'white') return sharp(edit, raw).png().toBuffer()
  const kept = await sharp(edit, raw).negate().toColourspace('b-w').raw().toBuffer()
  if (marks === 'black') return sharp(kept, raw).png().toBuffer()
  return sharp({ create: { width, height, channels: 3, background: '#000000' } })
    .joinChannel(kept, raw)
    .png()
    .toBuffer()
}
