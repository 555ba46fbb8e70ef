/** Rain, snow and fog over a scene. */
import { blend, glow, ribbon, type Canvas, type Colour } from './canvas.ts'
import { wave, type Painter } from './motion.ts'
import type { Weather } from './prompt-words.ts'
import type { Dice } from './seeded-random.ts'

const WHITE: Colour = [245, 248, 255]

/** Paints the weather over what is on the canvas. */
export function weatherOf(weather: Weather, chance: Dice): Painter {
  return { rain, snow, fog }[weather](chance)
}

/** How far a drop has fallen: whole turns of its own, so that a film can be repeated. */
const fallen = (from: number, speed: number, turns: number): number => (from + speed * turns) % 1

function rain(chance: Dice): Painter {
  const drops = Array.from({ length: 260 }, () => ({
    x: chance.between(-0.1, 1),
    y: chance.between(0, 1),
    speed: chance.whole(14, 20),
    long: chance.between(0.03, 0.07),
    alpha: chance.between(0.12, 0.32),
  }))
  return (canvas, turns) => {
    for (const { x, y, speed, long, alpha } of drops) streak(canvas, x, fallen(y, speed, turns) * 1.1 - 0.05, long, alpha)
  }
}

/** A slanted line of one pixel. */
function streak({ width, height, unit, rgb }: Canvas, x: number, y: number, long: number, alpha: number): void {
  const length = long * unit
  const [left, top] = [(x + 0.06 * y) * width, y * height]
  for (let i = 0; i < length; i++) {
    const [column, row] = [Math.floor(left + 0.18 * i), Math.floor(top + i)]
    if (column >= 0 && column < width && row >= 0 && row < height) blend(rgb, (row * width + column) * 3, alpha, ...WHITE)
  }
}

function snow(chance: Dice): Painter {
  const flakes = Array.from({ length: 190 }, () => ({
    x: chance.between(0, 1),
    y: chance.between(0, 1),
    speed: chance.whole(1, 4),
    radius: chance.between(0.004, 0.013),
    phase: chance.between(0, 1),
  }))
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    for (const { x, y, speed, radius, phase } of flakes) {
      glow(
        canvas,
        x * width + 0.02 * unit * wave(phase + 2 * turns),
        (fallen(y, speed, turns) * 1.1 - 0.05) * height,
        Math.max(1.5, radius * unit),
        WHITE,
        0.95,
      )
    }
  }
}

function fog(chance: Dice): Painter {
  const banks = Array.from({ length: 5 }, (_, i) => ({ y: 0.42 + i * 0.11, phase: chance.between(0, 1), way: chance.pick([-1, 1]) }))
  return (canvas, turns) => {
    const { height, unit } = canvas
    for (const { y, phase, way } of banks) {
      const line = (column: number): number => (y + 0.02 * wave(phase + way * turns + (0.4 * column) / unit)) * height
      ribbon(canvas, line, () => 0.16 * height, WHITE, 0.42)
    }
  }
}
