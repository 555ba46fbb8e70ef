/** Abstract scenes, for prompts whose words name no place and no thing. */
import { ball, glow, oklch, ribbon, ring, wash, type Colour } from './canvas.ts'
import { wave, type Painter } from './motion.ts'
import type { Dice } from './seeded-random.ts'

type Colours = { sky: readonly [Colour, Colour, Colour, Colour]; shades: [Colour, ...Colour[]]; lights: [Colour, ...Colour[]] }

/** Balls or ribbons, in the hue that the prompt names or one of chance. */
export function abstract(hue: number | null, chance: Dice): Painter {
  const colours = coloursOf(hue ?? chance.between(0, 1), chance)
  const draw = chance.pick([orbs, ribbons])(chance, colours)
  return (canvas, turns) => {
    wash(canvas, colours.sky)
    draw(canvas, turns)
  }
}

function coloursOf(hue: number, chance: Dice): Colours {
  const other = hue + chance.pick([0.08, 0.12, 0.33, 0.42, 0.5])
  const dusk = chance.between(0.22, 0.5)
  return {
    sky: [
      oklch(dusk, 0.09, hue - 0.04),
      oklch(dusk + 0.12, 0.1, hue + 0.03),
      oklch(dusk + 0.3, 0.11, (hue + other) / 2),
      oklch(dusk + 0.36, 0.12, other),
    ],
    shades: [
      oklch(0.62, 0.13, hue),
      oklch(0.5, 0.13, hue - 0.05),
      oklch(0.42, 0.12, other),
      oklch(0.32, 0.09, other + 0.04),
      oklch(0.24, 0.07, other + 0.08),
    ],
    lights: [oklch(0.92, 0.07, other), oklch(0.85, 0.12, other + 0.06), oklch(0.88, 0.1, hue + 0.08), oklch(0.95, 0.04, hue)],
  }
}

/** Balls that drift in circles, with light behind them and thin rings around some. */
function orbs(chance: Dice, { shades, lights }: Colours): Painter {
  const list = Array.from({ length: chance.whole(6, 11) }, () => ({
    x: chance.between(0.08, 0.92),
    y: chance.between(0.08, 0.92),
    radius: chance.between(0.05, 0.2) + chance.between(0, 0.1),
    drift: chance.between(0.02, 0.09),
    phase: chance.between(0, 1),
    way: chance.pick([-1, 1]),
    light: chance.pick(lights),
    dark: chance.pick(shades),
    alpha: chance.between(0.55, 0.95),
    ring: chance.between(0, 1) < 0.4 ? chance.between(1.25, 1.9) : null,
  })).sort((a, b) => a.radius - b.radius)
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    for (const orb of list) {
      const turn = orb.phase + orb.way * turns
      const x = orb.x * width + orb.drift * unit * wave(turn + 0.25)
      const y = orb.y * height + orb.drift * unit * wave(turn)
      glow(canvas, x, y, orb.radius * 2.2 * unit, orb.light, 0.35)
      ball(canvas, x, y, orb.radius * unit, orb.light, orb.dark, orb.alpha)
      if (orb.ring !== null) ring(canvas, x, y, orb.radius * orb.ring * unit, Math.max(1, unit / 250), orb.light, 0.7)
    }
  }
}

/** Bands of light that wind across the picture. */
function ribbons(chance: Dice, { shades, lights }: Colours): Painter {
  const list = Array.from({ length: chance.whole(6, 10) }, (_, i) => ({
    y: chance.between(0.1, 0.85),
    colour: chance.pick(i % 2 ? lights : shades),
    alpha: chance.between(0.4, 0.8),
    thickness: chance.between(0.05, 0.16),
    waves: [0.4, 0.9].map((pace) => ({
      pace: pace * chance.between(0.6, 1.5),
      size: chance.between(0.06, 0.16),
      phase: chance.between(0, 1),
      way: chance.pick([-1, 1]),
    })),
  }))
  return (canvas, turns) => {
    const { height, unit } = canvas
    for (const band of list) {
      const line = (column: number): number => {
        let y = band.y
        for (const { pace, size, phase, way } of band.waves) y += size * wave(phase + (pace * column) / unit + way * turns)
        return y * height
      }
      const thickness = (column: number): number => unit * band.thickness * (1 + 0.5 * wave(band.y * 7 + (0.7 * column) / unit - turns))
      ribbon(canvas, line, thickness, band.colour, band.alpha)
    }
  }
}
