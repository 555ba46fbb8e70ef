/**
 * What one tenant's queue costs by its length: hold, claim and close of tasks over the SQLite store, and reads of the record. Processor time of the thread, so that other
 * programs on the machine do not count; the shortest queue is the baseline.
 */
import { join } from 'node:path'
import { openStore, type Store } from '../src/backends/store/store.ts'
import type { Command } from '../src/domain/subscription/commands.ts'
import type { Stage } from './stage.ts'
import { median } from './statistics.ts'
import type { Table } from './table.ts'
import { threadUs, watchTurns } from './turns.ts'

const LENGTHS = [10, 1000, 10_000]
const ID = 'bench/queue'
/** Tasks that are held, claimed and closed at once, so that they share writes: the slots of the bench of tasks. */
const TASKS = 100
const BATCHES = 10

type Measured = { taskUs: number; readUs: number; longestMs: number }

export async function queue(stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const measured = LENGTHS.map((): Measured[] => [])
  for (let round = 0; round < rounds; round++) {
    for (const [n, length] of LENGTHS.entries()) measured[n]?.push(await measure(join(stage.folder, `queue-${round}-${length}.db`), length))
  }
  const middle = (n: number, of: keyof Measured) => median((measured[n] ?? []).map((one) => one[of]))
  return {
    title: `One tenant's queue over SQLite (${TASKS} tasks at once; processor time of the event loop's thread)`,
    head: ['queued tasks', 'hold, claim and close of a task', 'relative to the shortest', 'read of the record', 'longest time without a turn of the event loop'],
    rows: LENGTHS.map((length, n) => [
      length.toLocaleString('en'),
      `${middle(n, 'taskUs').toFixed(0)} µs`,
      (middle(n, 'taskUs') / middle(0, 'taskUs')).toFixed(2),
      `${middle(n, 'readUs').toFixed(0)} µs`,
      `${middle(n, 'longestMs').toFixed(1)} ms`,
    ]),
  }
}

async function measure(file: string, length: number): Promise<Measured> {
  const store = await openStore(`sqlite:${file}`)
  try {
    await store.change(ID, plan(), 0)
    let created = 0
    const hold = () => store.change(ID, { op: 'hold', task: idOf(created++), kind: 'image', amount: 1, keyId: 'key', keyCap: null, keysVersion: 1 }, 1)
    while (created < length) await Promise.all(Array.from({ length: Math.min(TASKS, length - created) }, hold))
    const run = async (n: number) => {
      const claim = await store.change(ID, { op: 'claim', claim: String(n), kinds: ['image'] }, 1)
      if (claim.outcome === 'claimed') await store.change(ID, { op: 'close', task: claim.task, actual: 1, epoch: claim.epoch }, 1)
    }
    const batch = () => Promise.all(Array.from({ length: TASKS }, () => [hold(), run(created)]).flat())
    await batch()
    const turns = watchTurns()
    const taskUs = await cpuUs(async () => {
      for (let n = 0; n < BATCHES; n++) await batch()
    })
    const longestMs = turns.longest()
    turns.stop()
    return { taskUs: taskUs / (BATCHES * TASKS), readUs: await readUs(store), longestMs }
  } finally {
    await store.close()
  }
}

async function readUs(store: Store): Promise<number> {
  return (await cpuUs(async () => {
    for (let n = 0; n < TASKS; n++) await store.subscription(ID)
  })) / TASKS
}

async function cpuUs(work: () => Promise<void>): Promise<number> {
  const before = threadUs()
  await work()
  return threadUs() - before
}

function idOf(n: number): string {
  return `01900000-0000-7000-8000-${String(n).padStart(12, '0')}`
}

function plan(): Extract<Command, { op: 'applyPlan' }> {
  const media = { allowance: 1e12, period: { unit: 'days', count: 30 } as const, maxConcurrentTasks: 100, maxQueuedTasks: 20_000, attempts: 1, prices: [] }
  const terms = { displayName: 'Bench', requestsPerMinute: 1e9, maxKeys: 5, rotationOverlapMs: 0, media, coding: null }
  return { op: 'applyPlan', plan: { uid: 'bench', createdAt: 0, generation: 1 }, product: 'Media', terms, state: 'Active', activeFrom: null, activeUntil: null, verdict: null }
}
