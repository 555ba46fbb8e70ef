/**
 * Liveness by messages alone: after the recovery, with every query of the workers off, all new tasks end. Either no message is lost, nothing is published again, and a worker crashes with a
 * message that it has not handled; or the first message of each task is lost, and the sweep publishes again.
 */
import { openClaims } from '../../../src/tasks/claims-in-progress.ts'
import { conclude } from '../../../src/tasks/run-outcome.ts'
import { openRepublisher } from '../../../src/tasks/republish-ready.ts'
import { createTask } from '../../../src/tasks/create-task.ts'
import { openClaimLoop } from '../../../plugins/worker/claim-loop.ts'
import type { Creating, Stale } from '../../../src/domain/subscription/commands.ts'
import { FINAL, type Task } from '../../../src/domain/task.ts'
import type { Machine, World } from '../world.ts'
import { ACCOUNTS, planOf } from './accounts.ts'
import { LEASE_MS } from './worker.ts'

const TASKS = 4
/** The plan of one task. */
const ONE_TASK = 'beta/studio'
const SLOTS = 3
/** A round of a claim, a run and a message takes less than a second. */
const WITHIN_MS = 30_000

export async function checkMessagesAlone(world: World): Promise<void> {
  const { scheduler, checker, broker, rng } = world
  for (const { process } of world.machines) scheduler.crash(process)
  const isLossy = rng.chance(0.5)
  if (isLossy) loseFirst(world)
  else crashOnce(world)
  for (const name of ['messages-1', 'messages-2', 'messages-3']) world.boot(name, (machine) => consume(world, machine))
  if (isLossy) world.boot('sweep', (machine) => machine.go('sweep', () => republish(world, machine)))
  let created: Task[] | null = null
  world.boot('creations', (machine) => machine.go('create', async () => void (created = await create(world, machine))))
  // The first calls become steps of the scheduler.
  await new Promise((resolve) => setImmediate(resolve))
  const until = scheduler.now() + WITHIN_MS
  while (checker.violations.length === 0 && (await scheduler.tick(until)));
  broker.delivered = broker.loses = null
  if (created === null) return checker.report('no tasks were created for the messages')
  for (const { id } of created as Task[]) {
    const state = checker.seen.tasks.get(id)?.state ?? 'nowhere'
    if (!FINAL.includes(state as Task['state'])) checker.report(`task ${id} is ${state}: messages alone did not run it`)
  }
}

/** The process that receives the only message of a plan crashes before the first step of its claim. */
function crashOnce({ scheduler, broker }: World): void {
  let crashes = 1
  broker.delivered = (process, message) => {
    if (message.type === 'task.ready' && message.subscription === ONE_TASK && crashes-- > 0) setImmediate(() => scheduler.crash(process))
  }
}

function loseFirst({ broker }: World): void {
  const published = new Set<string>()
  broker.loses = (message) => {
    if (message.type !== 'task.ready' || published.has(message.task)) return false
    published.add(message.task)
    return true
  }
}

async function republish(world: World, machine: Machine): Promise<void> {
  const republisher = openRepublisher(machine.tasks(machine.actor('sweep')), ['image', 'video'])
  for (let passes = 0; passes < WITHIN_MS / 1000; passes++) {
    await republisher.pass(world.scheduler.now())
    await machine.sleep(1_000)
  }
}

async function create(world: World, machine: Machine): Promise<Task[]> {
  const backends = machine.tasks(machine.actor('create'))
  const tasks: Task[] = []
  // The plan of one task first: its message is received, and its consumer crashes, before there are others.
  for (const account of ACCOUNTS.toSorted((a, b) => Number(b.subscription === ONE_TASK) - Number(a.subscription === ONE_TASK))) {
    const { tenant, subscription, keyId, keyVersionId, terms } = account
    if (!terms.media) continue
    await backends.store.change(subscription, { ...planOf(account, { ...terms, media: { ...terms.media, maxConcurrentTasks: 1 } }), plan: { uid: `plan-${tenant}-messages`, createdAt: machine.clock(), generation: 1 } }, machine.clock())
    const record = await backends.store.subscription(subscription)
    if (!record) throw new TypeError('no record')
    const creating: Creating = async (run) => {
      const answer = await run(subscription, { keyId, keyCap: null, keysVersion: record.keysVersion })
      return answer as Exclude<typeof answer, Stale>
    }
    for (let n = 0; n < (subscription === ONE_TASK ? 1 : TASKS); n++) {
      const made = { object: 'generation', kind: world.rng.pick(['image', 'video']), input: { prompt: 'a lighthouse' }, estimatedCost: 0, webhookUrl: null, idempotency: null, metadata: {} } as const
      const price = { kind: made.kind, micro: 0, per: 'Job' as const }
      const { task } = await createTask(backends, creating, { id: backends.uuid(), tenant, subscription, keyId, keyVersionId, ...made, price, maxAttempts: 1 }, record)
      tasks.push(task)
    }
    await machine.sleep(200)
  }
  return tasks
}

/** A worker with free slots that claims what messages name, and makes no query by itself. */
function consume(world: World, machine: Machine): void {
  const claims = openClaims()
  const backends = machine.tasks(machine.actor('claim'))
  let running = 0
  const start = (task: Task): void => {
    running++
    machine.go('run', async () => {
      await machine.sleep(world.rng.whole(10, 300))
      const facts = { contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: task.createdAt + 1e9 }
      await conclude(machine.tasks(machine.actor(`run epoch ${task.epoch}`, { task: task.id, epoch: task.epoch })), task, { outcome: 'made', cost: 0, result: { file: `${task.id}-${task.epoch}`, ...facts } })
      running--
    })
  }
  const loop = openClaimLoop({
    tasks: backends, claims, start, leaseMs: LEASE_MS,
    slots: { isFull: () => running >= SLOTS, hasRoom: () => true, claimable: () => ['image', 'video'], room: () => SLOTS - running },
    patience: () => machine.sleep(250),
    later: (ms, then) => void machine.sleep(ms).then(then),
    isStopping: () => false,
    counted() {},
  })
  world.broker.consume({ process: machine.process, kinds: ['image', 'video'], takes: loop.takes, received: loop.received })
}
