/** The ground of each place. `base` is the height at which a thing stands, as a share of the picture's from above. */
import { ball, glow, polygon, ribbon, ridge, type Canvas, type Colour } from './canvas.ts'
import { wave, type Painter } from './motion.ts'
import type { Palette } from './palette.ts'
import type { Place, Thing } from './prompt-words.ts'
import type { Dice } from './seeded-random.ts'

export type Ground = { paint: Painter; base(thing: Thing): number }
/** `light`: where the sun or moon is, from the left. */
type Around = { light: number }

const BASES: Record<Place, number> = { sea: 0.8, mountains: 0.84, forest: 0.9, city: 0.93, desert: 0.82, space: 0.84, meadow: 0.8 }

/** The ground of a place; the same `chance` paints the same one. */
export function groundOf(place: Place, palette: Palette, chance: Dice, around: Around): Ground {
  const painters: Record<Place, (palette: Palette, chance: Dice, around: Around) => Painter> = {
    sea,
    mountains,
    forest,
    city,
    desert,
    space,
    meadow,
  }
  return { paint: painters[place](palette, chance, around), base: () => BASES[place] }
}

/** A line across the picture: waves of several lengths about a height, in shares of the picture. `peaked` turns valleys into ridges. */
function lineOf(
  chance: Dice,
  at: number,
  size: number,
  { paces = [0.6, 1.3, 2.9], peaked = false } = {},
): (canvas: Canvas) => (column: number) => number {
  const waves = paces.map((pace) => ({
    pace: pace * chance.between(0.75, 1.3),
    size: (size * chance.between(0.7, 1.2)) / pace,
    phase: chance.between(0, 1),
  }))
  return ({ height, unit }) =>
    (column) => {
      let y = at
      for (const { pace, size, phase } of waves) {
        const value = wave(phase + (pace * column) / unit)
        y += size * (peaked ? 2 * Math.abs(value) - 1 : value)
      }
      return y * height
    }
}

/** Layers from far to near; the last is almost flat, so that things stand on it. */
function layers(
  palette: Palette,
  chance: Dice,
  rows: readonly { at: number; size: number; paces?: number[]; peaked?: boolean }[],
): Painter {
  const all = rows.map(({ at, size, ...shape }, i) => ({
    line: lineOf(chance, at, size, shape),
    top: palette.ground(i / (rows.length - 1)),
    foot: palette.ground(Math.min(1, (i + 1) / (rows.length - 1))),
  }))
  return (canvas) => {
    for (const { line, top, foot } of all) ridge(canvas, line(canvas), top, foot)
  }
}

function mountains(palette: Palette, chance: Dice): Painter {
  const peaks = { paces: [0.45, 1.1, 2.6, 6.3], peaked: true }
  return layers(palette, chance, [
    { at: 0.47, size: 0.1, ...peaks },
    { at: 0.57, size: 0.085, ...peaks },
    { at: 0.69, size: 0.06, ...peaks },
    { at: 0.83, size: 0.012 },
  ])
}

function meadow(palette: Palette, chance: Dice): Painter {
  const hills = layers(palette, chance, [
    { at: 0.58, size: 0.035 },
    { at: 0.66, size: 0.03 },
    { at: 0.79, size: 0.012 },
  ])
  const flowers = Array.from({ length: palette.isSnowy ? 0 : 150 }, () => ({
    x: chance.between(0, 1),
    near: chance.between(0, 1) ** 1.5,
    colour: chance.pick([palette.accent, palette.pale, palette.light]),
    phase: chance.between(0, 1),
  }))
  return (canvas, turns) => {
    hills(canvas, turns)
    const { width, height, unit } = canvas
    for (const { x, near, colour, phase } of flowers)
      ball(
        canvas,
        x * width + 0.004 * unit * wave(phase + 2 * turns),
        (0.84 + 0.15 * near) * height,
        unit * (0.003 + 0.006 * near),
        colour,
        colour,
        0.85,
      )
  }
}

function desert(palette: Palette, chance: Dice): Painter {
  const dunes = { paces: [0.35, 0.8] }
  return layers(palette, chance, [
    { at: 0.56, size: 0.025, ...dunes },
    { at: 0.63, size: 0.04, ...dunes },
    { at: 0.71, size: 0.035, ...dunes },
    { at: 0.81, size: 0.015, ...dunes },
  ])
}

function space(palette: Palette, chance: Dice): Painter {
  const plain = layers(palette, chance, [
    { at: 0.74, size: 0.03, paces: [0.7, 2.3, 5.7], peaked: true },
    { at: 0.82, size: 0.012 },
  ])
  const craters = Array.from({ length: 9 }, () => ({
    x: chance.between(0, 1),
    y: chance.between(0.87, 0.98),
    wide: chance.between(0.02, 0.07),
  }))
  return (canvas, turns) => {
    plain(canvas, turns)
    const { width, height, unit } = canvas
    for (const { x, y, wide } of craters) {
      const rim = Array.from(
        { length: 20 },
        (_, i) => [x * width + unit * wide * wave(i / 20), y * height + unit * wide * 0.22 * wave(i / 20 + 0.25)] as const,
      )
      polygon(canvas, rim, palette.dark, 0.5)
    }
  }
}

