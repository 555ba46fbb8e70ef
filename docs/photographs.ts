/**
 * Runs the operations on real photographs, films and songs, and measures the child processes: `node docs/photographs.ts <folder> [RealESRGAN_x4plus.onnx]`. It writes the pictures of
 * docs/photographs.md and prints its table. The folder has the files that the page names, of the packages that it names. Needs sharp, ffmpeg and Linux.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import sharp from 'sharp'
import { start, type Program } from '../test/flows/program.ts'

const [sources = '', model] = process.argv.slice(2)
const ROOT = join(import.meta.dirname, '..')
const PICTURES = join(import.meta.dirname, 'media')
const SIDE = 220
const TICKS_PER_SECOND = 100

type Usage = { seconds: number; bytes: number }

/** Processor time and resident memory of the processes that were started below this one meanwhile. */
function watchChildren(): () => Usage {
  const before = new Set(readdirSync('/proc'))
  const seen = new Map<string, Usage>()
  const look = (): void => {
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name) && !before.has(name))) {
      try {
        const status = readFileSync(`/proc/${pid}/status`, 'utf8')
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        if (!command.includes(join(ROOT, 'engines')) && !/ffmpeg|ffprobe/.test(command)) continue
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ')
        seen.set(pid, { seconds: (Number(stat[11]) + Number(stat[12])) / TICKS_PER_SECOND, bytes: 1024 * Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) })
      } catch {
        // It has ended.
      }
    }
  }
  const timer = setInterval(look, 10)
  return () => {
    clearInterval(timer)
    const all = [...seen.values()]
    return { seconds: all.reduce((sum, { seconds }) => sum + seconds, 0), bytes: Math.max(0, ...all.map(({ bytes }) => bytes)) }
  }
}

type Made = { record: { status: string; error: { code: string } | null; result: Record<string, string | number | null> | null }; bytes: Buffer; usage: Usage }

async function upload(program: Program, key: string, name: string, bytes: Buffer): Promise<string> {
  const answer = await fetch(`${program.url}/api/v1/uploads`, { method: 'POST', headers: { authorization: `Bearer ${key}` }, body: new Uint8Array(bytes) })
  const { media_url: url } = (await answer.json()) as { media_url?: string }
  if (url === undefined) throw new Error(`${name} was not taken: ${answer.status}`)
  return url
}

async function run(program: Program, key: string, body: object): Promise<Made> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', prefer: 'wait=60' }
  const usage = watchChildren()
  let record = (await (await fetch(`${program.url}/api/v1/operations`, { method: 'POST', headers, body: JSON.stringify(body) })).json()) as Made['record'] & { id: string }
  while (record.status === 'queued' || record.status === 'processing') {
    await new Promise((wait) => setTimeout(wait, 200))
    record = (await (await fetch(`${program.url}/api/v1/operations/${record.id}`, { headers })).json()) as typeof record
  }
  const url = record.result?.['image_url'] ?? record.result?.['video_url'] ?? record.result?.['audio_url']
  return { record, bytes: typeof url === 'string' ? Buffer.from(await (await fetch(url)).arrayBuffer()) : Buffer.alloc(0), usage: usage() }
}

const file = (name: string): Buffer => readFileSync(join(sources, name))

/** A white rectangle in black, of the size of a picture. */
async function maskOf(picture: Buffer, { left, top, width, height }: { left: number; top: number; width: number; height: number }): Promise<Buffer> {
  const size = await sharp(picture).metadata()
  const white = { create: { width, height, channels: 3 as const, background: 'white' } }
  return sharp({ create: { width: size.width, height: size.height, channels: 3, background: 'black' } }).composite([{ input: white, left, top }]).png().toBuffer()
}

/** Pictures side by side, of one height, on the colour that shows what is transparent. */
async function beside(name: string, ...pictures: Buffer[]): Promise<void> {
  const parts = await Promise.all(pictures.map((picture) => sharp(picture).flatten({ background: '#d33682' }).resize({ height: SIDE, kernel: 'nearest' }).png().toBuffer({ resolveWithObject: true })))
  const overlays = parts.map(({ data }, i) => ({ input: data, left: parts.slice(0, i).reduce((sum, { info }) => sum + info.width + 8, 0), top: 0 }))
  const width = parts.reduce((sum, { info }) => sum + info.width + 8, -8)
  const drawn = await sharp({ create: { width, height: SIDE, channels: 3, background: 'white' } }).composite(overlays).png().toBuffer()
  await sharp(drawn).jpeg({ quality: 80, mozjpeg: true }).toFile(join(PICTURES, `${name}.jpg`))
}

const folder = mkdtempSync(join(tmpdir(), 'tollgate-photographs-'))
cpSync(join(ROOT, 'plans'), join(folder, 'plans'), { recursive: true })

