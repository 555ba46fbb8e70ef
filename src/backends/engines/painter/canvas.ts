// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the picture that it runs over
/** A picture in memory and the few strokes that previews are painted with. Colours are sRGB, 0 to 255 per channel; edges are smooth over one pixel. */
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

/** A colour by OKLCH: lightness 0 to 1, chroma 0 to about 0.3, hue in turns. Out of sRGB, it is clipped. */
export function oklch(lightness: number, chroma: number, hue: number): Colour {
  const a = chroma * Math.cos(2 * Math.PI * hue)
  const b = chroma * Math.sin(2 * Math.PI * hue)
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ]
}

function gamma(linear: number): number {
  const value = clamp(linear)
  return 255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055)
}

const clamp = (value: number): number => Math.min(1, Math.max(0, value))

/** Lays a colour over a pixel. */
export function blend(rgb: Float32Array, at: number, alpha: number, [red, green, blue]: Colour): void {
  rgb[at] = mix(rgb[at]!, red, alpha)
  rgb[at + 1] = mix(rgb[at + 1]!, green, alpha)
  rgb[at + 2] = mix(rgb[at + 2]!, blue, alpha)
}

export const mix = (from: number, to: number, share: number): number => from + (to - from) * share
const mixed = (from: Colour, to: Colour, share: number): Colour => [
  mix(from[0], to[0], share),
  mix(from[1], to[1], share),
  mix(from[2], to[2], share),
]
const smooth = (value: number): number => value * value * (3 - 2 * value)

/** Fills everything with a gradient between four corners: left and right above, left and right below. */
export function wash({ width, height, rgb }: Canvas, [a, b, c, d]: readonly [Colour, Colour, Colour, Colour]): void {
  for (let y = 0, at = 0; y < height; y++) {
    const down = smooth(y / height)
    const [left, right] = [mixed(a, c, down), mixed(b, d, down)]
    for (let x = 0; x < width; x++, at += 3) blend(rgb, at, 1, mixed(left, right, smooth(x / width)))
  }
}

/** A ball that is lit from the upper left: `light` there, `dark` on the other side. Lengths in pixels. */
export function ball(canvas: Canvas, x: number, y: number, radius: number, light: Colour, dark: Colour, alpha: number): void {
  around(canvas, x, y, radius + 1, (at, dx, dy) => {
    const shade = smooth(clamp(0.5 + (0.35 * (dx + 1.3 * dy)) / radius))
    blend(canvas.rgb, at, alpha * clamp(radius - Math.sqrt(dx * dx + dy * dy) + 0.5), mixed(light, dark, shade))
  })
}

/** A light that fades towards its edge. */
export function glow(canvas: Canvas, x: number, y: number, radius: number, colour: Colour, alpha: number): void {
  around(canvas, x, y, radius, (at, dx, dy) => blend(canvas.rgb, at, alpha * clamp(1 - Math.sqrt(dx * dx + dy * dy) / radius) ** 2, colour))
}

/** Calls `paint` for the pixels of a square around a place, with their distance from it. */
function around({ width, height }: Canvas, x: number, y: number, reach: number, paint: (at: number, dx: number, dy: number) => void): void {
  for (let row = Math.max(0, Math.floor(y - reach)); row < Math.min(height, y + reach); row++) {
    for (let column = Math.max(0, Math.floor(x - reach)); column < Math.min(width, x + reach); column++)
      paint((row * width + column) * 3, column + 0.5 - x, row + 0.5 - y)
  }
}

/** Everything below a line, given as its height in pixels per column; `deep` is the colour at the picture's foot. */
export function ridge({ width, height, rgb }: Canvas, line: (column: number) => number, colour: Colour, deep: Colour): void {
  const tops = Float64Array.from({ length: width }, (_, column) => line(column))
  const first = Math.max(0, Math.floor(tops.reduce((least, top) => Math.min(least, top), height)))
  for (let row = first; row < height; row++) {
    for (let column = 0, at = row * width * 3; column < width; column++, at += 3) {
      const top = tops[column]!
      const cover = clamp(row + 1 - top)
      if (cover === 0) continue
      blend(rgb, at, cover, mixed(colour, deep, clamp((row - top) / (height - top + 1))))
    }
  }
}
