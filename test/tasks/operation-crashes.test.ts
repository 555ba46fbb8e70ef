/** An operation whose process is killed at every call to store or files, before and after it, through creation, run and cancellation: another process finishes it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import t, { type Test } from 'tap'
import { notMade, type Engines, type Offer } from '../../src/backends/engines/engine.ts'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { overLimit } from '../../src/domain/errors.ts'
import { entriesOf } from '../../src/domain/subscription/holds.ts'
import type { Creating, Stale } from '../../src/domain/subscription/commands.ts'
import { FINAL, type Task } from '../../src/domain/task.ts'
import { openEgress } from '../../src/egress/egress.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { cancel, conclude } from '../../src/tasks/run-outcome.ts'
import { createTask } from '../../src/tasks/create-task.ts'
import { sweepSubscriptions, sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import { runEngine } from '../../src/tasks/run-engine.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { mediaPlan } from '../contracts/store/acme.ts'
import { IMAGE, MASK } from '../contracts/operations/sources.ts'
import { LIMITS } from '../fakes/engine.ts'
import { openReceiver, type Answer, type Receiver } from '../fakes/receiver.ts'
import { MEMORY } from '../memory-folder.ts'

const START = Date.UTC(2026, 0, 5)
const DAY_MS = 24 * 3_600_000
const KINDS = ['inpaint']

class Killed extends Error {}

/** Kills a process at its nth call: before it, or after it was done. From then on no call of the process does anything. */
type Kill = { at: number; when: 'before' | 'after' }

type World = { store: Store; files: Files; source: Receiver; time: { now: number }; ids: number; read: Buffer[][] }
type Process = { context: TaskContext & Parameters<typeof runEngine>[0]; calls: () => number }

function processOf(world: World, kill: Kill | null): Process {
  let calls = 0
  let dead = false
  const mortal = <B extends object>(backend: B): B =>
    new Proxy(backend, {
      get: (target, verb) => async (...args: unknown[]) => {
        const isLast = ++calls === kill?.at
        if (dead || (isLast && kill?.when === 'before')) {
          dead = true
          throw new Killed()
        }
        const answer = await (Reflect.get(target, verb) as (...all: unknown[]) => Promise<unknown>).apply(target, args)
        if (!isLast) return answer
        dead = true
        // The system closes the files of a process that is killed.
        ;(answer as { stream?: Readable } | null)?.stream?.destroy()
        throw new Killed()
      },
    })
  const quiet = () => {}
  const clock = () => world.time.now
  const context = {
    store: mortal(world.store), files: mortal(world.files), clock, uuid: () => `019b8e1a-0000-7000-8000-${String(++world.ids).padStart(12, '0')}`, random: () => 0, publish: quiet, moved: quiet,
    link: () => '', linkedFile: () => null, resultMs: 7 * DAY_MS, log: { info: quiet, warn: quiet, error: quiet },
    egress: openEgress({ allow: ['127.0.0.1'], clock }), inputTimeoutMs: 10_000, persist: <T>(write: () => Promise<T>) => write(), engines: enginesOf(world),
  }
  return { context, calls: () => calls }
}

function enginesOf({ read }: World): Engines {
  const route = { max: LIMITS, timeoutMs: 600_000 } as Offer['route']
  return {
    offer: () => ({ route, formats: ['png'], engine: 'local', options: [], quote: () => ({ Job: 1000, Second: 0, Megapixel: 0 }), unsupported: () => null }),
    async run(_request, { inputs }) {
      read.push(await Promise.all(inputs.map(async (input) => Buffer.concat(await Array.fromAsync(input.read())))))
      // Every first run of a task fails, so that there is a second.
      if (read.length === 1) return notMade('provider_error', true)
      return { outcome: 'made', body: IMAGE, contentType: 'image/png', facts: { width: 40, height: 30, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 0 } }
    },
  } as Partial<Engines> as Engines
}

const creatingFor = (subscription: string): Creating => async (run) => {
  const answer = await run(subscription, { keyId: 'key-1', keyCap: null, keysVersion: 1 })
  if (answer.outcome === 'stale') throw overLimit('store')
  return answer as Exclude<typeof answer, Stale>
}

async function create({ context }: Process, { source }: World, tenant: string): Promise<Task> {
  const subscription = `${tenant}/studio`
  const record = await context.store.subscription(subscription)
  if (!record) throw new Error('there is no plan')
  const input = { media_url: `${source.url}/image`, mask_url: { content_type: 'image/png', bytes: MASK.length }, prompt: 'x', output_format: 'png' }
  const request = { id: context.uuid(), tenant, subscription, keyId: 'key-1', keyVersionId: 'key-1-0', object: 'operation' as const, kind: 'inpaint', input, webhookUrl: null, metadata: {}, idempotency: { key: 'k', bodyHash: '' } }
  const created = await createTask(context, creatingFor(subscription), { ...request, price: { kind: 'inpaint', micro: 100, per: 'Job' }, estimatedCost: 100, maxAttempts: 3 }, record, [{ field: 'mask_url', bytes: MASK }])
  return created.task
}