/** The program with the shipped networks, or with one for upscale. */
async function withProgram(upscale: string | null, work: (program: Program, key: string) => Promise<void>): Promise<void> {
  const engine = upscale === null ? '' : `, upscale: { model: ${resolve(upscale)}, scale: 4, tile: 128, overlap: 8 }`
  const price = 'price: { amount: "0.01", per: Job }, timeoutSeconds: 3600'
  const routes = [...['background_remove', 'upscale', 'inpaint'].map((operation) => [operation, 'pictures']), ...['trim', 'merge'].map((operation) => [operation, 'films'])]
  writeFileSync(join(folder, 'engines.yaml'), `engines:\n  - { name: pictures, type: local-image${engine} }\n  - { name: films, type: local }\nroutes:\n${routes.map(([operation, name]) => `  - { operation: ${operation}, engine: ${name}, ${price} }\n`).join('')}`)
  const program = await start({ folder, namespace: 'demo', env: { ENGINES: join(folder, 'engines.yaml') } })
  try {
    await work(program, await program.key('demo-media-key'))
  } finally {
    await program.stop()
  }
}

function row(what: string, source: string, { record, bytes, usage }: Made): void {
  const { width, height, duration_ms: ms, content_type: type } = record.result ?? {}
  const result = record.result ? `${width ? `${width} × ${height}` : ''}${width && ms ? ', ' : ''}${ms ? `${(Number(ms) / 1000).toFixed(2)} s` : ''}, ${String(type).split('/')[1]}, ${Math.round(bytes.length / 1000)} kB` : `\`${record.error?.code}\``
  console.log(`| ${what} | ${source} | ${result} | ${usage.seconds.toFixed(1)} s | ${Math.round(usage.bytes / 1e6)} MB |`)
}

const EYE = { left: 150, top: 40, width: 128, height: 128 }
/** A mast before the sky, and the tip of the rocket, whose rest is not marked. */
const MAST = { left: 425, top: 108, width: 50, height: 245 }
const TIP = { left: 300, top: 150, width: 40, height: 36 }

try {
  await withProgram(null, async (program, key) => {
    const send = (name: string, bytes = file(name)) => upload(program, key, name, bytes)
    for (const name of ['chelsea.png', 'coffee.png']) {
      const made = await run(program, key, { operation: 'background_remove', media_url: await send(name) })
      row('background_remove', name, made)
      await beside(`photograph-${name.split('.')[0]}`, file(name), made.bytes)
    }
    const small = await sharp(file('astronaut.png')).extract(EYE).png().toBuffer()
    const large = await run(program, key, { operation: 'upscale', media_url: await send('eye.png', small), scale: 4 })
    row('upscale, scale 4', 'a part of astronaut.png', large)
    writeFileSync(join(folder, 'large.png'), large.bytes)
    const rocket = file('rocket.jpg')
    for (const [what, hole] of [['inpaint, a mast', MAST], ['inpaint, part of an object', TIP]] as const) {
      const mask = await maskOf(rocket, hole)
      const filled = await run(program, key, { operation: 'inpaint', media_url: await send('rocket.jpg'), mask_url: await send('mask.png', mask), prompt: 'sky' })
      row(what, 'rocket.jpg', filled)
      if (hole === MAST) await beside('photograph-rocket', rocket, filled.bytes)
    }
    row('trim, 1 to 3 s', 'bikes.mp4', await run(program, key, { operation: 'trim', media_url: await send('bikes.mp4'), start_time: 1, end_time: 3 }))
    row('merge with a fade', 'bikes.mp4, carphone_pristine.mp4', await run(program, key, { operation: 'merge', media_urls: [await send('bikes.mp4'), await send('carphone_pristine.mp4')], transition: 'fade' }))
    for (const name of ['house_lo.mp3', 'house_lo.wav', 'house.flac']) row('trim, 1 to 4 s', name, await run(program, key, { operation: 'trim', media_url: await send(name), start_time: 1, end_time: 4 }))
    row('merge', 'house_lo.wav, house_lo.mp3', await run(program, key, { operation: 'merge', media_urls: [await send('house_lo.wav'), await send('house_lo.mp3')] }))
    for (const name of ['no_time_for_that_tiny.gif', 'multipage.tif']) row('upscale', name, await run(program, key, { operation: 'upscale', media_url: await send(name) }))
  })
  if (model !== undefined)
    await withProgram(model, async (program, key) => {
      const small = await sharp(file('astronaut.png')).extract(EYE).png().toBuffer()
      const made = await run(program, key, { operation: 'upscale', media_url: await upload(program, key, 'eye.png', small), scale: 4 })
      row('upscale, scale 4, Real-ESRGAN x4plus', 'a part of astronaut.png', made)
      await beside('photograph-astronaut', small, readFileSync(join(folder, 'large.png')), made.bytes)
    })
} finally {
  rmSync(folder, { recursive: true, force: true })
}
