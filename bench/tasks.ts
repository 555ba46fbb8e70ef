/** Throughput of media tasks with a no-op engine: create over HTTP → hold → claim → run → file → settle → completed. */
import { setTimeout as pause } from 'node:timers/promises'
import { each } from './load.ts'
import { imageBytes } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

export const TASKS = 1000
export const WARM_TASKS = 1000
/** The young generation grows in the first seconds of a full load (`bin/v8.mjs`): what is measured comes after that. */
const SUSTAINED = { warm: 6000, measured: 3000 }
const SHORT = { warm: WARM_TASKS, measured: TASKS }
/** Concurrent writes share store commands: fewer clients and slots need more commands per task. */
export const CONNECTIONS = 128
const POLL_MS = 25
const LONGEST_MS = 120_000
/** The default, one run per core, fits engines that use a core each; for remote engines a worker only waits. */
export const SLOTS = '200'
const SHAPES = [
  { subscriptions: 1, slots: 'cores', ...SHORT },
  { subscriptions: 1, slots: SLOTS, ...SUSTAINED },
  { subscriptions: 20, slots: 'cores', ...SHORT },
  { subscriptions: 20, slots: SLOTS, ...SUSTAINED },
]

/** Each round starts a new process on an empty store. The time runs from the first request to the last task's completion. */
export async function tasks(stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const rates = SHAPES.map(() => [] as number[])
  const accepted = SHAPES.map(() => [] as number[])
  for (let round = 0; round < rounds; round++) {
    for (const [n, { subscriptions, slots, warm, measured }] of SHAPES.entries()) {
      const name = `tasks-${round}-${n}`
      const studio = await stage.studio(name, subscriptions, slots)
      const keys = await Promise.all(Array.from({ length: subscriptions }, (_, index) => stage.key(name, index)))
      await complete(studio.url, keys, warm, 0)
      const { acceptedMs, completedMs } = await complete(studio.url, keys, measured, warm)
      accepted[n]?.push((measured * 1000) / acceptedMs)
      rates[n]?.push((measured * 1000) / completedMs)
      await studio.stop()
    }
  }
  return {
    title: `Media tasks with a no-op engine (${CONNECTIONS} clients; with ${SLOTS} slots ${SUSTAINED.measured} tasks after ${SUSTAINED.warm}, otherwise ${TASKS} after ${WARM_TASKS})`,
    head: ['subscriptions', 'WORKER_SLOTS', 'completed', 'by round', 'accepted'],
    rows: SHAPES.map(({ subscriptions, slots }, n) => [subscriptions, slots, `${median(rates[n] ?? []).toFixed(0)}/s`, spread(rates[n] ?? []), `${median(accepted[n] ?? []).toFixed(0)}/s`]),
  }
}

/** Creates `count` tasks, spread over the keys, and waits until they and the `before` earlier ones are completed. */
export async function complete(url: string, keys: string[], count: number, before: number): Promise<{ acceptedMs: number; completedMs: number }> {
  const requests = Array.from({ length: count }, (_, n) => imageBytes(keys[n % keys.length] ?? ''))
  const begunMs = performance.now()
  await each(url, requests, { status: 202, end: '}' }, CONNECTIONS)
  const acceptedMs = performance.now() - begunMs
  // One key after the other: polling costs the measured process time.
  for (const key of keys) {
    while ((await completed(url, key)) < (before + count) / keys.length) {
      if (performance.now() - begunMs > LONGEST_MS) throw new Error('tasks were not completed in two minutes')
      await pause(POLL_MS)
    }
  }
  return { acceptedMs, completedMs: performance.now() - begunMs }
}

async function completed(url: string, key: string): Promise<number> {
  const response = await fetch(`${url}/api/v1/usage`, { headers: { authorization: `Bearer ${key}` } })
  const usage = (await response.json()) as { by: { count: number }[] }
  return usage.by.reduce((sum, { count }) => sum + count, 0)
}
