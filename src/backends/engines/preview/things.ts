/** Things that stand, sail or fly in a scene, as silhouettes. */
import { ball, glow, polygon, type Canvas, type Colour } from './canvas.ts'
import { wave, type Painter } from './motion.ts'
import type { Palette } from './palette.ts'
import type { Thing } from './prompt-words.ts'
import type { Dice } from './seeded-random.ts'

/** Where a thing stands: its middle and its foot, in shares of the picture. */
type At = { x: number; base: number }
type Points = readonly (readonly [x: number, y: number])[]
/** Draws in the thing's own measure: 0, 0 is its foot, y goes up, and 1 is its height. */
type Pen = { shape(points: Points, colour: Colour, alpha?: number): void; dot(x: number, y: number, radius: number, light: Colour, dark?: Colour): void; shine(x: number, y: number, radius: number, colour: Colour, alpha: number): void }
type Draw = (pen: Pen, palette: Palette, turns: number) => void

/** Heights in shares of the picture's shorter side. */
const SIZES: Record<Thing, number> = { lighthouse: 0.46, house: 0.24, castle: 0.36, boat: 0.24, bird: 0.07, balloon: 0.3, rocket: 0.42, animal: 0.46, person: 0.62, tree: 0.44, cactus: 0.34 }

/** Paints a thing at a place. `turns` of the painter is the time in periods of the scene. */
export function thingOf(thing: Thing, palette: Palette, chance: Dice, { x, base }: At): Painter {
  const draw = DRAWN[thing]
  if (thing === 'bird') return flock(palette, chance)
  const size = SIZES[thing] * chance.between(0.92, 1.1)
  const [across, foot] = thing === 'person' ? [0.5, 1.02] : thing === 'balloon' ? [x, 0.52] : thing === 'boat' ? [1 - x, 0.72] : [x, base + 0.02]
  return (canvas, turns) => {
    const along = thing === 'boat' ? ((across + 0.2 + turns) % 1.4) - 0.2 : across
    const bob = thing === 'boat' ? 0.006 * wave(2 * turns) : thing === 'balloon' ? 0.02 * wave(turns) : 0
    draw(penAt(canvas, along * canvas.width, (foot + bob) * canvas.height, size * canvas.unit), palette, turns)
  }
}

function penAt(canvas: Canvas, x: number, y: number, size: number): Pen {
  return {
    shape: (points, colour, alpha = 1) => polygon(canvas, points.map(([px, py]) => [x + px * size, y - py * size] as const), colour, alpha),
    dot: (px, py, radius, light, dark = light) => ball(canvas, x + px * size, y - py * size, radius * size, light, dark, 1),
    shine: (px, py, radius, colour, alpha) => glow(canvas, x + px * size, y - py * size, radius * size, colour, alpha),
  }
}

const box = (left: number, right: number, low: number, high: number): Points => [[left, low], [left, high], [right, high], [right, low]]

const lighthouse: Draw = (pen, { pale, accent, dark, light, time }, turns) => {
  const half = (y: number): number => 0.13 - 0.055 * (y / 0.78)
  const band = (from: number, to: number): Points => [[-half(from), from], [-half(to), to], [half(to), to], [half(from), from]]
  pen.shape(band(-0.05, 0.78), pale)
  for (const from of [0.1, 0.36, 0.62]) pen.shape(band(from, from + 0.13), accent)
  pen.shape([[0.02, -0.05], [0.01, 0.78], [half(0.78), 0.78], [half(0), -0.05]], dark, 0.25)
  pen.shape(box(-0.12, 0.12, 0.78, 0.81), dark)
  pen.shape(box(-0.06, 0.06, 0.81, 0.91), light)
  pen.shape([[-0.085, 0.91], [0, 1], [0.085, 0.91]], accent)
  if (time === 'day') return
  const sweep = 0.12 * wave(turns)
  for (const side of [-1, 1]) pen.shape([[0, 0.87], [side * 2.6, 1.1 + side * sweep], [side * 2.6, 0.72 + side * sweep]], light, 0.2)
  pen.shine(0, 0.86, 0.4, light, 0.8)
}

const house: Draw = (pen, { pale, accent, dark, light }, turns) => {
  for (const [i, y] of [0.98, 1.1, 1.24].entries()) pen.shine(0.34 + 0.05 * i + 0.03 * wave(turns + i / 3), y, 0.12 + 0.03 * i, pale, 0.5)
  pen.shape(box(0.28, 0.4, 0.5, 0.95), dark)
  pen.shape(box(-0.55, 0.55, -0.1, 0.5), pale)
  pen.shape([[-0.68, 0.46], [-0.3, 0.9], [0.3, 0.9], [0.68, 0.46]], accent)
  pen.shape(box(-0.09, 0.09, -0.1, 0.3), dark)
  for (const x of [-0.32, 0.32]) pen.shape(box(x - 0.1, x + 0.1, 0.16, 0.36), light)
}

