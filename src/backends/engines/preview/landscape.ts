/** A landscape: sky, sun or moon, clouds, the ground of a place, what stands on it, and the weather, from the back to the front. */
import { ball, glow, ribbon, wash } from './canvas.ts'
import { groundOf } from './grounds.ts'
import { wave, type Painter } from './motion.ts'
import { paletteOf, type Palette } from './palette.ts'
import type { Reading } from './prompt-words.ts'
import type { Dice } from './seeded-random.ts'
import { thingOf } from './things.ts'
import { weatherOf } from './weather.ts'

/** A landscape of what the prompt names; the rest is chosen by `chance`. */
export function landscape(reading: Reading, chance: Dice): Painter {
  const place = reading.place ?? chance.pick(['mountains', 'meadow', 'sea'])
  const palette = paletteOf({ ...reading, place }, chance)
  // What stands in the picture has one side, the light the other.
  const side = chance.pick([-1, 1])
  const { paint: ground, base } = groundOf(place, palette, chance, { light: 0.5 + 0.2 * side })
  const things = reading.things
    .slice(0, 3)
    .map((thing, i) => thingOf(thing, palette, chance, { x: 0.5 + side * (i === 1 ? 0.12 : i === 2 ? -0.06 : -0.2), base: base(thing) }))
  const isSpace = place === 'space'
  const layers: Painter[] = [
    (canvas) => wash(canvas, palette.sky),
    ...(isSpace || palette.time === 'night' ? [stars(chance, isSpace ? 260 : 130)] : []),
    ...(isSpace ? [planet(palette, chance, 0.5 + 0.22 * side)] : [lightAt(palette, chance, 0.5 + 0.2 * side), clouds(palette, chance)]),
    ground,
    ...things,
    ...(reading.weather === null ? [] : [weatherOf(reading.weather, chance)]),
  ]
  return (canvas, turns) => {
    for (const layer of layers) layer(canvas, turns)
  }
}

function stars(chance: Dice, count: number): Painter {
  const all = Array.from({ length: count }, () => ({
    x: chance.between(0, 1),
    y: chance.between(0, 0.75),
    radius: chance.between(0.002, 0.006),
    phase: chance.between(0, 1),
    pace: chance.whole(1, 3),
  }))
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    for (const { x, y, radius, phase, pace } of all)
      glow(canvas, x * width, y * height, Math.max(1.2, radius * unit), [255, 250, 240], 0.75 + 0.25 * wave(phase + pace * turns))
  }
}

function lightAt({ light, time }: Palette, chance: Dice, x: number): Painter {
  const [low, radius] = [time === 'dawn' || time === 'dusk', time === 'night' ? 0.055 : 0.075]
  const y = low ? chance.between(0.4, 0.5) : chance.between(0.16, 0.28)
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    const at = (y + 0.012 * wave(turns)) * height
    glow(canvas, x * width, at, unit * (low ? 0.75 : 0.45), light, low ? 0.6 : 0.4)
    ball(canvas, x * width, at, unit * radius, light, light, 0.98)
  }
}

function clouds({ pale, time }: Palette, chance: Dice): Painter {
  const all = Array.from({ length: chance.whole(2, 4) }, () => ({
    y: chance.between(0.1, 0.4),
    phase: chance.between(0, 1),
    way: chance.pick([-1, 1]),
    thick: chance.between(0.02, 0.05),
  }))
  const alpha = time === 'night' ? 0.16 : 0.42
  return (canvas, turns) => {
    const { height, unit } = canvas
    for (const { y, phase, way, thick } of all) {
      const thickness = (column: number): number =>
        unit * thick * (wave(phase + (0.45 * column) / unit + way * turns) - 0.1 + 0.5 * wave(3 * phase + (1.3 * column) / unit))
      // Where there is no cloud, its line is above the picture.
      const line = (column: number): number =>
        thickness(column) > 0 ? (y + 0.012 * wave(phase + (0.7 * column) / unit)) * height : -height
      ribbon(canvas, line, (column) => Math.max(1, thickness(column)), pale, alpha)
    }
  }
}

function planet({ accent, dark, light }: Palette, chance: Dice, x: number): Painter {
  const [y, radius, moon] = [chance.between(0.26, 0.38), chance.between(0.17, 0.24), chance.between(0, 1)]
  return (canvas, turns) => {
    const { width, height, unit } = canvas
    glow(canvas, x * width, y * height, radius * 2 * unit, accent, 0.35)
    ball(canvas, x * width, y * height, radius * unit, accent, dark, 1)
    const [around, above] = [wave(moon + turns), wave(moon + turns + 0.25)]
    ball(canvas, x * width + 1.7 * radius * unit * around, (y + 0.3 * radius * above) * height, 0.022 * unit, light, dark, 1)
  }
}
