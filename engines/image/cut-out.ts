/** A picture without its background: the mask of the subject at full resolution, and colours at its edge that have nothing of the background in them. */
import { bleed } from './bleed.ts'
import { applyCoefficients, guidedCoefficients } from './guided-filter.ts'
import { flatten, resize, type Image } from './codec.ts'
import type { Saliency } from './saliency.ts'

/** Longest side of the picture in which edges are found, and of the one in which the colours beside them are. */
const EDGES_SIDE = 640
const COLOURS_SIDE = 200
/** Of the guided filter: squares of differences in colour, 0 to 1, that are no edges. */
const EPSILON = 1e-4
/** Of 255. What the mask has less of is background, what it has more of is subject: the network is never quite sure. */
const SURE_BACKGROUND = 13
const SURE_SUBJECT = 242

/**
 * Makes the background of a picture transparent, in place. Pixels at the edge of the subject mix its colour with that of the background;
 * they get the subject's alone. A picture without a subject becomes transparent everywhere.
 */
export async function cutOut(saliency: Saliency, image: Image): Promise<Image> {
  const visible = await flatten(image)
  const small = await within(visible, EDGES_SIDE)
  const mask = await saliency.maskOf(visible, small.width, small.height)
  const coefficients = guidedCoefficients(
    small.pixels,
    mask,
    small.width,
    small.height,
    Math.ceil(Math.max(small.width, small.height) / 160),
    EPSILON,
  )
  const alphaOf = ({ pixels, width, height }: Image): Uint8Array => applyCoefficients(coefficients, pixels, width, height).map(decided)
  const tiny = await within(visible, COLOURS_SIDE)
  const tinyAlpha = alphaOf(tiny)
  const colours = {
    subject: bleed(
      tiny.pixels,
      tinyAlpha.map((value) => Math.max(0, 5 * value - 1020)),
      tiny.width,
      tiny.height,
    ),
    background: bleed(
      tiny.pixels,
      tinyAlpha.map((value) => Math.max(0, 255 - 5 * value)),
      tiny.width,
      tiny.height,
    ),
  }
  const alpha = alphaOf(visible)
  const { pixels, width, height } = image
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor((y * tiny.height) / height) * tiny.width
    for (let x = 0; x < width; x++, i++) {
      const value = alpha[i] as number
      const before = pixels[4 * i + 3] as number
      if (value > 0 && value < 255 && before === 255)
        unmix(pixels, 4 * i, value / 255, colours, 4 * (row + Math.floor((x * tiny.width) / width)))
      pixels[4 * i + 3] = Math.round((value * before) / 255)
    }
  }
  return { ...image, opaque: false }
}

/** A picture no larger than a square of this side. */
async function within(image: Image, side: number): Promise<Image> {
  const scale = Math.min(1, side / Math.max(image.width, image.height))
  return resize(image, Math.max(1, Math.round(image.width * scale)), Math.max(1, Math.round(image.height * scale)))
}

function decided(value: number): number {
  return Math.min(Math.max(Math.round((255 * (value - SURE_BACKGROUND)) / (SURE_SUBJECT - SURE_BACKGROUND)), 0), 255)
}

/** Takes the background's colour out of a pixel (Forte: Approximate Fast Foreground Colour Estimation, 2021). `near` is where the colours around it are. */
function unmix(
  pixels: Uint8Array,
  i: number,
  alpha: number,
  { subject, background }: { subject: Uint8Array; background: Uint8Array },
  near: number,
): void {
  for (let c = 0; c < 3; c++) {
    const guess = subject[near + c] ?? 0
    const mixed = alpha * guess + (1 - alpha) * (background[near + c] ?? 0)
    pixels[i + c] = Math.round(Math.min(Math.max(guess + alpha * ((pixels[i + c] ?? 0) - mixed), 0), 255))
  }
}
