/** What a preview shows: a landscape by the few words of the prompt that it knows, the rest by dice, and a balloon that drifts through it. */
import { blankCanvas, blend, clamp, each, hsl, mix, mixed, type Canvas, type Colour } from './canvas.ts'
import { dice, type Dice } from './seeded-random.ts'
import { watermark } from './watermark.ts'

/** `still` paints everything but the balloon, which `moving` adds where it is at a time in seconds. */
export type Scene = { still(canvas: Canvas): void; moving(canvas: Canvas, seconds: number): void }

type Tone = readonly [hue: number, saturation: number, lightness: number]
/** Sky above and at the horizon, sun or moon, and the lightness of the ground, far and near. */
type Hour = readonly [words: string, above: Tone, horizon: Tone, light: Tone, far: number, near: number]
const HOURS: readonly [Hour, ...Hour[]] = [
  ['dawn sunrise morning spring', [0.72, 0.32, 0.5], [0.08, 0.8, 0.78], [0.12, 1, 0.9], 0.62, 0.24],
  ['dusk sunset evening golden autumn', [0.76, 0.35, 0.28], [0.06, 0.8, 0.62], [0.1, 0.95, 0.8], 0.42, 0.14],
  ['night midnight moon star dark neon space', [0.66, 0.5, 0.09], [0.68, 0.4, 0.24], [0.15, 0.3, 0.92], 0.24, 0.08],
  ['day noon sun sunny summer winter snow', [0.58, 0.65, 0.55], [0.55, 0.6, 0.88], [0.14, 1, 0.95], 0.66, 0.34],
]
/** The ground: its hue, and how high it rises in shares of the picture. */
type Place = readonly [words: string, hue: number, rise: number]
const PLACES: readonly [Place, ...Place[]] = [
  ['sea ocean beach coast harbour island lake river water lighthouse boat ship sail', 0.58, 0.012],
  ['mountain alp peak glacier volcano castle', 0.62, 0.16],
  ['desert dune sahara canyon camel', 0.09, 0.06],
  ['forest wood jungle tree fox bear deer', 0.36, 0.05],
  ['city town street skyline building', 0.67, 0.03],
  ['meadow field garden hill valley farm house cottage cat dog', 0.28, 0.05],
]
const HUES: readonly (readonly [words: string, hue: number])[] = [
  ['red crimson scarlet', 0],
  ['orange copper', 0.07],
  ['gold yellow amber', 0.13],
  ['green emerald', 0.34],
  ['teal turquoise cyan', 0.48],
  ['blue azure', 0.6],
  ['purple violet lavender', 0.77],
  ['pink rose magenta', 0.92],
]

type Layer = (canvas: Canvas) => void

/** The scene of a prompt and a seed. */
export function scene(prompt: string, seed: number | null): Scene {
  const chance = dice(`scene\n${seed}\n${prompt}`)
  const words = prompt.toLowerCase().split(/[^\p{L}]+/u)
  const isNamed = ([list]: readonly [string, ...unknown[]]) =>
    list.split(' ').some((word) => words.includes(word) || words.includes(`${word}s`))
  const [, above, horizon, light, far, near] = HOURS.find(isNamed) ?? chance.pick(HOURS)
  const [, groundHue, rise] = PLACES.find(isNamed) ?? chance.pick(PLACES)
  const hue = HUES.find(isNamed)?.[1]
  const hills = [0, 0.33, 0.66, 1].map((depth) =>
    ridge(depth, hsl(hue ?? groundHue, 0.2 + 0.2 * depth, mix(far, near, depth)), rise, chance),
  )
  const layers = [
    sky(hsl(...above), hsl(...horizon)),
    ...(above[2] < 0.1 ? [stars(chance)] : []),
    sun(hsl(...light), chance),
    ...hills,
    watermark,
  ]
  return {
    still: (canvas) => layers.forEach((paint) => paint(canvas)),
    moving: balloon(hsl(hue ?? chance.between(0, 1), 0.7, 0.6), chance),
  }
}

