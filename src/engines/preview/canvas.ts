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

/** Lays a colour between two, by `share`, over a pixel. Every stroke ends here: no objects are made. */
function blend(rgb: Float32Array, at: number, alpha: number, from: Colour, to: Colour, share: number): void {
  rgb[at] = mix(rgb[at] ?? 0, mix(from[0], to[0], share), alpha)
  rgb[at + 1] = mix(rgb[at + 1] ?? 0, mix(from[1], to[1], share), alpha)
  rgb[at + 2] = mix(rgb[at + 2] ?? 0, mix(from[2], to[2], share), alpha)
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

/** A ball that is lit from the upper left: `light` there, `dark` on the other side. Lengths in pixels. */
export function ball(canvas: Canvas, x: number, y: number, radius: number, light: Colour, dark: Colour, alpha: number): void {
  eachAround(canvas, x, y, radius, (at, dx, dy, distance) => {
    const shade = smooth(clamp(0.5 + (0.35 * (dx + 1.3 * dy)) / radius))
    blend(canvas.rgb, at, alpha * clamp(radius - distance + 0.5), light, dark, shade)
  })
}

/** A light that fades towards its edge. */
export function glow(canvas: Canvas, x: number, y: number, radius: number, colour: Colour, alpha: number): void {
  eachAround(canvas, x, y, radius, (at, _dx, _dy, distance) => {
    const fade = clamp(1 - distance / radius)
    blend(canvas.rgb, at, alpha * fade * fade, colour, colour, 0)
  })
}

export function ring(canvas: Canvas, x: number, y: number, radius: number, thickness: number, colour: Colour, alpha: number): void {
  eachAround(canvas, x, y, radius + thickness, (at, _dx, _dy, distance) => {
    const cover = clamp(thickness / 2 - Math.abs(distance - radius) + 0.5)
    if (cover > 0) blend(canvas.rgb, at, alpha * cover, colour, colour, 0)
  })
}

function eachAround({ width, height }: Canvas, x: number, y: number, radius: number, paint: (at: number, dx: number, dy: number, distance: number) => void): void {
  const reach = radius + 1
  for (let row = Math.max(0, Math.floor(y - reach)); row < Math.min(height, y + reach); row++) {
    const dy = row + 0.5 - y
    const half = Math.sqrt(Math.max(0, reach * reach - dy * dy))
    for (let column = Math.max(0, Math.floor(x - half)); column < Math.min(width, x + half); column++) {
      const dx = column + 0.5 - x
      paint((row * width + column) * 3, dx, dy, Math.sqrt(dx * dx + dy * dy))
    }
  }
}

/** Everything below a line, given as its height in pixels per column; `deep` is the colour at the picture's foot. */
export function ridge(canvas: Canvas, line: (column: number) => number, colour: Colour, deep: Colour): void {
  const { width, height, rgb } = canvas
  for (let column = 0; column < width; column++) {
    const top = line(column)
    for (let row = Math.max(0, Math.floor(top)); row < height; row++) {
      const depth = clamp((row - top) / (height - top + 1))
      blend(rgb, (row * width + column) * 3, clamp(row + 1 - top), colour, deep, depth)
    }
  }
}

/** A band along a line, `thickness` pixels to either side, that fades out on its lower side. */
export function ribbon(canvas: Canvas, line: (column: number) => number, thickness: (column: number) => number, colour: Colour, alpha: number): void {
  const { width, height, rgb } = canvas
  for (let column = 0; column < width; column++) {
    const middle = line(column)
    const half = thickness(column)
    for (let row = Math.max(0, Math.floor(middle - half)); row < Math.min(height, middle + half); row++) {
      const across = (row + 0.5 - middle + half) / (2 * half)
      blend(rgb, (row * width + column) * 3, alpha * clamp(row + 1 - (middle - half)) * clamp(1 - across), colour, colour, 0)
    }
  }
}

/** The letters that are needed, 5 wide and 9 high (two rows below the line), one row of dots after the other. */
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
  const fill = (x: number, y: number, w: number, h: number, colour: Colour, alpha: number): void => {
    for (let row = Math.max(0, y); row < Math.min(height, y + h); row++) {
      for (let column = Math.max(0, x); column < Math.min(width, x + w); column++) blend(rgb, (row * width + column) * 3, alpha, colour, colour, 0)
    }
  }
  fill(left, top, wide, 13 * dot, [12, 14, 24], 0.55)
  for (const [n, letter] of [...word].entries()) {
    for (const [y, line] of (LETTERS[letter] ?? '').split(' ').entries()) {
      for (const [x, sign] of [...line].entries()) {
        if (sign === '1') fill(left + (2 + n * 6 + x) * dot, top + (2 + y) * dot, dot, dot, [255, 255, 255], 0.95)
      }
    }
  }
}
