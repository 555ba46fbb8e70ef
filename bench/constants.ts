/** `node bench/constants.ts`: calls of the store per chat request, per task and of an idle process, counted by the program's own metrics, and bytes of the store per task (`docs/scaling.md`). Counts, not times. */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { each } from './load.ts'
import type { Process } from './processes.ts'
import { chatBytes } from './requests.ts'
import { openStage, type Stage } from './stage.ts'
import { markdown, type Table } from './table.ts'
import { complete } from './tasks.ts'

const CHATS = 300
const TASKS = 300
/** The first requests with a key read it. */
const WARM_TASKS = 128
const IDLE_MS = 60_000

type Calls = Map<string, number>

/** Calls of the store so far, by verb. */
async function calls({ opsUrl }: Process): Promise<Calls> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text()
  const counts: Calls = new Map()
  for (const [, verb = '', count] of text.matchAll(/^tollgate_store_duration_seconds_count\{.*?verb="(\w+)".*?\} (\d+)/gm)) counts.set(verb, (counts.get(verb) ?? 0) + Number(count))
  return counts
}

/** Calls during some work, less those that an idle process makes in the same time. */
async function during(program: Process, idlePerMs: Calls, work: () => Promise<unknown>): Promise<Calls> {
  const [before, startedMs] = [await calls(program), performance.now()]
  await work()
  const [after, tookMs] = [await calls(program), performance.now() - startedMs]
  return new Map([...after].map(([verb, count]) => [verb, count - (before.get(verb) ?? 0) - (idlePerMs.get(verb) ?? 0) * tookMs]))
}

function table(title: string, unit: string, counts: Calls, divisor: number): Table {
  const rows = [...counts].map(([verb, count]): [string, number] => [verb, count / divisor]).filter(([, each]) => each >= 0.02).sort((a, b) => b[1] - a[1])
  const sum = rows.reduce((total, [, each]) => total + each, 0)
  return { title, head: ['verb of the store', unit], rows: [...rows, ['together', sum] as [string, number]].map(([verb, each]) => [verb, each.toFixed(2)]) }
}

async function idleCalls(program: Process): Promise<Calls> {
  await pause(5_000)
  const counts = await during(program, new Map(), () => pause(IDLE_MS))
  return new Map([...counts].map(([verb, count]) => [verb, count / IDLE_MS]))
}

async function measure(stage: Stage): Promise<Table[]> {
  const model = await stage.model()
  const [coder, studio] = [await stage.tollgate('coder', model), await stage.studio('studio', 1, '20')]
  const [coding, media] = [await stage.key('coder'), await stage.key('studio')]
  const [idleCoder, idleStudio] = await Promise.all([idleCalls(coder), idleCalls(studio)])
  // One connection: concurrent changes of a plan share their writes.
  const chats = await during(coder, idleCoder, () => each(coder.url, Array.from({ length: CHATS }, () => chatBytes(coding, { stream: false })), { status: 200, end: '}' }, 1))
  await complete(studio.url, [media], WARM_TASKS, 0)
  const tasks = await during(studio, idleStudio, () => complete(studio.url, [media], TASKS, WARM_TASKS))
  // Each question for the end reads the key and the record.
  tasks.set('subscription', (tasks.get('subscription') ?? 0) - (tasks.get('findKey') ?? 0)).delete('findKey')
  await studio.stop()
  const bytes = statSync(join(stage.folder, 'studio/data/tollgate.db')).size
  await coder.stop()
  const empty = statSync(join(stage.folder, 'coder/data/tollgate.db')).size
  return [
    table('An idle process of all roles', 'calls a second', new Map([...idleStudio].map(([verb, perMs]) => [verb, perMs * 1000])), 1),
    table('A chat request, one at a time', 'calls', chats, CHATS),
    { ...table('A media task, 128 clients, no webhook', 'calls', tasks, TASKS), note: `A finished task with its event takes ${((bytes - empty) / (WARM_TASKS + TASKS)).toFixed(0)} bytes of an SQLite store, indexes included.` },
  ]
}

const stage = await openStage({ logLevel: 'warn', pin: false })
try {
  for (const one of await measure(stage)) process.stdout.write(`${markdown(one)}\n`)
} finally {
  await stage.close()
}