function sky(above: Colour, horizon: Colour): Layer {
  return (canvas) =>
    each(canvas, [0, 0, canvas.width, canvas.height], (at, _x, y) => blend(canvas.rgb, at, 1, mixed(above, horizon, y / canvas.height)))
}

/** A light that fades towards its edge. */
function glow(canvas: Canvas, x: number, y: number, radius: number, colour: Colour, alpha: number): void {
  each(canvas, [x - radius, y - radius, x + radius, y + radius], (at, px, py) =>
    blend(canvas.rgb, at, alpha * clamp(1 - Math.hypot(px - x, py - y) / radius) ** 2, colour),
  )
}

/** A ball that is lit from the upper left, with an edge that is smooth over one pixel. */
function ball(canvas: Canvas, x: number, y: number, radius: number, light: Colour): void {
  const dark = mixed(light, [0, 0, 0], 0.55)
  each(canvas, [x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1], (at, px, py) => {
    const shade = clamp(0.5 + (0.35 * (px - x + 1.3 * (py - y))) / radius)
    blend(canvas.rgb, at, clamp(radius - Math.hypot(px - x, py - y) + 0.5), mixed(light, dark, shade))
  })
}

function stars(chance: Dice): Layer {
  const all = Array.from({ length: 130 }, () => [chance.between(0, 1), chance.between(0, 0.7), chance.between(0.002, 0.006)] as const)
  return (canvas) => {
    for (const [x, y, radius] of all)
      glow(canvas, x * canvas.width, y * canvas.height, Math.max(1.2, radius * canvas.unit), [255, 250, 240], 0.9)
  }
}

function sun(light: Colour, chance: Dice): Layer {
  const [x, y] = [chance.between(0.2, 0.8), chance.between(0.18, 0.44)]
  return (canvas) => {
    for (const [size, alpha] of [
      [0.6, 0.5],
      [0.1, 1],
    ] as const)
      glow(canvas, x * canvas.width, y * canvas.height, size * canvas.unit, light, alpha)
  }
}

const wave = (turns: number): number => Math.sin(2 * Math.PI * turns)

/** A layer of the ground: `depth` is 0 at the horizon, 1 in front. */
function ridge(depth: number, colour: Colour, rise: number, chance: Dice): Layer {
  const waves = [0.6, 1.3, 2.9].map(
    (pace) => [pace * chance.between(0.75, 1.3), chance.between(0, 1), chance.between(0.7, 1.2) / pace] as const,
  )
  return (canvas) => {
    const { width, height, unit, rgb } = canvas
    const topOf = (x: number) =>
      waves.reduce((y, [pace, phase, size]) => y + rise * (1 - 0.6 * depth) * size * wave(phase + (pace * x) / unit), 0.56 + 0.3 * depth)
    const tops = Array.from({ length: width }, (_, x) => topOf(x) * height)
    each(canvas, [0, tops.reduce((least, top) => Math.min(least, top), height), width, height], (at, x, y) =>
      blend(rgb, at, clamp(y + 0.5 - (tops[Math.floor(x)] ?? 0)), colour),
    )
  }
}

/** It drifts across the picture in a minute, and rises and falls a little. */
function balloon(colour: Colour, chance: Dice): Scene['moving'] {
  const [from, height] = [chance.between(0.15, 0.75), chance.between(0.22, 0.4)]
  return (canvas, seconds) => {
    const [x, y] = [((from + seconds / 60) % 1.2) * canvas.width, (height + 0.015 * wave(seconds / 6)) * canvas.height]
    const size = 0.075 * canvas.unit
    ball(canvas, x, y + 1.55 * size, 0.2 * size, [110, 75, 45])
    ball(canvas, x, y + 0.75 * size, 0.42 * size, colour)
    ball(canvas, x, y, size, colour)
  }
}

/** A picture of the scene. */
export function painted(prompt: string, seed: number | null, width: number, height: number): Canvas {
  const canvas = blankCanvas(width, height)
  const { still, moving } = scene(prompt, seed)
  still(canvas)
  moving(canvas, 0)
  return canvas
}
