/**
 * Chaos test: load on both products while processes and servers of the program are killed and frozen, and the invariants that must hold afterwards. Run it by
 * `npm run chaos -- [--kills N] [--minutes N] [--side embedded|distributed|kubernetes] [--seed N]`; the kubernetes side is in `test/plugins/operator-chaos.ts`.
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
import { readUsageTopic } from './usage-topic.ts'
import { answer, at, chat, get, post, type Caller } from './calls.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { REPOSITORY } from './program.ts'
import { openDistributed, openEmbedded, type OpenSystem, type System, type Target } from './systems.ts'

/** Times short enough that leases expire and deliveries are retried during a run. */
const ENV = { USAGE_DAYS: '30', EGRESS_ALLOW: '127.0.0.1/32', TASK_LEASE_SECONDS: '2', WEBHOOK_DELAYS_SECONDS: '0,0.5,1,2,4,8', WORKER_SLOTS: '4' }
const CREATORS = 4
const CREATE_PAUSE_MS = 100
/** Without it, clients and processes on the same cores only make each other wait. */
const CODE_PAUSE_MS = 100
const CODERS = 4
/** Confirmed orders and chats between two faults, so that a slow machine is under load too. */
const CALLS_BETWEEN = 10
/** Of a freeze. The longest ones outlast the lease of a task, Kafka's request timeout and its clients' sessions. */
const FREEZE_MS = { shortest: 500, longest: 7_500 }

export type Report = {
  /** SIGKILLs. As many freezes (SIGSTOP, later SIGCONT) alternate with them. */
  kills: number
  /** Accepted tasks (202 or 200), and how they ended. */
  accepted: number
  ended: Record<string, number>
  /** Chat requests with a 200. */
  answered: number
  /** Received webhook requests, at least one per task. */
  deliveries: number
  seconds: number
  /** Number of kills and of freezes by process or server. */
  struck: Record<string, number>
  /** Each failed task: its error, its attempts, and the log lines about it. */
  failures: { code: unknown; attempts: unknown; log: string[] }[]
  /** Violated invariants, in sentences. */
  faults: string[]
  /** The last line of `tollgate verify`. */
  verified: string
}

type Options = { open: OpenSystem; kills: number; /** After this time no further fault begins. */ lastsMs?: number; random: () => number; tell?: (line: string) => void }