function sea(palette: Palette, chance: Dice, { light }: Around): Painter {
  const swells = Array.from({ length: 9 }, (_, i) => ({
    y: 0.6 + 0.4 * ((i + 0.6) / 9) ** 1.4,
    phase: chance.between(0, 1),
    way: chance.pick([-1, 1]),
  }))
  const glints = Array.from({ length: 46 }, () => ({ near: chance.between(0, 1), off: chance.between(-1, 1), phase: chance.between(0, 1) }))
  const shore = lineOf(chance, 0, 0.02)
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    ridge(canvas, () => 0.58 * height, palette.ground(0.15), palette.ground(0.95))
    for (const { y, phase, way } of swells) {
      const line = (column: number): number => (y + 0.006 * wave(phase + way * 2 * turns + (1.6 * column) / unit)) * height
      ribbon(canvas, line, () => (y - 0.56) * 0.09 * height, palette.ground(0.05), 0.4)
    }
    for (const { near, off, phase } of glints) {
      const alpha = 0.5 + 0.4 * wave(phase + 3 * turns)
      const [x, y, wide] = [light * width + off * unit * (0.03 + 0.13 * near), (0.585 + 0.36 * near) * height, unit * (0.012 + 0.05 * near)]
      polygon(
        canvas,
        [
          [x - wide, y],
          [x, y - wide * 0.09 - 0.5],
          [x + wide, y],
          [x, y + wide * 0.09 + 0.5],
        ],
        palette.light,
        alpha,
      )
    }
    headland(canvas, shore(canvas), light > 0.5 ? -1 : 1, palette)
  }
}

/** Land that slopes into the sea, on the side away from the light. */
function headland(canvas: Canvas, line: (column: number) => number, side: -1 | 1, palette: Palette): void {
  const { width, height } = canvas
  const top = (column: number): number => {
    const across = side < 0 ? column / width : 1 - column / width
    return line(column) + (across < 0.42 ? 0.8 : 0.8 + 0.5 * ((across - 0.42) / 0.3) ** 2) * height
  }
  ridge(canvas, top, palette.ground(1), palette.foot)
}

type Tree = { x: number; tall: number }

function forest(palette: Palette, chance: Dice): Painter {
  const rows = [0.58, 0.68, 0.8].map((at, i) => ({
    line: lineOf(chance, at, 0.02),
    trees: Array.from({ length: 34 - 8 * i }, (): Tree => ({
      x: chance.between(-0.03, 1.03),
      tall: chance.between(0.75, 1.3) * (0.13 + 0.075 * i),
    })),
    colour: palette.ground(0.1 + 0.3 * i),
  }))
  const floor = lineOf(chance, 0.89, 0.01)
  return (canvas) => {
    for (const { line, trees, colour } of rows) {
      const top = line(canvas)
      for (const tree of trees) pine(canvas, tree, top(tree.x * canvas.width) + 0.02 * canvas.height, colour)
      ridge(canvas, top, colour, colour)
    }
    ridge(canvas, floor(canvas), palette.ground(1), palette.foot)
  }
}

function pine(canvas: Canvas, { x, tall }: Tree, base: number, colour: Colour): void {
  const [middle, size] = [x * canvas.width, tall * canvas.height]
  for (const [from, to, wide] of [
    [0.1, 0.55, 0.2],
    [0.36, 0.78, 0.155],
    [0.6, 1, 0.11],
  ] as const) {
    polygon(
      canvas,
      [
        [middle - wide * size, base - from * size],
        [middle, base - to * size],
        [middle + wide * size, base - from * size],
      ],
      colour,
    )
  }
  polygon(
    canvas,
    [
      [middle - 0.02 * size, base],
      [middle - 0.02 * size, base - 0.15 * size],
      [middle + 0.02 * size, base - 0.15 * size],
      [middle + 0.02 * size, base],
    ],
    colour,
  )
}

function city(palette: Palette, chance: Dice): Painter {
  const rows = [0, 1, 2].map((i) => {
    const buildings: { from: number; to: number; top: number; spire: boolean; lit: boolean[] }[] = []
    for (let x = -0.02; x < 1;) {
      const wide = chance.between(0.045, 0.1) * (0.8 + 0.25 * i)
      const lit = Array.from({ length: 60 }, () => chance.between(0, 1) < 0.4)
      buildings.push({
        from: x,
        to: x + wide,
        top: 0.9 - chance.between(0.12, [0.5, 0.42, 0.28][i] ?? 0.3),
        spire: chance.between(0, 1) < 0.18,
        lit,
      })
      x += wide + chance.between(0, 0.012)
    }
    return { buildings, colour: palette.ground(0.15 + 0.4 * i), windows: i > 0 }
  })
  const isDark = palette.time !== 'day'
  return (canvas) => {
    const { width, height } = canvas
    for (const { buildings, colour, windows } of rows) {
      for (const { from, to, top, spire, lit } of buildings) {
        block(canvas, from, to, top, colour)
        if (spire)
          polygon(
            canvas,
            [
              [((from + to) / 2 - 0.006) * width, top * height],
              [((from + to) / 2) * width, (top - 0.09) * height],
              [((from + to) / 2 + 0.006) * width, top * height],
            ],
            colour,
          )
        if (!windows) continue
        for (const [n, isLit] of lit.entries()) {
          const [x, y] = [from + ((to - from) * (0.5 + (n % 4))) / 4, top + 0.02 + 0.03 * Math.floor(n / 4)]
          if (isLit && y < 0.9) block(canvas, x - 0.004, x + 0.004, y, isDark ? palette.light : palette.pale, y + 0.014)
        }
      }
    }
    ridge(canvas, () => 0.92 * height, palette.dark, palette.dark)
    if (isDark) glow(canvas, 0.5 * width, 0.92 * height, 0.7 * canvas.unit, palette.light, 0.16)
  }
}

function block({ width, height, ...canvas }: Canvas, from: number, to: number, top: number, colour: Colour, foot = 1): void {
  polygon(
    { width, height, ...canvas },
    [
      [from * width, top * height],
      [to * width, top * height],
      [to * width, foot * height],
      [from * width, foot * height],
    ],
    colour,
  )
}
