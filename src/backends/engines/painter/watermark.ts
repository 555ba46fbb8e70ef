/** The watermark of previews. */
import { blend, each, type Canvas, type Colour } from './canvas.ts'

/** Bitmaps of the letters, 5 wide and 9 high (two rows below the line), one row of dots after the other. */
const LETTERS: Record<string, string> = {
  p: '..... ..... 1111. 1...1 1...1 1...1 1111. 1.... 1....',
  r: '..... ..... 1.11. 11..1 1.... 1.... 1.... ..... .....',
  e: '..... ..... .111. 1...1 11111 1.... .111. ..... .....',
  v: '..... ..... 1...1 1...1 1...1 .1.1. ..1.. ..... .....',
  i: '..1.. ..... .11.. ..1.. ..1.. ..1.. .111. ..... .....',
  w: '..... ..... 1...1 1...1 1.1.1 1.1.1 .1.1. ..... .....',
}

/** Writes the word "preview" on a dark plate in the lower right corner. */
export function watermark(canvas: Canvas): void {
  const { width, height, unit, rgb } = canvas
  const word = 'preview'
  const dot = Math.max(1, Math.round(unit / 200))
  const wide = (word.length * 6 + 3) * dot
  const left = width - wide - 2 * dot
  const top = height - 15 * dot
  const fill = (x: number, y: number, w: number, h: number, colour: Colour, alpha: number): void =>
    each(canvas, [x, y, x + w, y + h], (at) => blend(rgb, at, alpha, colour))
  fill(left, top, wide, 13 * dot, [12, 14, 24], 0.55)
  for (const [n, letter] of [...word].entries()) {
    for (const [y, line] of (LETTERS[letter] ?? '').split(' ').entries()) {
      for (const [x, sign] of [...line].entries()) {
        if (sign === '1') fill(left + (2 + n * 6 + x) * dot, top + (2 + y) * dot, dot, dot, [255, 255, 255], 0.95)
      }
    }
  }
}
