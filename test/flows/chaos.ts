/**
 * Chaos test: load on both products while processes and servers of the program are killed and restarted, and the invariants that must hold afterwards. Run it by
 * `npm run chaos -- [--kills N] [--side embedded|distributed|kubernetes] [--seed N]`; the kubernetes side is in `test/plugins/operator-chaos.ts`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { seeded } from '../contracts/store/acme.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { answer, at, chat, get, post, type Caller } from './calls.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { REPOSITORY } from './program.ts'
import { openDistributed, openEmbedded, type OpenSystem, type System } from './systems.ts'

/** Times short enough that leases expire and deliveries are retried during a run. */
const ENV = { EGRESS_ALLOW: '127.0.0.1/32', TASK_LEASE_SECONDS: '2', WEBHOOK_DELAYS_SECONDS: '0,0.5,1,2,4,8', WORKER_SLOTS: '4' }
const CREATORS = 4
const CREATE_PAUSE_MS = 100
const CODERS = 4

export type Report = {
  kills: number
  /** Accepted tasks (202 or 200), and how they ended. */
  accepted: number
  ended: Record<string, number>
  /** Chat requests with a 200. */
  answered: number
  /** Received webhook requests, at least one per task. */
  deliveries: number
  seconds: number
  /** Number of kills by process or server. */
  struck: Record<string, number>
  /** Violated invariants, in sentences. */
  faults: string[]
  /** The last line of `tollgate verify`. */
  verified: string
}

type Options = { open: OpenSystem; kills: number; random: () => number; tell?: (line: string) => void }

/** Kills `kills` times under load at times drawn by `random` (0 up to 1), and then compares the answers that clients got with the state. */
export async function chaos({ open, kills, random, tell = () => {} }: Options): Promise<Report> {
  const since = performance.now()
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-chaos-'))
  const receiver = await openReceiver()
  // Reservations of a killed gateway are charged at their estimate: no window may be full before the end.
  const coder = codingPlan('coder', { requestsPerMinute: 1_000_000 }, { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 } })
  await declare(folder, 'plans', mediaPlan('studio', { requestsPerMinute: 1_000_000 }), apiKey('media', 'studio'), coder, apiKey('coding', 'coder'))
  const system: System = await open({ folder, env: ENV, random })
  const keys = { media: await system.key('media'), coding: await system.key('coding') }
  const confirmed = { accepted: new Set<string>(), answered: 0 }
  const counts: Record<string, number> = {}
  let isOver = false

  /** Repeats calls while a gateway serves; a call without an answer promises nothing. */
  async function load(call: (program: Caller) => Promise<void>): Promise<void> {
    while (!isOver) {
      const program = system.program()
      await (program ? call(program).catch(() => pause(20)) : pause(20))
    }
  }
  let orders = 0
  const create = async (running: Caller) => {
    const body = { kind: 'image', prompt: `order ${orders++}`, size: '32x32', webhook_url: `${receiver.url}/hook` }
    const { status, body: record } = await answer(await post(running, keys.media, '/api/v1/generations', body))
    if (status === 202) confirmed.accepted.add(String(at(record, 'id')))
    // No faster than tasks are run, to keep the queue short at the end.
    await pause(CREATE_PAUSE_MS)
  }
  const code = async (running: Caller) => {
    if ((await chat(running, keys.coding)).status === 200) confirmed.answered++
  }
  const loads = [...Array.from({ length: CREATORS }, () => load(create)), ...Array.from({ length: CODERS }, () => load(code))]

  try {
    for (let kill = 1; kill <= kills; kill++) {
      await pause(200 + random() * 1300)
      const struck = await system.strike()
      counts[struck] = (counts[struck] ?? 0) + 1
      tell(`kill ${kill}, ${struck}: ${confirmed.accepted.size} tasks accepted, ${confirmed.answered} chats answered`)
    }
    isOver = true
    await Promise.all(loads)
    const program = system.program()
    if (!program) throw new Error('no gateway serves after the last kill')
    const report = await judge(program)
    for (const exit of await system.stop()) report.faults.push(`a clean stop ended with ${exit}`)
    const verified = await verify(folder, system.settings)
    if (verified.code !== 0) report.faults.push(`tollgate verify found violations:\n${verified.output}`)
    const seconds = Math.round((performance.now() - since) / 1000)
    return { kills, struck: counts, ...report, verified: verified.output.trim().split('\n').at(-1) ?? '', seconds }
  } finally {
    isOver = true
    await system.close()
    await receiver.close()
    await rm(folder, { recursive: true, force: true })
  }

  /** Waits until nothing is held any more, and compares the answers that clients got with the state. */
  async function judge(running: Caller): Promise<Omit<Report, 'kills' | 'struck' | 'verified' | 'seconds'>> {
    const faults: string[] = []
    const usage = async () => (await get(running, keys.media, '/api/v1/usage')).body
    await restless('held', async () => at(await usage(), 'held'), '0.0000').catch((error: Error) => faults.push(error.message))
    const burned = micro(at(await usage(), 'burned'))
    // Tasks whose 202 was lost in a kill exist and are charged too: the charges are compared with all completed tasks.
    const tasks = new Map((await list(running, keys.media)).map((record) => [String(at(record, 'id')), record]))
    let charged = 0n
    for (const record of tasks.values()) if (at(record, 'status') === 'completed') charged += micro(at(record, 'actual_cost'))
    if (charged !== burned) faults.push(`completed tasks were charged ${charged} micro-units, and ${burned} burned`)
    const ended: Record<string, number> = {}
    for (const id of confirmed.accepted) {
      const status = String(at(tasks.get(id), 'status'))
      ended[status] = (ended[status] ?? 0) + 1
      if (status !== 'completed' && status !== 'failed') faults.push(`task ${id} was accepted and is ${status}`)
    }
    const undelivered = () => {
      const delivered = new Set(receiver.received.map(({ rawBody }) => String(at(JSON.parse(String(rawBody)), 'data', 'task_id'))))
      return [...confirmed.accepted].filter((id) => !delivered.has(id))
    }
    await restless('tasks without an event', async () => undelivered().length, 0).catch((error: Error) => faults.push(error.message))
    return { accepted: confirmed.accepted.size, ended, answered: confirmed.answered, deliveries: receiver.received.length, faults }
  }
}

