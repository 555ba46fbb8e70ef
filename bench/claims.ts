/**
 * `node bench/claims.ts`: store commands on the claim side of a task, and the time until it is claimed, in virtual time: real claim loops, group commit and reducer of as many workers over
 * records in memory, where every command takes 3 ms. Two ways side by side: every message and every end of a run makes a query for due plans, with a tick of a second; and claims where
 * messages say, with a tick of 15 seconds. Deterministic; uses no server.
 */
import { conclude } from '../src/tasks/run-outcome.ts'
import { openClaims } from '../src/tasks/claims-in-progress.ts'
import { openClaimLoop } from '../plugins/worker/claim-loop.ts'
import { openRepublisher } from '../src/tasks/republish-ready.ts'
import { publishReady } from '../src/tasks/publish-ready.ts'
import { openChanges } from '../src/backends/store/group-commit.ts'
import type { Store } from '../src/backends/store/store.ts'
import type { Message } from '../src/domain/messages.ts'
import { heldTask } from '../src/domain/subscription/ready-tasks.ts'
import type { Subscription } from '../src/domain/subscription/subscription.ts'
import type { Task } from '../src/domain/task.ts'
import type { TaskContext } from '../src/tasks/task-context.ts'
import { hold, mediaPlan, seeded, T0, task } from '../test/contracts/store/acme.ts'
import { openVirtualTime, type VirtualTime } from './virtual-time.ts'
import { markdown, type Table } from './table.ts'

const LATENCY_MS = 3
const MESSAGE_MS = 5
const RUN_MS = 1_000
const TICK_MS = { query: 1_000, message: 15_000 }
const PATIENCE_MS = 250
const SLOTS = 4

type Way = 'query' | 'message'
type Case = { name: string; workers: number; plans: number; maxConcurrentTasks: number; /** When each task is created, milliseconds. */ at: number[] }

const every = (count: number, ms: number): number[] => Array.from({ length: count }, (_, n) => n * ms)
const CASES: Case[] = [
  { name: 'steady 60 tasks/s of 200 plans, 100 workers', workers: 100, plans: 200, maxConcurrentTasks: 4, at: every(1_800, 1000 / 60) },
  { name: '400 tasks of 200 plans at once, 200 workers', workers: 200, plans: 200, maxConcurrentTasks: 4, at: every(400, 0) },
  { name: '100 tasks at once of a plan that runs 4, 100 workers', workers: 100, plans: 1, maxConcurrentTasks: 4, at: every(100, 0) },
  { name: '100 tasks at once of a plan that runs 100, 100 workers', workers: 100, plans: 1, maxConcurrentTasks: 100, at: every(100, 0) },
  { name: '2,000 tasks of 200 plans at once, 1,000 workers', workers: 1_000, plans: 200, maxConcurrentTasks: 10, at: every(2_000, 0) },
]

/** Records and tasks in memory. `commands` counts those of the claim side. */
function openServer(time: VirtualTime) {
  const records = new Map<string, Subscription>()
  const tasks = new Map<string, Task>()
  const server = { tasks, commands: 0, open }

  async function command<T>(work: () => T, isCounted: boolean): Promise<T> {
    if (isCounted) server.commands++
    await time.sleep(LATENCY_MS / 2)
    const answer = work()
    await time.sleep(LATENCY_MS / 2)
    return answer
  }

  const due = (kinds: string[], now: number, limit: number): string[] =>
    [...records.values()]
      .filter(({ media }) => media?.due.some(({ kind, readyAt }) => kinds.includes(kind) && readyAt <= now))
      .sort((a, b) => (a.media?.lastServedAt ?? 0) - (b.media?.lastServedAt ?? 0))
      .slice(0, limit)
      .map(({ id }) => id)

  /** The store as one process has it. Commands of a gateway are not counted. */
  function open(isCounted = true): Store {
    const changes = openChanges(
      {
        unstored: () => [],
        read: (id, known) => command(() => (records.get(id)?.version === known ? 'unchanged' : (records.get(id) ?? null)), isCounted),
        replace: (record, expected) =>
          command(() => {
            if ((records.get(record.id)?.version ?? 0) !== expected) return 'conflict'
            records.set(record.id, record)
            return 'replaced'
          }, isCounted),
      },
      { clock: time.now, pause: time.sleep },
    )
    const store: Partial<Store> = {
      change: changes.change,
      subscription: (id) => command(() => records.get(id) ?? null, isCounted),
      subscriptionsDue: (kinds, now, limit) => command(() => due(kinds, now, limit), isCounted),
      task: (_tenant, id) => command(() => tasks.get(id) ?? null, isCounted),
      // The writes at the end of a task are the same in both ways, and not counted.
      moveTask: (id, { from, epochBelow = Infinity }, state, facts) =>
        command(() => {
          const before = tasks.get(id)
          if (!before || !from.includes(before.state) || before.epoch >= epochBelow) return null
          const after = { ...before, ...facts, state }
          tasks.set(id, after)
          return after
        }, state === 'processing'),
      relay: () => command(() => {}, false),
    }
    return store as Store
  }
  return server
}

type Simulated = { commands: number; p50: number; p99: number }

/** What the workers of one run share. */
type Run = { way: Way; time: VirtualTime; random: () => number; server: ReturnType<typeof openServer>; contextOf(store: Store): TaskContext; claimedMs: number[]; ended: number; isOver(): boolean }

