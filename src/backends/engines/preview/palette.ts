/** The colours of a preview: those of its time of day and its place, or of chance where the prompt names neither. */
import { oklch, type Colour } from './canvas.ts'
import type { Place, Reading, Time } from './prompt-words.ts'
import type { Dice } from './seeded-random.ts'

export type Palette = {
  time: Time
  isSnowy: boolean
  /** Left and right above, left and right at the horizon. */
  sky: readonly [Colour, Colour, Colour, Colour]
  /** Sun or moon, and what they shine on. */
  light: Colour
  /** Colours of the ground by distance: 0 is the horizon, 1 is near. */
  ground(near: number): Colour
  /** The ground at the lower edge of the picture. */
  foot: Colour
  /** What stands in the picture: against the light, whitewashed, and painted. */
  dark: Colour
  pale: Colour
  accent: Colour
}

type Tone = readonly [lightness: number, chroma: number, hue: number]
const SKIES: Record<Time, { above: Tone; horizon: Tone; light: Tone; ground: readonly [far: number, near: number] }> = {
  dawn: { above: [0.56, 0.09, 0.76], horizon: [0.87, 0.09, 0.14], light: [0.97, 0.06, 0.24], ground: [0.7, 0.3] },
  day: { above: [0.66, 0.12, 0.69], horizon: [0.93, 0.04, 0.6], light: [0.99, 0.04, 0.3], ground: [0.78, 0.42] },
  dusk: { above: [0.36, 0.11, 0.8], horizon: [0.76, 0.16, 0.15], light: [0.93, 0.12, 0.2], ground: [0.5, 0.18] },
  night: { above: [0.17, 0.06, 0.75], horizon: [0.4, 0.1, 0.7], light: [0.95, 0.03, 0.3], ground: [0.33, 0.12] },
}
const GROUNDS: Record<Place, number> = { sea: 0.66, mountains: 0.72, forest: 0.4, city: 0.76, desert: 0.17, space: 0.83, meadow: 0.36 }

/** The palette of a reading; the dice shift it a little, so that no two prompts look alike. */
export function paletteOf({ place, time: given, weather, hue, things }: Reading & { place: Place }, chance: Dice): Palette {
  const time = given ?? (place === 'space' ? 'night' : chance.pick(['dawn', 'day', 'dusk', 'day', 'night']))
  const { above, horizon, light, ground } = SKIES[time]
  const shift = chance.between(-0.035, 0.035)
  const grey = weather === null ? 1 : 0.45
  const tone = ([lightness, chroma, at]: Tone, lighter: number, turn: number): Colour =>
    oklch(lightness + lighter, chroma * grey, at + shift + turn)
  // A colour is that of the thing, where there is one, and of the ground otherwise.
  const groundHue = (things.length === 0 ? hue : null) ?? GROUNDS[place] + shift
  const isSnowy = weather === 'snow'
  const groundAt = (near: number): Colour => {
    const lightness = isSnowy ? 0.62 + 0.34 * near - (time === 'night' ? 0.3 : 0) : ground[0] + (ground[1] - ground[0]) * near
    return oklch(lightness, isSnowy ? 0.02 : 0.05 + 0.07 * near, isSnowy ? 0.7 : groundHue)
  }
  const dark = oklch(time === 'day' ? 0.3 : 0.2, 0.05, groundHue + 0.05)
  return {
    time,
    isSnowy,
    sky: [tone(above, -0.03, 0), tone(above, 0.03, 0.02), tone(horizon, 0.02, 0), tone(horizon, -0.03, 0.03)],
    light: tone(light, 0, 0),
    ground: groundAt,
    foot: isSnowy ? groundAt(0.7) : dark,
    dark,
    pale: oklch({ dawn: 0.86, day: 0.96, dusk: 0.7, night: 0.62 }[time], 0.025, horizon[2]),
    accent: oklch(time === 'night' ? 0.6 : 0.64, 0.17, hue ?? chance.pick([0.08, 0.14, 0.2])),
  }
}