/** Kills and freezes `kills` times each under load, at times drawn by `random` (0 up to 1), and then compares the answers that clients got with the state. */
export async function chaos({ open, kills, lastsMs = Infinity, random, tell = () => {} }: Options): Promise<Report> {
  const since = performance.now()
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-chaos-'))
  const receiver = await openReceiver(null)
  // Reservations of a killed gateway are charged at their estimate: no window may be full before the end.
  const coder = codingPlan('coder', { requestsPerMinute: 1_000_000 }, { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 }, weights: { input: 1000, cachedInput: 1000, output: 1000 } })
  await declare(folder, 'plans', mediaPlan('studio', { requestsPerMinute: 1_000_000 }), apiKey('media', 'studio'), coder, apiKey('coding', 'coder'))
  const system: System = await open({ folder, env: ENV, random })
  const keys = { media: await system.key('media'), coding: await system.key('coding') }
  const confirmed = { accepted: new Set<string>(), answered: 0, billed: 0 }
  const counts: Record<string, number> = {}
  let orders = 0
  let isOver = false
  let isClosed = false

  /** The id of the task of an order; null if no gateway confirmed it. */
  async function accept(order: number): Promise<string | null> {
    const program = system.program()
    if (!program) return null
    const body = { kind: 'image', prompt: `order ${order}`, size: '32x32', webhook_url: `${receiver.url}/hook` }
    const sent = await answer(await post(program, keys.media, '/api/v1/generations', body, undefined, { 'idempotency-key': `order-${order}` }))
    return sent.status === 202 || sent.status === 200 ? String(at(sent.body, 'id')) : null
  }

  /** Repeats each order until it is confirmed, as a client does: one order is one task, however often it was sent. */
  async function create(): Promise<void> {
    while (!isOver) {
      const order = orders++
      let id: string | null = null
      while (id === null && !isClosed) id = (await accept(order).catch(() => null)) ?? (await pause(20, null))
      if (id !== null) confirmed.accepted.add(id)
      // No faster than tasks are run, to keep the queue short at the end.
      await pause(CREATE_PAUSE_MS)
    }
  }

  /** A chat without an answer promises nothing. */
  async function code(): Promise<void> {
    while (!isOver) {
      const program = system.program()
      const seen = program && (await chat(program, keys.coding).catch(() => null))
      if (seen?.status === 200) {
        confirmed.answered++
        confirmed.billed += Number(at(seen.body, 'usage', 'total_tokens'))
      }
      await pause(CODE_PAUSE_MS)
    }
  }
  const loads = [...Array.from({ length: CREATORS }, create), ...Array.from({ length: CODERS }, code)]
  const next = { kill: openDeck(system.targets, random), freeze: openDeck(system.targets, random) }

  try {
    let strike = 0
    for (; strike < 2 * kills && performance.now() - since < lastsMs; strike++) {
      const wanted = confirmed.accepted.size + confirmed.answered + CALLS_BETWEEN
      await pause(200 + random() * 1300)
      await restless('calls are confirmed', async () => confirmed.accepted.size + confirmed.answered, (calls) => calls >= wanted)
      const fault = strike % 2 === 0 ? 'kill' : 'freeze'
      const target = next[fault]()
      await (fault === 'kill' ? target.kill() : target.freeze(FREEZE_MS.shortest + random() * (FREEZE_MS.longest - FREEZE_MS.shortest)))
      const struck = `${fault} of ${target.name}`
      counts[struck] = (counts[struck] ?? 0) + 1
      tell(`${1 + (strike >> 1)}, ${struck}: ${confirmed.accepted.size} tasks accepted, ${confirmed.answered} chats answered`)
    }
    isOver = true
    await Promise.all(loads)
    const program = system.program()
    if (!program) throw new Error('no gateway serves after the last fault')
    const report = await judge(program)
    for (const exit of await system.stop()) report.faults.push(`a clean stop ended with ${exit}`)
    const verified = await run(folder, system.settings, ['verify'])
    if (verified.code !== 0) report.faults.push(`tollgate verify found violations:\n${verified.output}`)
    const seconds = Math.round((performance.now() - since) / 1000)
    return { kills: Math.ceil(strike / 2), struck: counts, ...report, verified: verified.output.trim().split('\n').at(-1) ?? '', seconds }
  } finally {
    isOver = isClosed = true
    await system.close()
    await receiver.close()
    await rm(folder, { recursive: true, force: true })
  }

  /** Each completed task and each token that was charged is in the usage records, and all of them arrive at Kafka. */
  async function judgeUsage(completed: string[], used: number, faults: string[]): Promise<void> {
    const { output } = await run(folder, system.settings, ['usage', 'export'])
    const charges = output.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as Charge)
    const ids = new Set(charges.map(({ id }) => id))
    if (ids.size !== charges.length) faults.push(`${charges.length} usage records have ${ids.size} ids`)
    const tasks = new Set(charges.flatMap(({ data }) => data.task ?? []))
    if (completed.length !== tasks.size || completed.some((id) => !tasks.has(id))) faults.push(`${completed.length} tasks were completed, and ${tasks.size} have usage records`)
    const tokens = charges.reduce((sum, { data }) => sum + (data.charged_tokens ?? 0), 0)
    if (tokens !== used) faults.push(`${used} tokens are charged, and usage records have ${tokens}`)
    const broker = system.settings['BROKER_URL'] ?? ''
    if (!broker.startsWith('kafka:')) return
    const topic = await readUsageTopic(broker)
    const unpublished = async () => [...ids].filter((id) => !topic.ids.has(id)).length
    await restless('usage records that are not published', unpublished, (left) => left === 0).catch((error: Error) => faults.push(error.message))
    if (topic.ids.size !== ids.size) faults.push(`${topic.ids.size} usage records were published, and ${ids.size} stored`)
    tell(`${topic.messages()} messages of ${ids.size} usage records`)
    await topic.close()
  }

  /** Waits until nothing is held any more and every task has ended, and compares the answers that clients got with the state. */
  async function judge(running: Caller): Promise<Omit<Report, 'kills' | 'struck' | 'verified' | 'seconds'>> {
    const faults: string[] = []
    const usage = async () => (await get(running, keys.media, '/api/v1/usage')).body
    await restless('held', async () => at(await usage(), 'held'), (held) => held === '0.0000').catch((error: Error) => faults.push(error.message))
    let tasks = new Map<string, unknown>()
    // A task ends in a write of its own after its money was settled.
    const open = async () => {
      tasks = new Map((await list(running, keys.media)).map((record) => [String(at(record, 'id')), record]))
      return [...confirmed.accepted].filter((id) => !ENDED.includes(String(at(tasks.get(id), 'status')))).length
    }
    await restless('tasks that have not ended', open, (left) => left === 0).catch((error: Error) => faults.push(error.message))
    // Reservations of a killed gateway are charged once another one, or the next life of this one, has found it dead.
    const coding = async () => (await get(running, keys.coding, '/v1/usage')).body
    await restless('reserved tokens', async () => at(await coding(), 'weekly', 'reserved'), (reserved) => reserved === 0).catch((error: Error) => faults.push(error.message))
    const used = Number(at(await coding(), 'weekly', 'used'))
    if (!(used >= confirmed.billed)) faults.push(`the model server billed ${confirmed.billed} tokens for answers that clients got, and ${used} are charged`)
    const burned = micro(at(await usage(), 'burned'))
    if (tasks.size !== orders) faults.push(`${orders} orders made ${tasks.size} tasks`)
    let charged = 0n
    for (const record of tasks.values()) if (at(record, 'status') === 'completed') charged += micro(at(record, 'actual_cost'))
    if (charged !== burned) faults.push(`completed tasks were charged ${charged} micro-units, and ${burned} burned`)
    const ended: Record<string, number> = {}
    const failures: Report['failures'] = []
    for (const id of confirmed.accepted) {
      const status = String(at(tasks.get(id), 'status'))
      ended[status] = (ended[status] ?? 0) + 1
      if (status === 'failed') failures.push({ code: at(tasks.get(id), 'error', 'code'), attempts: at(tasks.get(id), 'attempts'), log: system.logOf(id) })
      if (!ENDED.includes(status)) faults.push(`task ${id} was accepted and is ${status}`)
    }
    await judgeUsage([...tasks].flatMap(([id, record]) => (at(record, 'status') === 'completed' ? [id] : [])), used, faults)
    const undelivered = () => {
      const delivered = new Set(receiver.received.map(({ rawBody }) => String(at(JSON.parse(String(rawBody)), 'data', 'task_id'))))
      return [...confirmed.accepted].filter((id) => !delivered.has(id))
    }
    await restless('tasks without an event', async () => undelivered().length, (left) => left === 0).catch((error: Error) => faults.push(error.message))
    return { accepted: confirmed.accepted.size, ended, answered: confirmed.answered, deliveries: receiver.received.length, failures, faults }
  }
}

