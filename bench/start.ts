/** Time from process start to ready, and memory of an idle process. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

const IDLE_MS = 10_000

/** Each round starts the pass-through, Tollgate in an empty folder, and Tollgate again in the same folder. In the last round, memory is read after ten idle seconds. */
export async function startUp(stage: Stage, { rounds }: { rounds: number }): Promise<Table[]> {
  const model = await stage.model()
  const sides = {
    'pass-through': () => stage.passthrough(model),
    'Tollgate, first start': (round: number) => stage.tollgate(`start-${round}`, model),
    'Tollgate, later start': (round: number) => stage.tollgate(`start-${round}`, model),
  }
  const readyMs = new Map<string, number[]>()
  const rss = new Map<string, number>()
  for (let round = 0; round < rounds; round++) {
    for (const [name, start] of Object.entries(sides)) {
      const process = await start(round)
      readyMs.set(name, [...(readyMs.get(name) ?? []), process.readyMs])
      if (round === rounds - 1) {
        await pause(IDLE_MS)
        rss.set(name, process.rssBytes())
      }
      await process.stop()
    }
  }
  await model.stop()
  return [
    {
      title: 'Start to ready (the first 200 of /readyz)',
      head: ['', 'milliseconds', 'by round'],
      rows: [...readyMs].map(([name, all]) => [name, median(all).toFixed(0), spread(all)]),
    },
    { title: `Resident memory ${IDLE_MS / 1000} s after the start`, head: ['', 'MB'], rows: [...rss].map(([name, bytes]) => [name, (bytes / 1e6).toFixed(0)]) },
  ]
}
