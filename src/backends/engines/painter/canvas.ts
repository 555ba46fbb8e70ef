// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the picture that it runs over
/** A picture in memory, and how previews are painted on it. Colours are sRGB, 0 to 255 per channel. */
export type Colour = readonly [red: number, green: number, blue: number]

export type Canvas = {
  width: number
  height: number
  /** The shorter side, which sizes are measured by. */
  unit: number
  /** Red, green and blue of each pixel, row by row. */
  rgb: Float32Array
}

/** A black canvas of that many pixels. */
export function blankCanvas(width: number, height: number): Canvas {
  return { width, height, unit: Math.min(width, height), rgb: new Float32Array(width * height * 3) }
}

/** A colour by its hue in turns, and its saturation and lightness from 0 to 1 (CSS Color 4, section 7). */
export function hsl(hue: number, saturation: number, lightness: number): Colour {
  const channel = (n: number): number => {
    const k = (n + 12 * (hue + 1)) % 12
    return 255 * (lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1)))
  }
  return [channel(0), channel(8), channel(4)]
}

export const clamp = (value: number): number => Math.min(1, Math.max(0, value))
export const mix = (from: number, to: number, share: number): number => from + (to - from) * share
export const mixed = (from: Colour, to: Colour, share: number): Colour => [
  mix(from[0], to[0], share),
  mix(from[1], to[1], share),
  mix(from[2], to[2], share),
]

/** Lays a colour over a pixel. */
export function blend(rgb: Float32Array, at: number, alpha: number, [red, green, blue]: Colour): void {
  rgb[at] = mix(rgb[at]!, red, alpha)
  rgb[at + 1] = mix(rgb[at + 1]!, green, alpha)
  rgb[at + 2] = mix(rgb[at + 2]!, blue, alpha)
}

/** Calls `lay` for each pixel between these sides that is on the canvas, with its place in `rgb` and its centre. Lengths in pixels. */
export function each(
  { width, height }: Canvas,
  [left, top, right, bottom]: readonly [number, number, number, number],
  lay: (at: number, x: number, y: number) => void,
): void {
  for (let row = Math.max(0, Math.floor(top)); row < Math.min(height, bottom); row++) {
    for (let column = Math.max(0, Math.floor(left)); column < Math.min(width, right); column++)
      lay((row * width + column) * 3, column + 0.5, row + 0.5)
  }
}
