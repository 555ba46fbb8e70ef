/** What previews take from their prompts. */
import t from 'tap'
import { blankCanvas, polygon, type Canvas } from '../../../src/backends/engines/preview/canvas.ts'
import { SAMPLES_PER_SECOND, tune } from '../../../src/backends/engines/preview/music.ts'
import { readMood, readPrompt } from '../../../src/backends/engines/preview/prompt-words.ts'
import { scene } from '../../../src/backends/engines/preview/scene.ts'

t.test('places, times of day, weather, colours and things are read from a prompt, and nothing from other words', async (t) => {
  t.same(readPrompt('A lighthouse at dawn'), { place: 'sea', time: 'dawn', weather: null, hue: null, things: ['lighthouse'] })
  t.same(readPrompt('Two RED foxes? No: a red fox, in the snow!'), { place: 'forest', time: null, weather: 'snow', hue: 0.08, things: ['animal'] })
  t.same(readPrompt('city skyline at night'), { place: 'city', time: 'night', weather: null, hue: null, things: [] })
  t.same(readPrompt('gulls over the harbour'), { place: 'sea', time: null, weather: null, hue: null, things: ['bird'] })
  t.same(readPrompt('an abstract blue sea'), { place: null, time: null, weather: null, hue: 0.72, things: [] })
  const nothing = { place: null, time: null, weather: null, hue: null, things: [] }
  for (const prompt of ['a cup of coffee', '', '…', 'constructor __proto__ toString', '一只猫']) t.same(readPrompt(prompt), nothing)
})

t.test('tempo and mode are read from the prompt of music', async (t) => {
  t.same(readMood('a slow sad piano'), { tempo: 'slow', mode: 'minor' })
  t.same(readMood('Upbeat party'), { tempo: 'fast', mode: 'major' })
  t.same(readMood('a waltz'), { tempo: null, mode: null })
})

function painted(prompt: string, seconds = 0, width = 96, height = 64): Canvas {
  const canvas = blankCanvas(width, height)
  scene(prompt, null)(canvas, seconds)
  return canvas
}

/** The mean brightness of some rows. */
function brightness({ width, rgb }: Canvas, from: number, to: number): number {
  return rgb.subarray(from * width * 3, to * width * 3).reduce((sum, value) => sum + value, 0) / ((to - from) * width * 3)
}

t.test('night is darker than day, and snow lies on the ground', async (t) => {
  t.ok(brightness(painted('mountains at night'), 0, 20) < brightness(painted('mountains by day'), 0, 20) / 2)
  t.ok(brightness(painted('mountains by day in the snow'), 56, 60) > 1.5 * brightness(painted('mountains by day'), 56, 60))
})

t.test('every place, weather and thing is drawn at every size, with colours in range, the same each time, and moves', async (t) => {
  const prompts = ['sea', 'mountains', 'forest', 'city', 'desert', 'space', 'meadow', 'rain', 'snow', 'fog', 'lighthouse at night', 'house', 'castle', 'boat', 'bird', 'balloon', 'rocket', 'fox', 'portrait', 'tree', 'cactus', 'circles']
  for (const prompt of prompts) {
    for (const [width, height] of [[96, 64], [16, 16], [16, 90], [200, 17]] as const) {
      const { rgb } = painted(prompt, 1.5, width, height)
      t.ok(rgb.every((value) => value >= 0 && value <= 255.001), `${prompt} ${width}x${height}`)
    }
    const bytes = (seconds: number) => Buffer.from(painted(prompt, seconds).rgb.buffer)
    t.ok(bytes(2).equals(bytes(2)), prompt)
    t.notOk(bytes(0).equals(bytes(1)), `${prompt} moves`)
  }
})

t.test('a polygon covers as much of its pixels as lies inside, also where it leaves the picture', async (t) => {
  const canvas = blankCanvas(8, 8)
  polygon(canvas, [[-5, 2], [3.5, 2], [3.5, 4.5], [-5, 4.5]], [200, 100, 50])
  const red = (x: number, y: number) => canvas.rgb[(y * 8 + x) * 3]
  t.same([red(0, 2), red(2, 3), red(3, 3), red(4, 3), red(0, 1), red(0, 4), red(0, 5)], [200, 200, 100, 0, 0, 100, 0])
})

/** Energy of a pitch class over some samples (Goertzel, all octaves). */
function strength(samples: Float32Array, pitch: number): number {
  let sum = 0
  for (let key = 36 + pitch; key < 90; key += 12) {
    const angle = (2 * Math.PI * 440 * 2 ** ((key - 69) / 12)) / SAMPLES_PER_SECOND
    let [re, im] = [0, 0]
    for (const [i, value] of samples.entries()) {
      re += value * Math.cos(angle * i)
      im += value * Math.sin(angle * i)
    }
    sum += Math.hypot(re, im)
  }
  return sum
}

t.test('music is made of chords that change: the loudest notes of a bar are a triad, and nothing clips', async (t) => {
  const { left, right } = tune('a slow song', null, 16_000, () => {})
  t.ok([left, right].every((channel) => channel.every((value) => Math.abs(value) < 0.9)))
  // Within the first three bars, of 58 to 72 beats a minute.
  const chords = [[0.5, 3], [4.3, 6.6], [8.4, 9.9]].map(([from = 0, to = 0]) => {
    const bar = left.subarray(from * SAMPLES_PER_SECOND, to * SAMPLES_PER_SECOND)
    const loudest = Array.from({ length: 12 }, (_, pitch) => ({ pitch, energy: strength(bar, pitch) })).sort((a, b) => b.energy - a.energy).slice(0, 3)
    return loudest.map(({ pitch }) => pitch).sort((a, b) => a - b)
  })
  for (const chord of chords) {
    const isTriad = chord.some((root) => chord.some((third) => [3, 4].includes((third - root + 12) % 12)) && chord.some((fifth) => (fifth - root + 12) % 12 === 7))
    t.ok(isTriad, `${chord}`)
  }
  t.ok(new Set(chords.map(String)).size > 1)
})
