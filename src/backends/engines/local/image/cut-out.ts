/** A picture without its background: the mask of the subject at full resolution, and colours at its edge that have nothing of the background in them. */
import { bleed } from './bleed.ts'
import { applyCoefficients, guidedCoefficients } from './guided-filter.ts'
import { flatten, resize, type Image } from './codec.ts'
import type { Saliency } from './saliency.ts'

/** Longest side of the picture that the edges are looked for in. */
const WORKING_SIDE = 640
/** Of the guided filter: squares of differences in colour, 0 to 1, that are no edges. */
const EPSILON = 1e-4
/** Of 255. What the mask has less of is background, what it has more of is subject: the network is never quite sure. */
const SURE_BACKGROUND = 13
const SURE_SUBJECT = 242

/**
 * Makes the background of a picture transparent, in place. Pixels at the edge of the subject mix its colour with that of the background; they get the subject's alone.
 * A picture without a subject becomes transparent everywhere.
 */
export async function cutOut(saliency: Saliency, image: Image): Promise<Image> {
  const scale = Math.min(1, WORKING_SIDE / Math.max(image.width, image.height))
  const [width, height] = [image.width, image.height].map((side) => Math.max(1, Math.round(side * scale))) as [number, number]
  const visible = await flatten(image)
  const small = await resize(visible, width, height)
  const mask = await saliency.maskOf(visible, width, height)
  const coefficients = guidedCoefficients(small.pixels, mask, width, height, Math.ceil(Math.max(width, height) / 160), EPSILON)
  const smallAlpha = applyCoefficients(coefficients, small.pixels, width, height).map(decided)
  const colours = {
    subject: bleed(small.pixels, smallAlpha.map((value) => Math.max(0, 5 * value - 1020)), width, height),
    background: bleed(small.pixels, smallAlpha.map((value) => Math.max(0, 255 - 5 * value)), width, height),
  }
  const alpha = applyCoefficients(coefficients, visible.pixels, image.width, image.height).map(decided)
  const { pixels } = image
  for (let y = 0, i = 0; y < image.height; y++) {
    const row = Math.floor((y * height) / image.height) * width
    for (let x = 0; x < image.width; x++, i++) {
      const value = alpha[i] ?? 0
      const before = pixels[4 * i + 3] ?? 0
      if (value > 0 && value < 255 && before === 255) unmix(pixels, 4 * i, value / 255, colours, 4 * (row + Math.floor((x * width) / image.width)))
      pixels[4 * i + 3] = Math.round((value * before) / 255)
    }
  }
  return { ...image, opaque: false }
}

function decided(value: number): number {
  return Math.min(Math.max(Math.round((255 * (value - SURE_BACKGROUND)) / (SURE_SUBJECT - SURE_BACKGROUND)), 0), 255)
}

/** Takes the background's colour out of a pixel (Forte: Approximate Fast Foreground Colour Estimation, 2021). `near` is where the colours around it are. */
function unmix(pixels: Uint8Array, i: number, alpha: number, { subject, background }: { subject: Uint8Array; background: Uint8Array }, near: number): void {
  for (let c = 0; c < 3; c++) {
    const guess = subject[near + c] ?? 0
    const mixed = alpha * guess + (1 - alpha) * (background[near + c] ?? 0)
    pixels[i + c] = Math.round(Math.min(Math.max(guess + alpha * ((pixels[i + c] ?? 0) - mixed), 0), 255))
  }
}
