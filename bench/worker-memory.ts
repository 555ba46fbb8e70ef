/** Resident memory of the program over many runs of its own engines: pictures in threads, and operations in child processes. */
import { setTimeout as pause } from 'node:timers/promises'
import { blankCanvas } from '../src/backends/engines/painter/canvas.ts'
import { png } from '../src/backends/engines/preview/png-encoder.ts'
import type { Process } from './processes.ts'
import type { Stage } from './stage.ts'
import type { Table } from './table.ts'

const BATCH = 50
const BATCHES = 10
const SETTLE_MS = 2000

/** A picture and a mask of its middle. */
function sources(): { picture: string; mask: string } {
  const [picture, mask] = [blankCanvas(96, 64), blankCanvas(96, 64)]
  picture.rgb.forEach((_value, i) => (picture.rgb[i] = (i * 7) % 251))
  mask.rgb.forEach((_value, i) => (mask.rgb[i] = Math.hypot((i / 3) % 96 - 48, Math.floor(i / 288) - 32) < 12 ? 255 : 0))
  const url = (canvas: typeof picture): string => `data:image/png;base64,${Buffer.from(png(canvas)).toString('base64')}`
  return { picture: url(picture), mask: url(mask) }
}

export async function workerMemory(stage: Stage): Promise<Table> {
  const name = 'worker-memory'
  const program = await stage.fresh(name)
  const key = await stage.key(name)
  const { picture, mask } = sources()
  const bodies = [
    { path: 'generations', body: { kind: 'image', prompt: 'A lighthouse at dawn', size: '320x180' } },
    { path: 'operations', body: { operation: 'inpaint', media_url: picture, mask_url: mask, prompt: 'x' } },
  ]
  const megabytes = (): string => (program.rssBytes() / 1e6).toFixed(0)
  const rows: Table['rows'] = [['at the start', megabytes(), '']]
  for (let batch = 1; batch <= BATCHES; batch++) {
    const startMs = performance.now()
    for (let n = 0; n < BATCH; n += 2) await Promise.all(bodies.map((one) => completed(program, key, one)))
    const tookMs = performance.now() - startMs
    await pause(SETTLE_MS)
    rows.push([`after ${batch * BATCH} runs`, megabytes(), (tookMs / BATCH).toFixed(0)])
  }
  rows.push(['the peak', (program.peakRssBytes() / 1e6).toFixed(0), ''])
  await program.stop()
  return { title: 'Memory of one process over its runs: half pictures of 320 × 180, half inpaint in child processes', head: ['', 'resident, MB', 'milliseconds a run'], rows }
}

async function completed({ url }: Process, key: string, { path, body }: { path: string; body: object }): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', prefer: 'wait=60' }
  const response = await fetch(`${url}/api/v1/${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
  const { status, error } = (await response.json()) as { status: string; error: unknown }
  if (status !== 'completed') throw new Error(`a run ended as ${status}: ${JSON.stringify(error)}`)
}