async function simulate(way: Way, { workers, plans, maxConcurrentTasks, at }: Case): Promise<Simulated> {
  const time = openVirtualTime(T0)
  const random = seeded(1)
  const server = openServer(time)
  const consumers: ((message: Message) => void)[] = []
  let ids = 0
  const publish = (message: Message): void => {
    // A partition for each worker. Before, the key was the task.
    const key = way === 'message' ? message.key : String(message.task)
    const consumer = consumers[[...key].reduce((hash, letter) => (Math.imul(hash, 31) + letter.charCodeAt(0)) >>> 0, 7) % workers]
    void time.sleep(MESSAGE_MS).then(() => consumer?.(message))
  }
  const quiet = () => {}
  const log = { info: quiet, warn: quiet, error: quiet }
  const contextOf = (store: Store): TaskContext => ({ store, files: {} as TaskContext['files'], clock: time.now, uuid: () => `id-${ids++}`, random, publish, moved: quiet, link: () => '', linkedFile: () => null, resultMs: 1, log })
  const run: Run = { way, time, random, server, contextOf, claimedMs: [], ended: 0, isOver: () => run.ended === at.length }
  const gateway = contextOf(server.open(false))
  for (let n = 0; n < plans; n++) {
    const plan = mediaPlan({ maxConcurrentTasks, maxQueuedTasks: 10_000, allowance: 1e9 }, { plan: { uid: `plan-${n}`, createdAt: T0, generation: 1 } })
    await time.run(gateway.store.change(`acme/p${n}`, plan, T0))
  }
  for (let n = 0; n < workers; n++) consumers.push(openWorker(run))
  for (const [n, ms] of at.entries()) void time.sleep(1_000 + ms).then(() => create(run, gateway, n, `acme/p${n % plans}`))
  if (way === 'message') void sweep(run)
  await time.runUntil(run.isOver)
  const claimed = run.claimedMs.sort((a, b) => a - b)
  const share = (part: number) => Math.round(claimed[Math.floor(part * (claimed.length - 1))] ?? 0)
  return { commands: server.commands / at.length, p50: share(0.5), p99: share(0.99) }
}

async function create({ server, time }: Run, gateway: TaskContext, n: number, subscription: string): Promise<void> {
  const created = task(n, { subscription, state: 'queued', sweepAt: null, createdAt: time.now(), webhookUrl: null })
  server.tasks.set(created.id, created)
  const answer = await gateway.store.change(subscription, hold(created.id), time.now())
  if (answer.outcome !== 'held') throw new Error(`hold: ${answer.outcome}`)
  const ready = heldTask(answer.record, created.id)
  publishReady(gateway, subscription, ready ? [ready] : [])
}

async function sweep({ server, time, contextOf, isOver }: Run): Promise<void> {
  const republisher = openRepublisher(contextOf(server.open()), ['image'])
  while (!isOver()) {
    await republisher.pass(time.now())
    await time.sleep(1_000)
  }
}

/** Returns the consumer of its messages. */
function openWorker(run: Run): (message: Message) => void {
  const { way, time, random } = run
  const context = run.contextOf(run.server.open())
  const quiet = () => {}
  const waiting: Message[] = []
  let running = 0

  async function work(started: Task): Promise<void> {
    await time.sleep(RUN_MS)
    const result = { file: 'f', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: 0 }
    // Before, the end of a task published nothing.
    await conclude(way === 'message' ? context : { ...context, publish: quiet }, started, { outcome: 'made', cost: 0, result })
    run.ended++
    const wasFull = running-- === SLOTS
    if (way === 'query' || wasFull) loop.search()
    for (const message of waiting.splice(0)) void loop.received(message)
  }

  function start(started: Task): void {
    running++
    run.claimedMs.push(time.now() - started.createdAt)
    void work(started)
  }

  const loop = openClaimLoop({
    tasks: context, start, leaseMs: 60_000, claims: openClaims(),
    slots: { isFull: () => running >= SLOTS, hasRoom: () => true, claimable: () => ['image'], room: () => SLOTS - running },
    patience: () => time.sleep(PATIENCE_MS),
    later: (ms, then) => void time.sleep(ms).then(then),
    isStopping: () => false,
    counted: quiet,
  })

  async function tick(): Promise<void> {
    await time.sleep(random() * TICK_MS[way])
    while (!run.isOver()) {
      loop.search()
      await time.sleep(TICK_MS[way] * (way === 'query' ? 1 : 0.75 + random() / 2))
    }
  }
  void tick()

  return (message) => {
    if (way === 'query') loop.search()
    else if (loop.takes('image')) void loop.received(message)
    else waiting.push(message)
  }
}

const rows: Table['rows'] = []
for (const one of CASES) {
  const [before, after] = [await simulate('query', one), await simulate('message', one)]
  rows.push([one.name, before.commands.toFixed(1), after.commands.toFixed(1), `${before.p50} / ${before.p99} ms`, `${after.p50} / ${after.p99} ms`])
}
process.stdout.write(markdown({ title: 'Store commands on the claim side of a task', head: ['', 'queries', 'messages', 'queries: claimed p50 / p99', 'messages: claimed p50 / p99'], rows }))