/** Claims and runs what is due, once. */
async function work({ context }: Process): Promise<void> {
  const claimed: Task[] = []
  await claimDue(context, { kinds: KINDS, limit: 1, leaseMs: 30_000, start: (task) => claimed.push(task) })
  for (const task of claimed) {
    const control = { signal: new AbortController().signal, progress: () => {}, job: { id: null, remember: async () => {} }, idempotencyKey: task.id }
    await conclude(context, task, await runEngine(context, task, control))
  }
}

/** The process that comes after: it sweeps and works until nothing is left to do, long after every lease and timer. */
async function recover(world: World): Promise<void> {
  const process = processOf(world, null)
  for (let round = 0; round < 5; round++) {
    world.time.now += 5 * 60_000
    await sweepTasks(process.context)
    await sweepSubscriptions(process.context)
    await work(process)
  }
}

type Scenario = (process: Process, world: World, tenant: string) => Promise<unknown>

async function open(t: Test): Promise<World> {
  const folder = await mkdtemp(join(MEMORY, 'tollgate-'))
  const world = { store: await openStore(`sqlite:${join(folder, 'tollgate.db')}`), files: await openFiles(`disk:${join(folder, 'files')}`), source: await openReceiver(t), time: { now: START }, ids: 0, read: [] }
  t.teardown(async () => {
    await Promise.all([world.store.close(), world.files.close()])
    await rm(folder, { recursive: true })
  })
  return world
}

const good: Answer = { status: 200, body: IMAGE }

/** Runs the scenario for a tenant of its own, killed at every call in turn, until it was not killed any more. `check` gets the task, if there is one. */
async function everywhere(t: Test, answers: Answer[], scenario: Scenario, check: (task: Task | undefined, world: World) => void): Promise<void> {
  const world = await open(t)
  world.source.always(() => good)
  for (const when of ['before', 'after'] as const) {
    for (let at = 1, killed = true; killed; at++) {
      const tenant = `${when}-${at}`
      await world.store.change(`${tenant}/studio`, { ...mediaPlan(), plan: { uid: tenant, createdAt: START, generation: 1 } }, world.time.now)
      world.read.length = 0
      const process = processOf(world, { at, when })
      world.source.next(...answers)
      killed = await scenario(process, world, tenant).then(() => process.calls() >= at, (error: unknown) => {
        if (!(error instanceof Killed)) throw error
        return true
      })
      await recover(world)
      const [task] = await world.store.tasks(tenant, { object: 'operation', kind: null, status: null, createdAfter: null, createdBefore: null }, null, 10)
      const label = `killed ${when} call ${at}`
      check(task, world)
      t.ok(!task || FINAL.includes(task.state), `${label}: ${task?.state ?? 'no task'}`)
      t.same([...new Map(entriesOf((await world.store.subscription(`${tenant}/studio`))?.media?.holds)).keys()], [], `${label}: nothing is held`)
      // Nothing expires within the retries of a task, so that what is left now of its sources was left by the kill, and is swept when its time is over.
      const isUpload = (id: string) => id.endsWith('-mask-url') && task !== undefined && id.startsWith(task.id) && !id.startsWith(`${task.id}-${task.epoch}`)
      t.same((await world.files.list('', 1000)).filter(isUpload), [], `${label}: no upload of an ended task is left`)
      await world.files.sweep(world.time.now + 8 * DAY_MS, 1000)
      t.same(await world.files.list('', 1000), [], `${label}: everything expires`)
    }
  }
}

t.test('killed in a creation, the task is made by a later process with its upload, or leaves nothing behind', async (t) => {
  await everywhere(t, [], (process, world, tenant) => create(process, world, tenant), (task, { read }) => {
    if (!task) return
    t.equal(task.state, 'completed')
    t.same(read.at(-1), [IMAGE, MASK])
  })
})

t.test('killed in a run, whose source was away at first, the task is completed and charged once', async (t) => {
  const answers: Answer[] = [{ status: 503 }]
  await everywhere(t, answers, async (process, world, tenant) => {
    // The creation is not killed here.
    const { context } = processOf(world, null)
    await create({ context, calls: () => 0 }, world, tenant)
    for (let runs = 0; runs < 3; runs++) {
      await work(process)
      world.time.now += 2 * 60_000
    }
  }, (task, { read }) => {
    t.match(task, { state: 'completed', actualCost: 100, refundAmount: 0 })
    t.same(read.at(-1), [IMAGE, MASK])
  })
})

t.test('killed in a cancellation, the task is canceled or completed, and no source is left', async (t) => {
  await everywhere(t, [], async (process, world, tenant) => {
    const task = await create(processOf(world, null), world, tenant)
    await cancel(process.context, task)
  }, (task) => {
    t.ok(task?.state === 'canceled' || task?.state === 'completed')
  })
})
