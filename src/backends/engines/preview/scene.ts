/** What a preview shows: a scene that the words of the prompt, the dice and the seed decide, and that moves when it is given a time. */
import { abstract } from './abstract.ts'
import type { Canvas } from './canvas.ts'
import { landscape } from './landscape.ts'
import { readPrompt } from './prompt-words.ts'
import { dice } from './seeded-random.ts'
import { watermark } from './watermark.ts'

/** Paints the scene as it is at a time in seconds. */
export type Scene = (canvas: Canvas, seconds: number) => void

/** Seconds in which everything that turns has turned once. */
const PERIOD = 12

/** The scene of a prompt and a seed. */
export function scene(prompt: string, seed: number | null): Scene {
  const chance = dice(`scene\n${seed}\n${prompt}`)
  const reading = readPrompt(prompt)
  const isAbstract = reading.place === null && reading.things.length === 0 && reading.time === null && reading.weather === null
  const paint = isAbstract ? abstract(reading.hue, chance) : landscape(reading, chance)
  return (canvas, seconds) => {
    paint(canvas, seconds / PERIOD)
    watermark(canvas)
  }
}