const ENDED = ['completed', 'failed']

type Charge = { id: string; data: { task?: string; charged_tokens?: number } }

/** Draws every target once in a random order, and then begins again. */
function openDeck(targets: readonly Target[], random: () => number): () => Target {
  let left: Target[] = []
  return () => {
    if (left.length === 0) left = [...targets]
    const [drawn] = left.splice(Math.floor(random() * left.length), 1)
    if (!drawn) throw new Error('a system has at least one target')
    return drawn
  }
}

/** A sweep finds the claims of a killed worker after a minute, once another worker has taken over the sweep lease of 75 seconds. */
const PATIENCE_MS = 180_000

/** Polls until `isDone`. Rejects when nothing has changed for a long time. */
async function restless<T>(what: string, look: () => Promise<T>, isDone: (seen: T) => boolean): Promise<void> {
  for (let last: T | null = null, since = performance.now(); ; ) {
    const seen = await look()
    if (isDone(seen)) return
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

/** Runs a command of the operator. */
async function run(folder: string, settings: Record<string, string>, command: string[]): Promise<{ code: number; output: string }> {
  const child = spawn(process.execPath, [join(REPOSITORY, 'bin/tollgate.mjs'), ...command], { cwd: folder, env: { PATH: process.env['PATH'], DATA_DIR: join(folder, 'data'), USAGE_DAYS: ENV.USAGE_DAYS, ...settings }, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const [code] = (await once(child, 'close')) as [number]
  return { code, output }
}

if (import.meta.main) {
  const text = (by: string) => ({ type: 'string', default: by }) as const
  const { values } = parseArgs({ options: { kills: text('100'), minutes: text('Infinity'), side: text('embedded'), seed: text('1') } })
  const options = { kills: Number(values.kills), lastsMs: Number(values.minutes) * 60_000, random: seeded(Number(values.seed)), tell: (line: string) => console.log(line) }
  const open = { embedded: openEmbedded, distributed: openDistributed }[values.side]
  if (!open && values.side !== 'kubernetes') throw new Error(`--side is embedded, distributed or kubernetes, not ${values.side}`)
  const report = open ? await chaos({ open, ...options }) : await (await import('../plugins/operator-chaos.ts')).strikeKubernetes(options)
  console.dir(report, { depth: null, maxStringLength: 500 })
  process.exitCode = report.faults.length === 0 ? 0 : 1
}