/** A sweep finds the claims of a killed worker after a minute, once another worker has taken over the sweep lease of 75 seconds. */
const PATIENCE_MS = 180_000

/** Polls until `wanted` is seen. Rejects when nothing has changed for a long time. */
async function restless<T>(what: string, look: () => Promise<T>, wanted: T): Promise<void> {
  for (let last: T | null = null, since = performance.now(); ; ) {
    const seen = await look()
    if (seen === wanted) return
    if (seen !== last) since = performance.now()
    last = seen
    if (performance.now() - since > PATIENCE_MS) throw new Error(`${what}: ${String(seen)}, and it no longer changes`)
    await pause(50)
  }
}

function micro(amount: unknown): bigint {
  return BigInt(String(amount).replace(/\.(\d+)$/, (_, decimals: string) => decimals.padEnd(6, '0')))
}

async function list(program: Caller, key: string): Promise<unknown[]> {
  const found: unknown[] = []
  for (let cursor = ''; ; ) {
    const { body } = await get(program, key, `/api/v1/generations?limit=100${cursor && `&cursor=${cursor}`}`)
    found.push(...(at(body, 'data') as unknown[]))
    if (at(body, 'has_more') !== true) return found
    cursor = String(at(body, 'next_cursor'))
  }
}

async function verify(folder: string, settings: Record<string, string>): Promise<{ code: number; output: string }> {
  const child = spawn(process.execPath, [join(REPOSITORY, 'bin/tollgate.mjs'), 'verify'], { cwd: folder, env: { PATH: process.env['PATH'], DATA_DIR: join(folder, 'data'), ...settings }, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const [code] = (await once(child, 'close')) as [number]
  return { code, output }
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { kills: { type: 'string', default: '100' }, side: { type: 'string', default: 'embedded' }, seed: { type: 'string', default: '1' } } })
  const options = { kills: Number(values.kills), random: seeded(Number(values.seed)), tell: (line: string) => console.log(line) }
  const open = { embedded: openEmbedded, distributed: openDistributed }[values.side]
  if (!open && values.side !== 'kubernetes') throw new Error(`--side is embedded, distributed or kubernetes, not ${values.side}`)
  const report = open ? await chaos({ open, ...options }) : await (await import('../plugins/operator-chaos.ts')).strikeKubernetes(options)
  console.log(report)
  process.exitCode = report.faults.length === 0 ? 0 : 1
}
