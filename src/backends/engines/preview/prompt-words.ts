/** What a preview takes from a prompt: the words of a small vocabulary. Everything else is left to the dice. */

export type Place = 'sea' | 'mountains' | 'forest' | 'city' | 'desert' | 'space' | 'meadow'
export type Time = 'dawn' | 'day' | 'dusk' | 'night'
export type Weather = 'rain' | 'snow' | 'fog'
export type Thing = 'lighthouse' | 'house' | 'castle' | 'boat' | 'bird' | 'balloon' | 'rocket' | 'animal' | 'person' | 'tree' | 'cactus'

const ABSTRACT = 'abstract pattern texture geometric gradient'

/** Null, or empty, where the prompt has no such word. `hue` is in turns of OKLCH. */
export type Reading = { place: Place | null; time: Time | null; weather: Weather | null; hue: number | null; things: Thing[] }

const THINGS: Record<Thing, string> = {
  lighthouse: 'lighthouse beacon',
  house: 'house home cottage cabin roof barn hut farm village',
  castle: 'castle fortress palace',
  boat: 'boat ship sail sailboat sailing yacht regatta',
  bird: 'bird gull seagull eagle crow raven swallow geese',
  balloon: 'balloon',
  rocket: 'rocket spaceship spacecraft starship',
  animal: 'fox cat kitten dog puppy wolf',
  person: 'portrait man woman girl boy child sailor astronaut king queen knight person self wizard',
  tree: 'tree oak',
  cactus: 'cactus cacti',
}
/** The first that matches counts. */
const PLACES: readonly (readonly [Place, string])[] = [
  ['space', 'space planet galaxy nebula mars moonscape cosmos universe orbit'],
  ['city', 'city town downtown skyline street skyscraper building neon tokyo paris london york berlin'],
  ['desert', 'desert dune sahara canyon pyramid'],
  ['sea', 'sea ocean beach coast harbour harbor bay island wave lake river water surf'],
  ['forest', 'forest wood jungle grove'],
  ['mountains', 'mountain alp peak summit glacier volcano ridge'],
  ['meadow', 'meadow field garden hill valley grass farm village countryside prairie park'],
]
/** Where things are to be found when the prompt names no place. */
const HABITATS: readonly (readonly [Place, string])[] = [
  ['space', 'astronaut rocket spaceship spacecraft starship'],
  ['desert', 'camel cactus cacti'],
  ['sea', 'lighthouse boat ship sail sailboat sailing sailor yacht regatta whale gull seagull'],
  ['forest', 'pine fir fox deer bear wolf'],
  ['mountains', 'castle fortress eagle'],
  ['meadow', 'flower cat kitten dog puppy house cottage cabin roof barn tree oak'],
]
const TIMES: Record<Time, string> = {
  dawn: 'dawn sunrise morning daybreak',
  dusk: 'dusk sunset evening twilight golden',
  night: 'night midnight moon moonlight moonlit star starry stars dark neon nocturne',
  day: 'day noon midday sunny sun summer afternoon',
}
const WEATHERS: Record<Weather, string> = {
  rain: 'rain rainy storm stormy shower',
  snow: 'snow snowy winter ice icy blizzard frozen christmas',
  fog: 'fog foggy mist misty haze hazy',
}
const HUES: readonly (readonly [number, string])[] = [
  [0.08, 'red crimson scarlet ruby'],
  [0.16, 'orange autumn fall copper rust'],
  [0.24, 'gold golden amber yellow'],
  [0.39, 'green emerald spring'],
  [0.54, 'teal turquoise cyan'],
  [0.72, 'blue azure sapphire'],
  [0.83, 'purple violet lavender indigo'],
  [0.98, 'pink rose magenta cherry'],
]

/** How music is to sound; null where the prompt has no such word. */
export type Mood = { tempo: 'slow' | 'fast' | null; mode: 'major' | 'minor' | null }

/** Whether a prompt has a word of a list. Plurals count as their singular. */
function wordsOf(prompt: string): (list: string) => boolean {
  const words = new Set(
    prompt
      .toLowerCase()
      .split(/[^\p{L}]+/u)
      .flatMap((word) => [word, word.replace(/s$/, '')]),
  )
  return (list) => list.split(' ').some((word) => words.has(word))
}

/** Reads the prompt of music. */
export function readMood(prompt: string): Mood {
  const has = wordsOf(prompt)
  const slow = has('slow calm ambient sleep lullaby relaxing meditation sad gentle soft rain')
  const minor = has('sad dark minor melancholic melancholy mysterious epic battle night tense rain')
  return {
    tempo: slow ? 'slow' : has('fast dance energetic upbeat techno battle run party') ? 'fast' : null,
    mode: minor ? 'minor' : has('happy joyful bright major cheerful upbeat party sunny') ? 'major' : null,
  }
}

/** Reads the prompt of a picture or a film. */
export function readPrompt(prompt: string): Reading {
  const has = wordsOf(prompt)
  const first = <T>(table: readonly (readonly [T, string])[]): T | null => table.find(([, list]) => has(list))?.[0] ?? null
  if (has(ABSTRACT)) return { place: null, time: null, weather: null, hue: first(HUES), things: [] }
  return {
    place: first(PLACES) ?? first(HABITATS),
    time: first(Object.entries(TIMES) as [Time, string][]),
    weather: first(Object.entries(WEATHERS) as [Weather, string][]),
    hue: first(HUES),
    things: (Object.entries(THINGS) as [Thing, string][]).filter(([, list]) => has(list)).map(([thing]) => thing),
  }
}
