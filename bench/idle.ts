/** Memory of an idle stream: an agent's stream is silent for most of its life. */
import { setTimeout as pause } from 'node:timers/promises'
import { openStreams } from './load.ts'
import type { Process } from './processes.ts'
import { chatBytes, IDLE } from './requests.ts'
import type { Choice, Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

const STREAMS = 500
/** Opened and closed before, so that code is loaded and buffers are allocated. */
const WARM_STREAMS = 100
const SETTLE_MS = 3000

type Waves = [first: number, second: number]

/** Each round starts new processes, since a process seldom returns memory. */
export async function idle(stage: Stage, { rounds, against }: Pick<Choice, 'rounds' | 'against'>): Promise<Table> {
  const model = await stage.model()
  const bytes = { bare: [] as Waves[], tollgate: [] as Waves[], other: [] as Waves[] }
  const tollgate = async (name: string, root: string | null): Promise<Waves> => bytesPerStream(await stage.tollgate(name, model, { root }), await stage.key(name))
  for (let round = 0; round < rounds; round++) {
    bytes.bare.push(await bytesPerStream(await stage.passthrough(model), 'none'))
    bytes.tollgate.push(await tollgate(`idle-${round}`, null))
    if (against !== null) bytes.other.push(await tollgate(`idle-other-${round}`, against))
  }
  await model.stop()
  const kib = (waves: Waves[]): string[] =>
    ([0, 1] as const).flatMap((wave) => {
      const values = waves.map((one) => one[wave] / 1024)
      return [median(values).toFixed(1), spread(values, 1)]
    })
  return {
    title: `Memory of an idle stream (resident, ${STREAMS} open)`,
    head: ['', 'KiB per stream, first wave', 'by round', 'second wave', 'by round'],
    rows: [['pass-through', ...kib(bytes.bare)], ['Tollgate', ...kib(bytes.tollgate)], ...(against === null ? [] : [['Tollgate of the other checkout', ...kib(bytes.other)]])],
  }
}

/** What the process has grown by since before the first wave, per stream: with all streams open, and with as many open again after those were closed. */
async function bytesPerStream(process: Process, key: string): Promise<Waves> {
  const target = { url: process.url, bytes: chatBytes(key, { stream: true, mark: IDLE }) }
  const closeWarm = await openStreams(target, WARM_STREAMS)
  closeWarm()
  await pause(SETTLE_MS)
  const before = process.rssBytes()
  const wave = async (): Promise<number> => {
    const close = await openStreams(target, STREAMS)
    await pause(SETTLE_MS)
    const after = process.rssBytes()
    close()
    await pause(SETTLE_MS)
    return (after - before) / STREAMS
  }
  const waves: Waves = [await wave(), await wave()]
  await process.stop()
  return waves
}
