/** Memory of an idle stream: an agent's stream is silent for most of its life. */
import { setTimeout as pause } from 'node:timers/promises'
import { openStreams } from './load.ts'
import type { Process } from './processes.ts'
import { chatBytes, IDLE } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

const STREAMS = 500
/** Opened and closed before, so that code is loaded and buffers are allocated. */
const WARM_STREAMS = 100
const SETTLE_MS = 3000

/** Each round starts new processes, since a process seldom returns memory. */
export async function idle(stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const model = await stage.model()
  const bytes = { bare: [] as number[], tollgate: [] as number[] }
  for (let round = 0; round < rounds; round++) {
    bytes.bare.push(await bytesPerStream(await stage.passthrough(model), 'none'))
    const name = `idle-${round}`
    bytes.tollgate.push(await bytesPerStream(await stage.tollgate(name, model), await stage.key(name)))
  }
  await model.stop()
  const kib = (values: number[]): string[] => [(median(values) / 1024).toFixed(1), spread(values.map((value) => value / 1024), 1)]
  return {
    title: `Memory of an idle stream (resident, ${STREAMS} open)`,
    head: ['', 'KiB per stream', 'by round'],
    rows: [['pass-through', ...kib(bytes.bare)], ['Tollgate', ...kib(bytes.tollgate)]],
  }
}

async function bytesPerStream(process: Process, key: string): Promise<number> {
  const target = { url: process.url, bytes: chatBytes(key, { stream: true, mark: IDLE }) }
  const closeWarm = await openStreams(target, WARM_STREAMS)
  closeWarm()
  await pause(SETTLE_MS)
  const before = process.rssBytes()
  const close = await openStreams(target, STREAMS)
  await pause(SETTLE_MS)
  const after = process.rssBytes()
  close()
  await process.stop()
  return (after - before) / STREAMS
}
