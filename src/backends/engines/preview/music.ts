/** What a preview sounds like: four chords and an arpeggio over them that the dice decide, slow or fast, major or minor by a word of the prompt. */
import { dice } from '../painter/seeded-random.ts'

export const SAMPLES_PER_SECOND = 22_050

export type Sound = { left: Float32Array; right: Float32Array }

const MAJOR = [0, 2, 4, 5, 7, 9, 11]
const MINOR = [0, 2, 3, 5, 7, 8, 10]
const CHORDS: readonly [number[], ...number[][]] = [
  [0, 4, 5, 3],
  [0, 5, 3, 4],
  [0, 3, 5, 4],
]
const STEPS: readonly [number[], ...number[][]] = [
  [0, 1, 2, 3, 2, 1, 3, 2],
  [0, 2, 1, 3, 2, 3, 1, 2],
  [3, 2, 1, 0, 1, 2, 3, 1],
]

/** Plays the tune of a prompt and a seed for a time; `progress` is called with how much is done, 0 to 1. */
export function tune(prompt: string, seed: number | null, durationMs: number, progress: (done: number) => void): Sound {
  const chance = dice(`tune\n${seed}\n${prompt}`)
  const has = (words: string): boolean => new RegExp(`\\b(${words})`, 'i').test(prompt)
  const scale = has('sad|dark|minor|epic|rain') ? MINOR : has('happy|joy|major|party') ? MAJOR : chance.pick([MAJOR, MINOR])
  const [chords, steps, root] = [chance.pick(CHORDS), chance.pick(STEPS), Math.floor(chance.between(45, 55))]
  const beat = 60 / (has('slow|calm|sleep|gentle|sad') ? 64 : has('fast|dance|energ|techno|party') ? 126 : chance.between(80, 108))
  const key = (degree: number): number => root + (scale[degree % 7] ?? 0) + 12 * Math.floor(degree / 7)
  const length = Math.max(1, Math.round((durationMs * SAMPLES_PER_SECOND) / 1000))
  const sound = { left: new Float32Array(length), right: new Float32Array(length) }
  const bars = Math.ceil(durationMs / 1000 / (4 * beat))
  for (let bar = 0; bar < bars; bar++) {
    const degree = chords[bar % chords.length] ?? 0
    const chord = [degree, degree + 2, degree + 4, degree + 7]
    for (const [i, tone] of chord.slice(0, 3).entries()) play(sound, key(tone), 4 * bar * beat, 4 * beat, 0.1, 0.6 * (i - 1))
    for (const [i, step] of steps.entries())
      play(sound, key(chord[step] ?? degree) + 12, (4 * bar + i / 2) * beat, beat, 0.16, i % 2 ? 0.4 : -0.4)
    progress((bar + 1) / bars)
  }
  finish(sound)
  return sound
}

/** Adds a note with two overtones that fades. `pan` is -1 on the left, 1 on the right. */
function play({ left, right }: Sound, key: number, at: number, seconds: number, gain: number, pan: number): void {
  const begin = Math.round(at * SAMPLES_PER_SECOND)
  const count = Math.min(left.length - begin, Math.round(seconds * SAMPLES_PER_SECOND))
  const angle = (2 * Math.PI * 440 * 2 ** ((key - 69) / 12)) / SAMPLES_PER_SECOND
  for (let i = 0; i < count; i++) {
    const share = i / (seconds * SAMPLES_PER_SECOND)
    const tone = Math.sin(angle * i) + 0.35 * Math.sin(2 * angle * i) + 0.12 * Math.sin(3 * angle * i)
    const sample = gain * tone * Math.min(1, i / 200) * (1 - share) ** 2
    left[begin + i] = (left[begin + i] ?? 0) + sample * Math.sqrt((1 - pan) / 2)
    right[begin + i] = (right[begin + i] ?? 0) + sample * Math.sqrt((1 + pan) / 2)
  }
}

/** A short fade at both ends, and the loudest sample a little below full scale. */
function finish({ left, right }: Sound): void {
  const peak = Math.max(0.01, ...[left, right].map((channel) => channel.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0)))
  const [fadeIn, fadeOut] = [0.005 * SAMPLES_PER_SECOND, Math.min(left.length / 4, 1.2 * SAMPLES_PER_SECOND)]
  for (const channel of [left, right])
    for (const [i, sample] of channel.entries())
      channel[i] = sample * (0.85 / peak) * Math.min(1, i / fadeIn, (channel.length - i) / fadeOut)
}
