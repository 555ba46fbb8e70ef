/** The preview of an edit: the scene of the prompt laid over the source, everywhere or where a mask marks it. */
import { blankCanvas, type Canvas } from './canvas.ts'
import { watermark } from './watermark.ts'
import type { Picture } from './png-decoder.ts'
import { scene } from './scene.ts'

/** How much of the scene shows when the request has no strength. */
const STRENGTH = 0.5

/** Paints the edit. Transparent parts of the source are white. Null when the mask has another aspect ratio. */
export function editedPicture(
  { prompt, seed, strength }: { prompt: string; seed: number | null; strength: number | null },
  source: Picture,
  mask: Picture | null,
): Canvas | null {
  const { width, height, rgba } = source
  const marked = mask ? marksOf(mask, width, height) : () => 1
  if (!marked) return null
  const canvas = blankCanvas(width, height)
  scene(prompt, seed)(canvas, 0)
  const share = strength ?? STRENGTH
  for (let y = 0, pixel = 0; y < height; y++) {
    for (let x = 0; x < width; x++, pixel++) {
      const alpha = (rgba[pixel * 4 + 3] ?? 255) / 255
      const over = share * marked(x, y)
      for (let c = 0; c < 3; c++) {
        const below = (rgba[pixel * 4 + c] ?? 0) * alpha + 255 * (1 - alpha)
        canvas.rgb[pixel * 3 + c] = below * (1 - over) + (canvas.rgb[pixel * 3 + c] ?? 0) * over
      }
    }
  }
  watermark(canvas)
  return canvas
}

/** How much of a pixel is marked, 0 to 1: by transparency where the mask has any, by brightness where it has none. The mask is scaled to the picture. */
function marksOf({ width, height, rgba }: Picture, toWidth: number, toHeight: number): ((x: number, y: number) => number) | null {
  const off = Math.min(Math.abs(width - (toWidth * height) / toHeight), Math.abs(height - (toHeight * width) / toWidth))
  if (off > 1) return null
  const isTransparent = rgba.some((value, i) => i % 4 === 3 && value < 255)
  return (x, y) => {
    const at = 4 * (Math.floor(((y + 0.5) * height) / toHeight) * width + Math.floor(((x + 0.5) * width) / toWidth))
    if (isTransparent) return 1 - (rgba[at + 3] ?? 0) / 255
    return (0.299 * (rgba[at] ?? 0) + 0.587 * (rgba[at + 1] ?? 0) + 0.114 * (rgba[at + 2] ?? 0)) / 255
  }
}