const castle: Draw = (pen, { dark, accent, light }) => {
  const tower = (x: number, half: number, top: number): void => {
    pen.shape(box(x - half, x + half, -0.1, top), dark)
    for (let i = -1; i <= 1; i++) pen.shape(box(x + i * half * 0.75 - half * 0.22, x + i * half * 0.75 + half * 0.22, top, top + 0.05), dark)
    pen.shape(box(x - 0.025, x + 0.025, top - 0.2, top - 0.1), light)
  }
  pen.shape(box(-0.6, 0.6, -0.1, 0.42), dark)
  for (const [x, half, top] of [[-0.6, 0.12, 0.62], [0.6, 0.12, 0.58], [-0.2, 0.13, 0.75], [0.2, 0.15, 0.9]] as const) tower(x, half, top)
  pen.shape([[0.2, 0.95], [0.2, 1.12], [0.4, 1.06], [0.215, 1.01], [0.215, 0.95]], accent)
}

const boat: Draw = (pen, { pale, accent, dark, light }) => {
  pen.shape([[0.03, 0.16], [0.03, 1], [0.42, 0.2]], pale)
  pen.shape([[-0.02, 0.2], [-0.02, 0.9], [-0.34, 0.24]], light)
  pen.shape(box(-0.02, 0.03, 0.1, 1.02), dark)
  pen.shape([[-0.5, 0.14], [0.55, 0.14], [0.38, -0.06], [-0.36, -0.06]], accent)
  pen.shape([[-0.4, -0.07], [0.42, -0.07], [0.3, -0.2], [-0.28, -0.2]], dark, 0.25)
}

const balloon: Draw = (pen, { accent, pale, dark }) => {
  pen.shape([[-0.27, 0.55], [0.27, 0.55], [0.07, 0.2], [-0.07, 0.2]], accent)
  pen.dot(0, 0.68, 0.32, accent)
  for (const side of [-1, 0, 1]) pen.shape([[0, 1], [side * 0.2 - 0.05, 0.72], [side * 0.045 - 0.02, 0.2], [side * 0.045 + 0.02, 0.2], [side * 0.2 + 0.05, 0.72]], pale, 0.75)
  pen.shape([[-0.06, 0.12], [0.06, 0.12], [0.05, 0], [-0.05, 0]], dark)
  for (const side of [-1, 1]) pen.shape([[side * 0.07, 0.2], [side * 0.055, 0.12], [side * 0.045, 0.12], [side * 0.06, 0.2]], dark)
}

const rocket: Draw = (pen, { pale, accent, dark, light }, turns) => {
  pen.shine(0, 0.02, 0.4, light, 0.7)
  pen.shape([[-0.08, 0.16], [0, -0.16 - 0.05 * wave(9 * turns)], [0.08, 0.16]], light)
  for (const side of [-1, 1]) pen.shape([[side * 0.1, 0.42], [side * 0.26, 0.1], [side * 0.1, 0.18]], accent)
  pen.shape([[-0.12, 0.16], [-0.15, 0.45], [-0.11, 0.74], [0, 1], [0.11, 0.74], [0.15, 0.45], [0.12, 0.16]], pale)
  pen.shape([[-0.11, 0.74], [-0.06, 0.88], [0, 1], [0.06, 0.88], [0.11, 0.74]], accent)
  pen.dot(0, 0.58, 0.07, light, dark)
}

/** A sitting fox, cat or dog, seen from the side. */
const animal: Draw = (pen, { accent, pale, dark }) => {
  pen.shape([[0.2, 0.02], [0.3, 0.16], [0.52, 0.14], [0.62, 0.24], [0.64, 0.42], [0.74, 0.22], [0.7, 0.06], [0.56, -0.02]], accent)
  pen.shape([[0.6, 0.3], [0.64, 0.46], [0.73, 0.3], [0.7, 0.2]], pale)
  pen.shape([[-0.43, 0.69], [-0.31, 0.83], [-0.3, 1.02], [-0.19, 0.89], [-0.1, 1.02], [-0.04, 0.8], [0.05, 0.64], [0.2, 0.46], [0.31, 0.24], [0.3, 0.06], [0.22, -0.02], [-0.24, -0.02], [-0.28, 0.04], [-0.18, 0.1], [-0.17, 0.4], [-0.2, 0.56], [-0.33, 0.63]], accent)
  pen.shape([[-0.2, 0.57], [-0.1, 0.5], [-0.08, 0.3], [-0.17, 0.2], [-0.18, 0.4]], pale)
  pen.shape([[-0.43, 0.69], [-0.33, 0.63], [-0.2, 0.56], [-0.16, 0.64], [-0.3, 0.7]], pale)
  pen.shape([[-0.03, 0.02], [0.0, 0.22], [0.02, 0.22], [0.0, 0.02]], dark, 0.5)
  pen.dot(-0.25, 0.76, 0.022, dark)
  pen.dot(-0.42, 0.69, 0.026, dark)
}

