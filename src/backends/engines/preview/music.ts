/** What a preview sounds like: chords, a bass and an arpeggio that the words of the prompt, the dice and the seed decide. */
import { readMood, type Mood } from './prompt-words.ts'
import { dice, type Dice } from './seeded-random.ts'

export const SAMPLES_PER_SECOND = 22_050

export type Sound = { left: Float32Array; right: Float32Array }

/** Scales as semitones above the root, with chord progressions by degree that suit them. */
type Four = readonly [number, number, number, number]
type Mode = { scale: readonly number[]; progressions: readonly [Four, Four, Four, Four] }
const MODES: readonly [Mode, Mode, Mode] = [
  {
    scale: [0, 2, 4, 5, 7, 9, 11],
    progressions: [
      [0, 4, 5, 3],
      [0, 5, 3, 4],
      [3, 0, 4, 5],
      [0, 2, 3, 4],
    ],
  },
  {
    scale: [0, 2, 3, 5, 7, 8, 10],
    progressions: [
      [0, 5, 2, 6],
      [0, 3, 5, 6],
      [0, 6, 5, 6],
      [0, 2, 5, 3],
    ],
  },
  {
    scale: [0, 2, 3, 5, 7, 9, 10],
    progressions: [
      [0, 3, 0, 6],
      [0, 6, 3, 0],
      [0, 2, 3, 6],
      [0, 1, 3, 0],
    ],
  },
]

/** A tone: strengths of its partials, and how fast it rises and fades. */
type Voice = { partials: readonly number[]; attackMs: number; fadeMs: number }
const PLUCK: Voice = { partials: [1, 0.45, 0.22, 0.1], attackMs: 4, fadeMs: 420 }
const BASS: Voice = { partials: [1, 0.3, 0.08], attackMs: 12, fadeMs: 900 }
const PAD: Voice = { partials: [1, 0.18, 0.1], attackMs: 350, fadeMs: 2600 }

type Note = { voice: Voice; key: number; at: number; seconds: number; gain: number; pan: number }

/** Plays the tune of a prompt and a seed for a time; `progress` is called with how much is done, 0 to 1. */
export function tune(prompt: string, seed: number | null, durationMs: number, progress: (done: number) => void): Sound {
  const length = Math.max(1, Math.round((durationMs * SAMPLES_PER_SECOND) / 1000))
  const sound = { left: new Float32Array(length), right: new Float32Array(length) }
  const notes = compose(readMood(prompt), dice(`tune\n${seed}\n${prompt}`), durationMs / 1000)
  for (const [i, note] of notes.entries()) {
    play(note, sound)
    progress((i + 1) / notes.length)
  }
  finish(sound)
  return sound
}

const BEATS_PER_MINUTE = { slow: { from: 58, to: 72 }, fast: { from: 116, to: 138 }, any: { from: 76, to: 112 } }

function compose({ tempo, mode: wanted }: Mood, chance: Dice, seconds: number): Note[] {
  const any = chance.pick(MODES)
  const mode = wanted === null ? any : MODES[wanted === 'major' ? 0 : 1]
  const chords = chance.pick(mode.progressions)
  const root = chance.whole(43, 52)
  const { from, to } = BEATS_PER_MINUTE[tempo ?? 'any']
  const beat = 60 / chance.whole(from, to)
  const steps = chance.pick<readonly number[]>([
    [0, 1, 2, 3, 2, 1, 3, 2],
    [0, 2, 1, 3, 2, 3, 1, 2],
    [3, 2, 1, 0, 1, 2, 3, 1],
    [0, 1, 3, 1, 2, 1, 3, 1],
  ])
  const rests = Array.from(steps, (_, i) => i > 0 && chance.between(0, 1) < 0.18)
  const key = (degree: number): number => root + (mode.scale[degree % 7] ?? 0) + 12 * Math.floor(degree / 7)
  const notes: Note[] = []
  for (let bar = 0; bar * 4 * beat < seconds; bar++) {
    const at = bar * 4 * beat
    const degree = chords[bar % chords.length] ?? 0
    const chord = [0, 2, 4].map((third) => degree + third)
    for (const [i, tone] of chord.entries())
      notes.push({ voice: PAD, key: key(tone) + 12, at, seconds: 4 * beat, gain: 0.1, pan: (i - 1) * 0.6 })
    for (const half of [0, 2])
      notes.push({ voice: BASS, key: key(degree) - 12, at: at + half * beat, seconds: 2 * beat, gain: 0.28, pan: 0 })
    // The last bar of every four answers with other steps.
    for (const [i, step] of (bar % 4 === 3 ? steps.toReversed() : steps).entries()) {
      if (rests[i]) continue
      const tone = [...chord, degree + 7][step] ?? degree
      notes.push({
        voice: PLUCK,
        key: key(tone) + 24,
        at: at + (i * beat) / 2,
        seconds: beat * 1.5,
        gain: i % 4 === 0 ? 0.2 : 0.15,
        pan: i % 2 ? 0.35 : -0.35,
      })
    }
  }
  return notes
}

function add(channel: Float32Array, at: number, value: number): void {
  channel[at] = (channel[at] ?? 0) + value
}

function play({ voice, key, at, seconds, gain, pan }: Note, { left, right }: Sound): void {
  const begin = Math.round(at * SAMPLES_PER_SECOND)
  const count = Math.min(left.length - begin, Math.round((seconds + 0.3) * SAMPLES_PER_SECOND))
  const angle = (2 * Math.PI * 440 * 2 ** ((key - 69) / 12)) / SAMPLES_PER_SECOND
  const [toLeft, toRight] = [gain * Math.sqrt((1 - pan) / 2), gain * Math.sqrt((1 + pan) / 2)]
  for (let i = 0; i < count; i++) {
    const ms = (i * 1000) / SAMPLES_PER_SECOND
    const release = Math.min(1, (count - i) / (0.3 * SAMPLES_PER_SECOND))
    const loudness = Math.min(1, ms / voice.attackMs) * Math.exp(-ms / voice.fadeMs) * release
    let sample = 0
    for (const [partial, strength] of voice.partials.entries()) sample += strength * Math.sin(angle * (partial + 1) * i)
    add(left, begin + i, sample * loudness * toLeft)
    add(right, begin + i, sample * loudness * toRight)
  }
}

/** An echo that changes sides, a short fade at both ends, and the loudest sample a little below full scale. */
function finish({ left, right }: Sound): void {
  const delay = Math.round(0.29 * SAMPLES_PER_SECOND)
  for (let i = delay; i < left.length; i++) {
    add(left, i, 0.3 * (right[i - delay] ?? 0))
    add(right, i, 0.3 * (left[i - delay] ?? 0))
  }
  let peak = 0.01
  for (let i = 0; i < left.length; i++) peak = Math.max(peak, Math.abs(left[i] ?? 0), Math.abs(right[i] ?? 0))
  const fadeIn = 0.005 * SAMPLES_PER_SECOND
  const fadeOut = Math.min(left.length / 4, 1.2 * SAMPLES_PER_SECOND)
  for (let i = 0; i < left.length; i++) {
    const gain = (0.85 / peak) * Math.min(1, i / fadeIn, (left.length - i) / fadeOut)
    left[i] = (left[i] ?? 0) * gain
    right[i] = (right[i] ?? 0) * gain
  }
}
