/** How long the event loop of the running program stands still beside a long queue of one tenant: longest processor time between two turns. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { openStore, type Store } from '../src/backends/store/store.ts'
import { finishedTask, idAt } from './finished-tasks.ts'
import { tenant } from './manifests.ts'
import type { Stage } from './stage.ts'
import type { Table } from './table.ts'

const LENGTHS = [10, 9_500]
const SLOTS = '8'
const BATCH = 500
const CREATED = 300
const CREATION = JSON.stringify({ kind: 'image', prompt: 'A lighthouse at dawn' })
const READS = 60
const CLIENTS = 32
/** Longer than the period of the sweeps of subscriptions. */
const SWEEPS_MS = 16_000
const PLUGIN = join(import.meta.dirname, 'turns-plugin.ts')

export async function standstill(stage: Stage): Promise<Table> {
  const rows: Table['rows'] = []
  for (const length of LENGTHS) rows.push([length.toLocaleString('en'), ...(await measure(stage, length)).map((ms) => `${ms.toFixed(1)} ms`)])
  return {
    title: 'Longest time without a turn of the event loop in the program, beside the queue of one tenant (SQLite; processor time)',
    head: ['queued tasks', 'first two seconds', 'creation', 'reads and lists', 'sweeps'],
    rows,
  }
}

/** The milliseconds of each phase. Tasks are run in all of them. */
async function measure(stage: Stage, length: number): Promise<number[]> {
  const name = `standstill-${length}`
  const empty = await stage.studio(name, 1, SLOTS)
  const key = await stage.key(name)
  await empty.stop()
  await fill(join(stage.folder, name, 'data/tollgate.db'), length)
  const program = await stage.studio(name, 1, SLOTS, [], PLUGIN)
  const get = async (path: string) => (await (await fetch(`${program.url}${path}`, { headers: { authorization: `Bearer ${key}` } })).json()) as { longestMs: number; data?: { id: string }[] }
  const phase = async (work: () => Promise<unknown>): Promise<number> => {
    await work()
    return (await get('/bench/turns')).longestMs
  }
  const read = async () => {
    for (let n = 0; n < READS; n++) {
      const { data = [] } = await get('/api/v1/generations?status=queued&limit=100')
      await get(`/api/v1/generations/${data[n % data.length]?.id}`)
      await get('/api/v1/usage')
    }
  }
  // Of the start.
  await get('/bench/turns')
  let left = CREATED
  const create = async () => {
    // On a busy machine a creation may be answered 503; it counts as well.
    while (left-- > 0) await (await fetch(`${program.url}/api/v1/generations`, { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' }, body: CREATION })).text()
  }
  const longest = [
    await phase(() => pause(2_000)),
    await phase(() => Promise.all(Array.from({ length: CLIENTS }, create))),
    await phase(read),
    await phase(() => pause(SWEEPS_MS)),
  ]
  await program.stop()
  return longest
}

/** Queues so many tasks of the tenant, as the program does. */
async function fill(file: string, length: number): Promise<void> {
  const store = await openStore(`sqlite:${file}`)
  const owner = tenant(0)
  const facts = { keyId: randomUUID(), keysVersion: (await store.subscription(`${owner}/plan`))?.keysVersion ?? 0 }
  for (let from = 0; from < length; from += BATCH) await Promise.all(Array.from({ length: Math.min(BATCH, length - from) }, () => queue(store, owner, facts)))
  await store.close()
}

async function queue(store: Store, owner: string, { keyId, keysVersion }: { keyId: string; keysVersion: number }): Promise<void> {
  const now = Date.now()
  const { id, subscription, kind, estimatedCost, ...task } = finishedTask(idAt(now), owner)
  const facts = { state: 'queued', epoch: 0, progress: 0, attempts: 0, outcome: null, actualCost: null, refundAmount: null, startedAt: null, endedAt: null, sweepAt: now + 600_000 } as const
  await store.createTask({ ...task, id, subscription, keyId, kind, estimatedCost, ...facts })
  const held = await store.change(subscription, { op: 'hold', task: id, kind, amount: estimatedCost, keyId, keyCap: null, keysVersion }, now)
  if (held.outcome !== 'held') throw new Error(`a task of the queue was answered ${held.outcome}`)
}
