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

function clamp(value: number): number {
  return value < 0 ? 0 : value > 1 ? 1 : value
}

/** Lays a colour over a pixel. */
export function blend(rgb: Float32Array, at: number, alpha: number, red: number, green: number, blue: number): void {
  rgb[at] = mix(rgb[at]!, red, alpha)
  rgb[at + 1] = mix(rgb[at + 1]!, green, alpha)
  rgb[at + 2] = mix(rgb[at + 2]!, blue, alpha)
}

/** Fills everything with a gradient between four corners: left and right above, left and right below. */
export function wash({ width, height, rgb }: Canvas, [a, b, c, d]: readonly [Colour, Colour, Colour, Colour]): void {
  for (let y = 0, at = 0; y < height; y++) {
    const down = smooth(y / height)
    for (let x = 0; x < width; x++) {
      const across = smooth(x / width)
      rgb[at++] = mix(mix(a[0], b[0], across), mix(c[0], d[0], across), down)
      rgb[at++] = mix(mix(a[1], b[1], across), mix(c[1], d[1], across), down)
      rgb[at++] = mix(mix(a[2], b[2], across), mix(c[2], d[2], across), down)
    }
  }
}

function mix(from: number, to: number, share: number): number {
  return from + (to - from) * share
}

function smooth(value: number): number {
  return value * value * (3 - 2 * value)
}

// The strokes below loop by themselves, each over its own pixels: a film calls them for a million of those twelve times a second, and a
// function handed to a common loop costs more than the work.

/** A ball that is lit from the upper left: `light` there, `dark` on the other side. Lengths in pixels. */
export function ball(canvas: Canvas, x: number, y: number, radius: number, light: Colour, dark: Colour, alpha: number): void {
  const { width, rgb } = canvas
  const inside = Math.max(0, radius - 0.5) ** 2
  const rows = rowsAround(canvas, y, radius + 1)
  for (let row = rows.from; row < rows.to; row++) {
    const dy = row + 0.5 - y
    const half = halfAt(radius + 1, dy)
    const end = Math.min(width, x + half)
    for (let column = Math.max(0, Math.floor(x - half)); column < end; column++) {
      const dx = column + 0.5 - x
      const square = dx * dx + dy * dy
      const cover = square <= inside ? 1 : clamp(radius - Math.sqrt(square) + 0.5)
      const shade = smooth(clamp(0.5 + (0.35 * (dx + 1.3 * dy)) / radius))
      blend(
        rgb,
        (row * width + column) * 3,
        alpha * cover,
        mix(light[0], dark[0], shade),
        mix(light[1], dark[1], shade),
        mix(light[2], dark[2], shade),
      )
    }
  }
}

/** A light that fades towards its edge. */
export function glow(canvas: Canvas, x: number, y: number, radius: number, [red, green, blue]: Colour, alpha: number): void {
  const { width, rgb } = canvas
  const rows = rowsAround(canvas, y, radius)
  for (let row = rows.from; row < rows.to; row++) {
    const dy = row + 0.5 - y
    const half = halfAt(radius, dy)
    const end = Math.min(width, x + half)
    for (let column = Math.max(0, Math.floor(x - half)); column < end; column++) {
      const dx = column + 0.5 - x
      const fade = clamp(1 - Math.sqrt(dx * dx + dy * dy) / radius)
      blend(rgb, (row * width + column) * 3, alpha * fade * fade, red, green, blue)
    }
  }
}

function rowsAround({ height }: Canvas, y: number, reach: number): { from: number; to: number } {
  return { from: Math.max(0, Math.floor(y - reach)), to: Math.min(height, y + reach) }
}

/** Half the chord of a circle at a distance from its middle; 0 outside of it. */
function halfAt(radius: number, distance: number): number {
  return radius <= 0 ? 0 : Math.sqrt(Math.max(0, radius * radius - distance * distance))
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
      const depth = clamp((row - top) / (height - top + 1))
      blend(rgb, at, cover, mix(colour[0], deep[0], depth), mix(colour[1], deep[1], depth), mix(colour[2], deep[2], depth))
    }
  }
}
