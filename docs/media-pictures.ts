/**
 * Makes the pictures of docs/media.md: `node docs/media-pictures.ts`. It runs every example on the real program, with the preview engine and the local ones, and lays sources and
 * results side by side. Needs sharp and ffmpeg.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp, { type OverlayOptions } from 'sharp'
import { start, type Program } from '../test/flows/program.ts'
import { EXAMPLES, pathOf } from './media-examples.ts'

const ROOT = join(import.meta.dirname, '..')
const PICTURES = join(import.meta.dirname, 'media')
const folder = mkdtempSync(join(tmpdir(), 'tollgate-pictures-'))

const GAP = 8
const HEIGHT = 240

/** The balloon of its picture, in white. */
async function maskUrl(): Promise<string> {
  const white = { create: { width: BALLOON.width, height: BALLOON.height, channels: 3 as const, background: 'white' } }
  const mask = sharp({ create: { width: 768, height: 480, channels: 3, background: 'black' } }).composite([{ input: white, left: BALLOON.left, top: BALLOON.top }])
  return `data:image/png;base64,${(await mask.png().toBuffer()).toString('base64')}`
}
const BALLOON = { left: 356, top: 98, width: 88, height: 115 }

async function run(program: Program, key: string, body: object): Promise<{ url: string; bytes: Buffer }> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', prefer: 'wait=60' }
  let record = (await (await fetch(`${program.url}${pathOf(body)}`, { method: 'POST', headers, body: JSON.stringify(body) })).json()) as { id: string; status: string; result: Record<string, string> | null }
  while (record.status === 'queued' || record.status === 'processing') record = (await (await fetch(`${program.url}${pathOf(body)}/${record.id}`, { headers })).json()) as typeof record
  const { image_url, video_url, audio_url } = record.result ?? {}
  const url = image_url ?? video_url ?? audio_url
  if (url === undefined) throw new Error(`${JSON.stringify(body)} gave ${JSON.stringify(record)}`)
  return { url, bytes: Buffer.from(await (await fetch(url)).arrayBuffer()) }
}

/** Runs ffmpeg over a file; a PNG. */
function filtered(bytes: Buffer, kind: '-vf' | '-lavfi', filter: string): Buffer {
  writeFileSync(join(folder, 'in'), bytes)
  execFileSync('ffmpeg', ['-v', 'error', '-y', '-i', join(folder, 'in'), kind, filter, '-frames:v', '1', join(folder, 'out.png')])
  return execFileSync('cat', [join(folder, 'out.png')])
}

/** Frames of a video in a row, so many a second from a time on. */
const strip = (bytes: Buffer, rate: number, count: number): Buffer => filtered(bytes, '-vf', `fps=${rate},scale=152:-2,tile=${count}x1:padding=4:color=white`)

async function beside(pictures: Buffer[], direction: 'row' | 'column' = 'row', height = HEIGHT): Promise<Buffer> {
  const parts = await Promise.all(pictures.map(async (picture) => {
    const { data, info } = await sharp(picture).resize(direction === 'row' ? { height, withoutEnlargement: false } : {}).png().toBuffer({ resolveWithObject: true })
    return { data, width: info.width, height: info.height }
  }))
  const [sizes, across] = [parts.map((part) => (direction === 'row' ? part.width : part.height)), Math.max(...parts.map((part) => (direction === 'row' ? part.height : part.width)))]
  const along = sizes.reduce((sum, size) => sum + size + GAP, -GAP)
  const overlays: OverlayOptions[] = parts.map(({ data }, i) => {
    const at = sizes.slice(0, i).reduce((sum, size) => sum + size + GAP, 0)
    return { input: data, left: direction === 'row' ? at : 0, top: direction === 'row' ? 0 : at }
  })
  const size = direction === 'row' ? { width: along, height: across } : { width: across, height: along }
  return sharp({ create: { ...size, channels: 3, background: 'white' } }).composite(overlays).png().toBuffer()
}

/** A transparent picture on the squares that mean transparency. */
async function onSquares(picture: Buffer): Promise<Buffer> {
  const { width, height } = await sharp(picture).metadata()
  const square = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="32" height="32"><rect width="32" height="32" fill="#fff"/><path d="M0 0h16v16H0zM16 16h16v16H16z" fill="#d9d9d9"/></svg>')
  return sharp({ create: { width, height, channels: 3, background: 'white' } }).composite([{ input: square, tile: true }, { input: picture }]).png().toBuffer()
}

type Drawn = (result: Buffer, sources: Record<string, Buffer>) => Promise<Buffer> | Buffer
const none = Buffer.alloc(0)
const DRAWN: Record<string, Drawn> = {
  image: (result) => beside([result]),
  video: (result) => strip(result, 1, 4),
  music: (result) => filtered(result, '-lavfi', 'showspectrumpic=s=800x240:legend=0:scale=log:drange=42:stop=1600:color=viridis'),
  background_remove: async (result, { MEADOW = none }) => beside([MEADOW, await onSquares(result)]),
  upscale: async (result, { SMALL = none }) => {
    const part = { left: 104, top: 30, width: 72, height: 60 }
    const pixels = await sharp(await sharp(SMALL).extract(part).png().toBuffer()).resize(288, 240, { kernel: 'nearest' }).png().toBuffer()
    return beside([pixels, await sharp(result).extract({ left: 4 * part.left, top: 4 * part.top, width: 288, height: 240 }).png().toBuffer()])
  },
  inpaint: (result, { MEADOW = none, MASK = none }) => beside([MEADOW, MASK, result], 'row', 180),
  ai_edit: (result, { MEADOW = none }) => beside([MEADOW, result]),
  trim: async (result, { VIDEO = none }) => beside([strip(VIDEO, 2, 8), strip(result, 2, 4)], 'column'),
  merge: (result) => strip(result, 1.5, 8),
}

mkdirSync(PICTURES, { recursive: true })
cpSync(join(ROOT, 'plans'), join(folder, 'plans'), { recursive: true })
const program = await start({ folder, namespace: 'demo' })
try {
  const key = await program.key('demo-media-key')
  for (const { kind, sources, body } of EXAMPLES) {
    const made: Record<string, { url: string; bytes: Buffer }> = {}
    for (const [name, request] of Object.entries(sources)) {
      const mask = name === 'MASK' ? await maskUrl() : null
      made[name] = mask === null ? await run(program, key, request) : { url: mask, bytes: Buffer.from(mask.slice(mask.indexOf(',') + 1), 'base64') }
    }
    const complete = JSON.parse(JSON.stringify(body).replaceAll(/"\$(\w+)"/g, (_all, name: string) => JSON.stringify(made[name]?.url)))
    const result = await run(program, key, complete)
    const drawn = await DRAWN[kind]?.(result.bytes, Object.fromEntries(Object.entries(made).map(([name, { bytes }]) => [name, bytes])))
    await sharp(drawn).jpeg({ quality: 82, mozjpeg: true }).toFile(join(PICTURES, `${kind}.jpg`))
    console.log(`docs/media/${kind}.jpg`)
  }
} finally {
  await program.stop()
  rmSync(folder, { recursive: true, force: true })
}
