/** What a preview shows: a landscape by the few words of the prompt that it knows, the rest by dice, and a balloon that drifts through it. */
import { ball, blankCanvas, glow, mix, oklch, ridge, wash, type Canvas, type Colour } from './canvas.ts'
import { dice, type Dice } from './seeded-random.ts'
import { watermark } from './watermark.ts'

/** `still` paints everything but the balloon, which `moving` adds where it is at a time in seconds. */
export type Scene = { still(canvas: Canvas): void; moving(canvas: Canvas, seconds: number): void }

type Tone = readonly [lightness: number, chroma: number, hue: number]
/** Sky above and at the horizon, sun or moon, and the lightness of the ground, far and near. */
type Hour = readonly [words: string, above: Tone, horizon: Tone, light: Tone, ground: readonly [far: number, near: number]]
const HOURS: readonly Hour[] = [
  ['dawn sunrise morning spring', [0.56, 0.09, 0.76], [0.87, 0.09, 0.14], [0.97, 0.06, 0.24], [0.7, 0.3]],
  ['dusk sunset evening golden autumn', [0.36, 0.11, 0.8], [0.76, 0.16, 0.15], [0.93, 0.12, 0.2], [0.5, 0.18]],
  ['night midnight moon star dark neon space', [0.17, 0.06, 0.75], [0.4, 0.1, 0.7], [0.95, 0.03, 0.3], [0.33, 0.12]],
  ['day noon sun sunny summer winter snow', [0.66, 0.12, 0.69], [0.93, 0.04, 0.6], [0.99, 0.04, 0.3], [0.78, 0.42]],
]
/** The ground: its hue in turns of OKLCH, and how high it rises in shares of the picture. */
type Place = readonly [words: string, hue: number, rise: number]
const PLACES: readonly Place[] = [
  ['sea ocean beach coast harbour island lake river water lighthouse boat ship sail', 0.66, 0.012],
  ['mountain alp peak glacier volcano castle', 0.72, 0.16],
  ['desert dune sahara canyon camel', 0.17, 0.06],
  ['forest wood jungle tree fox bear deer', 0.4, 0.05],
  ['city town street skyline building', 0.76, 0.03],
  ['meadow field garden hill valley farm house cottage cat dog', 0.36, 0.05],
]
const HUES: readonly [words: string, number][] = [
  ['red crimson scarlet', 0.08],
  ['orange copper', 0.16],
  ['gold yellow amber', 0.24],
  ['green emerald', 0.39],
  ['teal turquoise cyan', 0.54],
  ['blue azure', 0.72],
  ['purple violet lavender', 0.83],
  ['pink rose magenta', 0.98],
]

/** The scene of a prompt and a seed. */
export function scene(prompt: string, seed: number | null): Scene {
  const chance = dice(`scene\n${seed}\n${prompt}`)
  const words = new Set(
    prompt
      .toLowerCase()
      .split(/[^\p{L}]+/u)
      .flatMap((word) => [word, word.replace(/s$/, '')]),
  )
  const named = <T extends readonly [string, ...unknown[]]>(table: readonly T[]): T | undefined =>
    table.find(([list]) => list.split(' ').some((word) => words.has(word)))
  const any = <T>(table: readonly T[]): T => table[chance.whole(0, table.length - 1)] as T
  const [, above, horizon, light, lightness] = named(HOURS) ?? any(HOURS)
  const [, groundHue, rise] = named(PLACES) ?? any(PLACES)
  const hue = named(HUES)?.[1]
  const turn = chance.between(-0.04, 0.04)
  const tone = ([lightness, chroma, at]: Tone, lighter = 0): Colour => oklch(lightness + lighter, chroma, at + turn)
  const layers: ((canvas: Canvas) => void)[] = [
    (canvas) => wash(canvas, [tone(above), tone(above, 0.06), tone(horizon, 0.02), tone(horizon, -0.03)]),
    ...(above[0] < 0.2 ? [stars(chance)] : []),
    sun(tone(light), chance),
    ...[0, 0.33, 0.66, 1].map((near) => hills(near, mix(...lightness, near), (hue ?? groundHue) + turn, rise, chance)),
    watermark,
  ]
  const balloon = balloonOf(oklch(0.7, 0.17, hue ?? chance.between(0, 1)), chance)
  return {
    still: (canvas) => layers.forEach((paint) => paint(canvas)),
    moving: balloon,
  }
}

const wave = (turns: number): number => Math.sin(2 * Math.PI * turns)

function stars(chance: Dice): (canvas: Canvas) => void {
  const all = Array.from({ length: 130 }, () => ({
    x: chance.between(0, 1),
    y: chance.between(0, 0.7),
    radius: chance.between(0.002, 0.006),
  }))
  return (canvas) =>
    all.forEach(({ x, y, radius }) =>
      glow(canvas, x * canvas.width, y * canvas.height, Math.max(1.2, radius * canvas.unit), [255, 250, 240], 0.9),
    )
}

function sun(light: Colour, chance: Dice): (canvas: Canvas) => void {
  const [x, y] = [chance.between(0.2, 0.8), chance.between(0.18, 0.44)]
  return (canvas) => {
    glow(canvas, x * canvas.width, y * canvas.height, canvas.unit * 0.6, light, 0.5)
    ball(canvas, x * canvas.width, y * canvas.height, canvas.unit * 0.07, light, light, 0.98)
  }
}

/** A layer of the ground: `near` is 0 at the horizon, 1 in front. */
function hills(near: number, lightness: number, hue: number, rise: number, chance: Dice): (canvas: Canvas) => void {
  const [top, foot] = [oklch(lightness, 0.05 + 0.06 * near, hue), oklch(lightness - 0.1, 0.05 + 0.06 * near, hue + 0.02)]
  const waves = [0.6, 1.3, 2.9].map((pace) => ({
    pace: pace * chance.between(0.75, 1.3),
    phase: chance.between(0, 1),
    size: chance.between(0.7, 1.2) / pace,
  }))
  return ({ width, height, unit, rgb }) => {
    const line = (column: number): number =>
      waves.reduce(
        (y, { pace, phase, size }) => y + rise * (1 - 0.6 * near) * size * wave(phase + (pace * column) / unit),
        0.56 + 0.3 * near,
      ) * height
    ridge({ width, height, unit, rgb }, line, top, foot)
  }
}

/** It drifts across the picture in a minute, and rises and falls a little. */
function balloonOf(colour: Colour, chance: Dice): (canvas: Canvas, seconds: number) => void {
  const [from, height] = [chance.between(0.15, 0.75), chance.between(0.22, 0.4)]
  const dark = colour.map((channel) => 0.45 * channel) as unknown as Colour
  return (canvas, seconds) => {
    const [x, y, size] = [
      ((from + seconds / 60) % 1.2) * canvas.width,
      (height + 0.015 * wave(seconds / 6)) * canvas.height,
      0.075 * canvas.unit,
    ]
    ball(canvas, x, y + 1.55 * size, 0.2 * size, [110, 75, 45], [60, 40, 25], 1)
    ball(canvas, x, y + 0.75 * size, 0.42 * size, colour, dark, 1)
    ball(canvas, x, y, size, colour, dark, 1)
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
