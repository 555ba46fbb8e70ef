/**
 * The image operations of the local engine against the bare libraries, in processor time and in turns within one process: decode, run the network once over the
 * whole picture, encode. And what a run in a child process of its own takes besides.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp from 'sharp'
import { decode, encode } from '../engines/image/codec.ts'
import { cutOut } from '../engines/image/cut-out.ts'
import { readModels } from '../engines/image/models.ts'
import { imageOperations } from '../engines/image/operations.ts'
import { imageOf, planesOf } from '../engines/image/planes.ts'
import { openSaliency, type Saliency } from '../engines/image/saliency.ts'
import { enlarge, openEnlarger, type Enlarger } from '../engines/image/super-resolution.ts'
import type { Stage } from './stage.ts'
import { median } from './statistics.ts'
import type { Table } from './table.ts'

const LIMIT = 16_000_000
const { models } = readModels({})
type Case = { name: string; megapixels: number; bare: () => Promise<void>; ours: () => Promise<void> }

export async function* images(_stage: Stage, { rounds }: { rounds: number }): AsyncGenerator<Table> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  try {
    yield await againstLibraries(folder, rounds)
    yield await inChildren(folder, rounds)
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function againstLibraries(folder: string, rounds: number): Promise<Table> {
  const saliency = await openSaliency(models.background_remove)
  const enlarger = await openEnlarger(models.upscale)
  const cases: Case[] = []
  for (const side of [256, 512]) {
    const input = await paint(folder, side, side)
    for (const scale of [2, 4]) cases.push(enlarging(folder, input, side, enlarger, scale))
  }
  for (const side of [512, 2000, 4000]) cases.push(cutting(folder, await paint(folder, side, side), side, saliency))
  const rows: Table['rows'] = []
  for (const { name, megapixels, bare, ours } of cases) {
    const times = { bare: [] as number[], ours: [] as number[] }
    await bare()
    await ours()
    for (let round = 0; round < rounds; round++) {
      times.bare.push(await processorMs(bare))
      times.ours.push(await processorMs(ours))
    }
    const [least, taken] = [median(times.bare), median(times.ours)]
    rows.push([name, least.toFixed(0), taken.toFixed(0), `${((taken / least - 1) * 100).toFixed(0)} %`, ((1000 * megapixels) / taken).toFixed(2)])
  }
  return { title: 'Image operations against the bare libraries', head: ['', 'bare, ms', 'ours, ms', 'more', 'megapixels of result a core-second'], rows }
}

function enlarging(folder: string, input: string, side: number, enlarger: Enlarger, scale: number): Case {
  const output = join(folder, 'result.png')
  return {
    name: `upscale ${side} × ${side}, scale ${scale}`,
    megapixels: (side * scale) ** 2 / 1e6,
    async bare() {
      const pixels = await sharp(input).ensureAlpha().raw().toBuffer()
      const planes = planesOf({ width: side, height: side, pixels, opaque: true }, { x: 0, y: 0, width: side, height: side }, enlarger.model)
      const made = imageOf(await enlarger.run(planes), enlarger.model)
      await sharp(made.pixels, { raw: { width: made.width, height: made.height, channels: 4 } }).removeAlpha().resize(side * scale, side * scale).png().toFile(output)
    },
    async ours() {
      await encode(await enlarge(enlarger, await decode(input, LIMIT), scale, () => {}), 'png', output)
    },
  }
}

function cutting(folder: string, input: string, side: number, saliency: Saliency): Case {
  const output = join(folder, 'result.png')
  return {
    name: `background_remove ${side} × ${side}`,
    megapixels: side ** 2 / 1e6,
    async bare() {
      const { data, info } = await sharp(input).ensureAlpha().raw().toBuffer({ resolveWithObject: true })
      const mask = await saliency.maskOf({ ...info, pixels: data, opaque: true }, 320, 320)
      const alpha = await sharp(Uint8Array.from(mask, (value) => 255 * value), { raw: { width: 320, height: 320, channels: 1 } }).resize(side, side).extractChannel(0).raw().toBuffer()
      await sharp(data, { raw: { width: side, height: side, channels: 4 } }).removeAlpha().joinChannel(alpha, { raw: { width: side, height: side, channels: 1 } }).png().toFile(output)
    },
    async ours() {
      await encode(await cutOut(saliency, await decode(input, LIMIT)), 'png', output)
    },
  }
}

/** Whole runs, from the call to the result, on a clock: the smallest picture shows what starting takes. */
async function inChildren(folder: string, rounds: number): Promise<Table> {
  const run = { scratch: folder, limits: { pixels: LIMIT, bytes: 2 ** 28 }, signal: new AbortController().signal, progress: () => {} }
  const rows: Table['rows'] = []
  for (const side of [1, 512]) {
    const media = { role: 'media' as const, path: await paint(folder, side, side) }
    const mask = { role: 'mask' as const, path: await marked(folder, side) }
    const { background_remove, upscale, inpaint } = imageOperations(models)
    const runs = {
      'background_remove': () => background_remove({ ...run, inputs: [media], request: { background: 'transparent', crop: false, format: 'png' } }),
      'upscale, scale 2': () => upscale({ ...run, inputs: [media], request: { scale: 2, format: 'png' } }),
      'inpaint a tenth': () => inpaint({ ...run, inputs: [media, mask], request: { seed: 1, growMask: 0, format: 'png' } }),
    }
    for (const [name, once] of Object.entries(runs)) {
      const times: number[] = []
      for (let round = 0; round < rounds; round++) {
        const start = performance.now()
        const result = await once()
        if (result.outcome === 'made') times.push(performance.now() - start)
      }
      if (times.length > 0) rows.push([`${name}, ${side} × ${side}`, median(times).toFixed(0)])
    }
  }
  return { title: 'Image operations, each run in a child process', head: ['', 'ms'], rows }
}

async function processorMs(work: () => Promise<void>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

/** A picture of a subject before a background, with some grain. */
async function paint(folder: string, width: number, height: number): Promise<string> {
  const pixels = new Uint8Array(width * height * 3)
  for (let i = 0; i < pixels.length; i++) {
    const [x, y] = [((i / 3) % width) / width, Math.floor(i / 3 / width) / height]
    const inside = (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.08
    pixels[i] = (inside ? [200, 60, 40] : [150, 190 - 40 * y, 220])[i % 3] as number
    pixels[i] = (pixels[i] as number) + ((i * 7919) % 13)
  }
  const path = join(folder, `${width}x${height}.png`)
  await sharp(pixels, { raw: { width, height, channels: 3 } }).png().toFile(path)
  return path
}

/** A mask that marks a square of a tenth of a picture, and nothing of the smallest. */
async function marked(folder: string, side: number): Promise<string> {
  const path = join(folder, `mask-${side}.png`)
  const inner = Math.round(side * Math.sqrt(0.1))
  const black = sharp({ create: { width: side, height: side, channels: 3, background: 'black' } })
  const white = { create: { width: Math.max(inner, 1), height: Math.max(inner, 1), channels: 3 as const, background: 'white' } }
  await (side === 1 ? black : black.composite([{ input: white, left: Math.round((side - inner) / 2), top: Math.round((side - inner) / 2) }])).png().toFile(path)
  return path
}