/** Head and shoulders against the light. */
const person: Draw = (pen, { dark, accent, light }) => {
  pen.shine(0, 0.66, 0.75, light, 0.55)
  const shoulders = Array.from({ length: 21 }, (_, i) => [(i - 10) * 0.056, 0.4 * Math.sqrt(Math.max(0, 1 - ((i - 10) / 10) ** 4)) - 0.04] as const)
  pen.shape([[-0.56, -0.1], ...shoulders, [0.56, -0.1]], accent)
  pen.shape([[0.05, 0.36], ...shoulders.slice(11), [0.56, -0.1], [0.1, -0.1]], dark, 0.35)
  pen.shape([[-0.1, 0.3], [-0.09, 0.52], [0.09, 0.52], [0.1, 0.3], [0, 0.24]], dark)
  for (const [y, radius] of [[0.62, 0.155], [0.7, 0.175], [0.78, 0.165]] as const) pen.dot(0, y, radius, dark)
}

const tree: Draw = (pen, { dark, ground, accent, light }, turns) => {
  pen.shape([[-0.08, -0.05], [-0.035, 0.5], [0.035, 0.5], [0.08, -0.05]], dark)
  const sway = 0.01 * wave(turns)
  for (const [x, y, radius] of [[-0.24, 0.56, 0.2], [0.25, 0.58, 0.19], [0, 0.52, 0.2], [-0.13, 0.76, 0.21], [0.14, 0.78, 0.2], [0, 0.64, 0.24]] as const) pen.dot(x + sway * y, y, radius, ground(0.25), ground(0.95))
  for (const [x, y] of [[-0.2, 0.7], [0.05, 0.85], [0.22, 0.62], [-0.05, 0.56]] as const) pen.dot(x + sway * y, y, 0.025, accent, accent)
  pen.shine(0, 0.7, 0.45, light, 0.12)
}

const cactus: Draw = (pen, { ground, dark }) => {
  const limb = (x: number, half: number, low: number, high: number): void => {
    pen.shape(box(x - half, x + half, low, high), dark)
    pen.dot(x, high, half, dark)
    pen.shape(box(x - half * 0.2, x, low, high), ground(0.5), 0.35)
  }
  limb(0, 0.09, -0.05, 0.9)
  for (const [side, joint, top] of [[-1, 0.36, 0.62], [1, 0.48, 0.76]] as const) {
    pen.shape([[0, joint - 0.05], [0, joint + 0.05], [side * 0.26, joint + 0.05], [side * 0.26, joint - 0.05]], dark)
    limb(side * 0.26, 0.06, joint - 0.02, top)
  }
}

const bird: Draw = (pen, { dark }, turns) => {
  const tip = 0.5 + 0.5 * wave(turns)
  pen.shape([[-1, tip], [-0.5, 0.62], [0, 0.3], [0.5, 0.62], [1, tip], [0.45, 0.44], [0.08, 0.05], [-0.08, 0.05], [-0.45, 0.44]], dark)
}

const DRAWN: Record<Thing, Draw> = { lighthouse, house, castle, boat, balloon, rocket, animal, person, tree, cactus, bird }

/** Birds in the sky, which fly across in a turn. */
function flock(palette: Palette, chance: Dice): Painter {
  const birds = Array.from({ length: chance.whole(4, 7) }, () => ({ x: chance.between(0.15, 0.85), y: chance.between(0.14, 0.42), size: chance.between(0.5, 1), phase: chance.between(0, 1) }))
  return (canvas, turns) => {
    for (const { x, y, size, phase } of birds) {
      const across = ((x + 0.1 + turns) % 1.2) - 0.1
      bird(penAt(canvas, across * canvas.width, y * canvas.height, SIZES.bird * 0.5 * size * canvas.unit), palette, phase + 8 * turns)
    }
  }
}
