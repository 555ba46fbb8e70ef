/** Measurements of the operator benchmark: issuing, changes, suspension, restart, failover. */
import { setTimeout as pause } from 'node:timers/promises'
import { openConnection } from '../connection.ts'
import type { Process } from '../processes.ts'
import { chatBytes } from '../requests.ts'
import { percentile } from '../statistics.ts'
import { KEYS_OF_A_PLAN, type Field } from './field.ts'
import { figuresOf, settled, type Programs } from './programs.ts'

/** Name of each figure → its formatted value. */
export type Figures = Map<string, string>

const EDITS = 300
const ISSUED = 100
const SUSPENDED = 50
const FAILOVERS = 3
const CALM_MS = 3_000

const both = (ms: number[]) => `${percentile(ms, 0.5).toFixed(1)} / ${percentile(ms, 0.99).toFixed(1)} ms`
const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`

/** Declares `count` keys while the controller runs; measures the time until all are Ready, and the controller's memory. */
export async function issuing(field: Field, controller: Process, count: number): Promise<Figures> {
  const sinceMs = performance.now()
  const cpuMs = controller.cpuMs()
  const created = field.declareKeys()
  const readyAt = await field.until(`${count} keys`, () => field.ready() >= count)
  const tookMs = readyAt - sinceMs
  const figures: Figures = new Map([
    ['declaring all keys', seconds(await created)],
    ['all keys Ready, from the first request', seconds(tookMs)],
    ['processor time of the controller for that', seconds(controller.cpuMs() - cpuMs)],
  ])
  const { writes } = await figuresOf(controller).catch(() => ({ writes: {} }))
  if (Object.keys(writes).length > 0) figures.set('its writes per key', Object.entries(writes).map(([method, sent]) => `${method} ${(sent / count).toFixed(2)}`).join(', '))
  await pause(CALM_MS)
  return figures.set('memory of the controller 3 s later, and its peak', `${(controller.rssBytes() / 1e6).toFixed(0)} / ${(controller.peakRssBytes() / 1e6).toFixed(0)} MB`)
}

/** One change after another; all other keys stay unchanged. */
export async function changing(field: Field, count: number): Promise<Figures> {
  const edits: number[] = []
  for (let n = 0; n < EDITS; n++) edits.push(await field.edit((n * 7919) % count, { limit: { weeklyTokens: 1_000_000 + n } }))
  const issued: number[] = []
  for (let n = 0; n < ISSUED; n++) issued.push(await field.issue(count + n))
  return new Map([[`a key is edited → Ready (${EDITS} times, p50 / p99)`, both(edits)], [`a key is declared → Ready (${ISSUED} times, p50 / p99)`, both(issued)]])
}

/** Suspends plans of a hundred keys each, while a client repeats requests with one of their keys. */
export async function suspending(field: Field, gateway: string): Promise<Figures> {
  const refused: number[] = []
  const closed: number[] = []
  const connection = await openConnection(gateway)
  for (let n = field.plans - 1; n >= Math.max(1, field.plans - SUSPENDED); n--) {
    const bytes = chatBytes(await field.secret(n * KEYS_OF_A_PLAN), { stream: false })
    if ((await connection.ask(bytes)).status !== 200) throw new Error(`a key of plan-${n} is not served`)
    const sinceMs = performance.now()
    const suspended = field.suspend(n)
    while ((await connection.ask(bytes)).status === 200) if (performance.now() - sinceMs > 60_000) throw new Error('a suspended plan is served')
    refused.push(performance.now() - sinceMs)
    await suspended
    closed.push((await field.until(`the keys of plan-${n} to be closed`, () => field.closed(n) >= KEYS_OF_A_PLAN)) - sinceMs)
  }
  connection.close()
  const times = `${refused.length} times, p50 / p99`
  return new Map([[`a plan is suspended → its keys are refused (${times})`, both(refused)], [`… → each of its ${KEYS_OF_A_PLAN} Secrets is removed, and every status shows it`, both(closed)]])
}

/** Stops the controller and starts it again with all resources declared. */
export async function restarting(field: Field, programs: Programs, controller: Process): Promise<{ controller: Process; figures: Figures }> {
  await controller.stop()
  const before = field.events()
  const sinceMs = performance.now()
  const next = await programs.controller()
  await settled(next)
  const tookMs = performance.now() - sinceMs
  const { writes } = await figuresOf(next)
  const { PUT = 0, ...others } = writes
  const wrote = Object.values(others).reduce((sum, count) => sum + count, 0)
  return { controller: next, figures: new Map([['restarted → the first full reconciliation is complete', seconds(tookMs)], ['writes until then: POST, PATCH and DELETE; PUT of the Lease, every 2 s', `${wrote}; ${PUT} PUT; ${field.events() - before} changes seen`], ['memory of the controller then', `${(next.rssBytes() / 1e6).toFixed(0)} MB`]]) }
}

/** Ends the leading controller while a standby runs; measures the time until a change under the new leader is Ready. */
export async function failing(field: Field, programs: Programs, controller: Process): Promise<Figures> {
  const figures: Figures = new Map()
  let leader = controller
  for (const how of ['SIGTERM', 'SIGKILL'] as const) {
    const taken: number[] = []
    for (let n = 0; n < FAILOVERS; n++) {
      const next = await programs.controller()
      await pause(CALM_MS)
      const sinceMs = performance.now()
      const ended = how === 'SIGTERM' ? leader.stop() : leader.kill()
      while (!(await figuresOf(next)).isLeading) await pause(10)
      // The last keys that were not suspended: the new leader reconciles the first ones soon in any case.
      const key = Math.max(field.plans - SUSPENDED, 1) * KEYS_OF_A_PLAN - 1 - n
      await field.edit(key, { limit: { weeklyTokens: 2_000_000 + performance.now() | 0 } })
      taken.push(performance.now() - sinceMs)
      await ended
      leader = next
    }
    figures.set(`the leader ends by ${how} → the standby has made a change Ready (the longest of ${FAILOVERS})`, seconds(Math.max(...taken)))
  }
  return figures
}
