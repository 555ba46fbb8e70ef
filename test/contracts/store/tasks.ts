import type { Store } from '../../../src/backends/store/store.ts'
import { FINAL, type Task, type TaskFacts, type TaskFilter, type TaskState } from '../../../src/domain/task.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { allDue, delivery, T0, task, taskId } from './acme.ts'

const ALL: TaskFilter = { object: 'generation', kind: null, status: null, createdAfter: null, createdBefore: null }
const MINUTE = 60_000

/** The transitions that lead to each state. */
const TRANSITIONS: Record<TaskState, TaskState[]> = {
  pending: [],
  rejected: ['rejected'],
  queued: ['queued'],
  processing: ['queued', 'processing'],
  settling: ['queued', 'processing', 'settling'],
  completed: ['queued', 'processing', 'settling', 'completed'],
  failed: ['queued', 'processing', 'settling', 'failed'],
  canceled: ['queued', 'settling', 'canceled'],
}

/** Creates a task and moves it to a state; the last transition sets the facts. */
async function taskIn(store: Store, state: TaskState, created: Task, facts: TaskFacts = {}): Promise<Task> {
  let { task: now } = await store.createTask(created)
  for (const [i, to] of TRANSITIONS[state].entries()) {
    const isLast = i === TRANSITIONS[state].length - 1
    const last = { sweepAt: FINAL.includes(to) ? null : created.sweepAt, ...(FINAL.includes(to) && { endedAt: T0 }), ...facts }
    now = (await store.moveTask(created.id, { from: [now.state] }, to, isLast ? last : {})) ?? now
  }
  return now
}

export const taskPromises: Promises<Place> = {
  'a task is created once by its id, and returned in its current state': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const created = task(1, { idempotency: { key: 'k', bodyHash: 'h' }, estimatedCost: 2 ** 53 - 1 })
    t.same(await store.createTask(created), { outcome: 'created', task: created })
    t.same(await other.task('acme', created.id), created)
    t.same(await other.createTask(created), { outcome: 'existing', task: created })
    const queued = await store.moveTask(created.id, { from: ['pending'] }, 'queued', { sweepAt: null })
    t.same(await other.createTask(created), { outcome: 'existing', task: queued })
  },

  'fifty requests with one Idempotency-Key create one task, and keys are per tenant': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    const idempotency = { key: 'order-7', bodyHash: 'h' }
    const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => handles[i % 2]!.createTask(task(i, { idempotency }))))
    const [created, ...more] = answers.filter(({ outcome }) => outcome === 'created')
    t.same(more, [])
    for (const answer of answers) t.same(answer.task, created?.task)
    t.same(await handles[1]!.taskWithKey('acme', 'order-7'), created?.task)

    t.match(await handles[0]!.createTask(task(60, { tenant: 'globex', idempotency })), { outcome: 'created', task: { id: taskId(60) } })
    t.match(await handles[1]!.taskWithKey('globex', 'order-7'), { id: taskId(60) })
    t.equal(await handles[1]!.taskWithKey('globex', 'order-8'), null)
    const keyless = await Promise.all([61, 62].map((n) => handles[0]!.createTask(task(n))))
    t.same(keyless.map(({ outcome }) => outcome), ['created', 'created'])
  },

  'a rejected task frees its Idempotency-Key in the same write': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const idempotency = { key: 'order-7', bodyHash: 'h' }
    await store.createTask(task(1, { idempotency }))
    await store.moveTask(taskId(1), { from: ['pending'] }, 'rejected', { idempotency: null, sweepAt: null, endedAt: T0 })
    t.equal(await other.taskWithKey('acme', 'order-7'), null)
    t.match(await other.createTask(task(2, { idempotency })), { outcome: 'created', task: { id: taskId(2) } })
    t.match(await store.task('acme', taskId(1)), { state: 'rejected', idempotency: null })
  },

  'input and metadata of a tenant are returned unchanged, whatever their member names': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const names = ['', '.', 'a.b', '$set', '$', '__proto__', 'constructor', '_id', '\0', '\ud800', 'n\u0303', '0']
    const metadata = JSON.parse(JSON.stringify(Object.fromEntries(names.map((name) => [name, name])))) as Record<string, string>
    const written = task(1, { metadata, input: { prompt: '\ud83d\0 \u{1f5fc}', style: { ...metadata }, seed: 2 ** 53 - 1, strength: 0.1 } })
    await store.createTask(written)
    const read = await other.task('acme', taskId(1))
    t.equal(JSON.stringify(read?.metadata), JSON.stringify(metadata))
    t.equal(JSON.stringify(read?.input), JSON.stringify(written.input))
    t.same(await store.moveTask(taskId(1), { from: ['pending'] }, 'queued', {}), { ...written, state: 'queued' })
  },

  'a task of another tenant is not found': async (t, place) => {
    const store = await place.open()
    await store.createTask(task(1))
    t.equal(await store.task('globex', taskId(1)), null)
    t.equal(await store.task('acme', taskId(2)), null)
    t.equal(await store.taskWithKey('acme', ''), null)
  },

  'a task moves only from the given states and epochs, and keeps the other members': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const queued = await taskIn(store, 'queued', task(1))
    const facts = { epoch: 3, attempts: 1, startedAt: T0 + 5, sweepAt: T0 + 30_000 }
    t.equal(await other.moveTask(taskId(1), { from: ['pending', 'processing'] }, 'processing', facts), null)
    t.equal(await other.moveTask(taskId(1), { from: ['queued'], epochBelow: 0 }, 'processing', facts), null)
    t.equal(await other.moveTask(taskId(2), { from: ['queued'] }, 'processing', facts), null, 'not there')
    t.equal(await other.moveTask(taskId(1), { from: ['queued'], sweepAt: T0 }, 'rejected', {}), null)
    t.same(await store.task('acme', taskId(1)), queued)

    const processing = await other.moveTask(taskId(1), { from: ['pending', 'queued'], epochBelow: 3, sweepAt: queued.sweepAt }, 'processing', facts)
    t.same(processing, { ...queued, ...facts, state: 'processing' })
    t.same(await store.task('acme', taskId(1)), processing)
    t.equal(await store.moveTask(taskId(1), { from: ['processing'], epoch: 2 }, 'queued', {}), null)
    t.equal(await store.moveTask(taskId(1), { from: ['processing'], epochBelow: 3 }, 'queued', {}), null)
    t.match(await store.moveTask(taskId(1), { from: ['processing'], epoch: 3 }, 'queued', {}), { state: 'queued', epoch: 3, attempts: 1 })
  },

  "a provider's job is remembered under the epoch of its run alone, and stays until a change takes it away": async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await taskIn(store, 'processing', task(1), { epoch: 2, sweepAt: T0 + 30_000 })
    t.equal(await other.moveTask(taskId(1), { from: ['processing'], epoch: 1 }, 'processing', { job: 'late' }), null)
    t.match(await store.moveTask(taskId(1), { from: ['processing'], epoch: 2 }, 'processing', { job: 'job-1' }), { state: 'processing', job: 'job-1', sweepAt: T0 + 30_000 })
    t.match(await other.moveTask(taskId(1), { from: ['processing'], epoch: 2 }, 'queued', { lostLeases: 1 }), { job: 'job-1' })
    t.match(await store.moveTask(taskId(1), { from: ['queued'], epochBelow: 3 }, 'processing', { epoch: 3 }), { job: 'job-1' })
    t.match(await other.moveTask(taskId(1), { from: ['processing'], epoch: 3 }, 'queued', { job: null }), { job: null })
  },

  'of many concurrent moves of a task exactly one succeeds': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    await taskIn(handles[0]!, 'queued', task(1))
    const moves = await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        handles[i % 2]!.moveTask(taskId(1), { from: ['queued'], epochBelow: i + 1 }, 'processing', { epoch: i + 1, sweepAt: T0 + i }),
      ),
    )
    const [moved, ...more] = moves.filter((answer) => answer !== null)
    t.same(more, [])
    t.same(await handles[1]!.task('acme', taskId(1)), moved)
  },

  'a lease is renewed while the task is processing under its epoch, and progress never decreases': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await taskIn(store, 'processing', task(1), { epoch: 2, sweepAt: T0 + 30_000 })
    t.equal(await store.renewTask(taskId(1), 2, 40, T0 + 40_000), 'ok')
    t.equal(await other.renewTask(taskId(1), 2, 10, T0 + 50_000), 'ok')
    t.match(await store.task('acme', taskId(1)), { state: 'processing', progress: 40, sweepAt: T0 + 50_000 })
    t.equal(await store.renewTask(taskId(1), 1, 90, T0 + 60_000), 'lost')
    t.equal(await store.renewTask(taskId(1), 3, 90, T0 + 60_000), 'lost')
    t.equal(await store.renewTask(taskId(2), 2, 90, T0 + 60_000), 'lost')
    await other.moveTask(taskId(1), { from: ['processing'] }, 'settling', { outcome: { outcome: 'canceled' }, sweepAt: T0 + 15_000 })
    t.equal(await store.renewTask(taskId(1), 2, 90, T0 + 60_000), 'lost')
    t.match(await store.task('acme', taskId(1)), { state: 'settling', progress: 40, sweepAt: T0 + 15_000 })
  },

  'a list has the visible tasks of a tenant, newest first, in pages': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const states = Object.keys(TRANSITIONS) as TaskState[]
    const numbers = states.map((_, i) => i + 1)
    await Promise.all(states.map((state, i) => taskIn(store, state, task(i + 1))))
    await taskIn(store, 'queued', task(20, { tenant: 'globex' }))
    await taskIn(store, 'queued', task(21, { object: 'operation', kind: 'upscale' }))
    const visible = numbers.filter((n) => !['pending', 'rejected'].includes(states[n - 1]!)).toReversed()

    const whole = await other.tasks('acme', ALL, null, 100)
    t.same(whole.map(({ id }) => id), visible.map((n) => taskId(n)))
    t.same(whole[0], await store.task('acme', whole[0]!.id))
    const paged: string[] = []
    for (let before: string | null = null, page; (page = await store.tasks('acme', ALL, before, 2)).length > 0; before = paged.at(-1)!) {
      paged.push(...page.map(({ id }) => id))
      t.ok(page.length <= 2)
    }
    t.same(paged, whole.map(({ id }) => id))
    t.same((await other.tasks('acme', { ...ALL, object: 'operation' }, null, 10)).map(({ id }) => id), [taskId(21)])
    t.same(await other.tasks('initech', ALL, null, 10), [])
  },

  'a queued task that was started is listed as processing, as one that settles is': async (t, place) => {
    const store = await place.open()
    const states: TaskState[] = ['queued', 'processing', 'settling', 'queued', 'queued', 'completed']
    await Promise.all(states.map((state, i) => store.createTask(task(i, { state, kind: i % 2 ? 'video' : 'image', startedAt: i === 4 ? null : T0, endedAt: state === 'completed' ? T0 : null }))))
    const listed = async (filter: Partial<TaskFilter>, before: string | null = null, limit = 10) =>
      (await store.tasks('acme', { ...ALL, ...filter }, before, limit)).map(({ id }) => Number(id.slice(-12)))
    t.same(await listed({ status: 'processing' }), [3, 2, 1, 0])
    t.same(await listed({ status: 'queued' }), [4])
    t.same(await listed({ status: 'processing' }, null, 2), [3, 2])
    t.same(await listed({ status: 'processing' }, taskId(2), 1), [1])
    t.same(await listed({ kind: 'video', status: 'processing' }), [3, 1])
    t.same(await listed({ kind: 'image', status: 'processing' }), [2, 0])
    await store.moveTask(taskId(4), { from: ['queued'] }, 'processing', { startedAt: T0 })
    await store.moveTask(taskId(4), { from: ['processing'] }, 'queued', {})
    t.same(await listed({}), [5, 4, 3, 2, 1, 0])
    t.same(await listed({ status: 'queued' }), [])
    t.same(await listed({ status: 'processing' }, null, 1), [4])
  },

  'a list is filtered by kind, status and creation time': async (t, place) => {
    const store = await place.open()
    const kinds = ['image', 'video', 'music', 'image', 'video', 'image']
    const states: TaskState[] = ['completed', 'completed', 'failed', 'queued', 'processing', 'pending']
    // Ids are generated some time before their tasks, in different milliseconds.
    const made = (i: number) => task(i, { id: taskId(i, T0 + i * MINUTE), kind: kinds[i]!, createdAt: T0 + i * MINUTE + 5000 })
    await Promise.all(kinds.map((_, i) => taskIn(store, states[i]!, made(i))))
    const listed = async (filter: Partial<TaskFilter>, before: string | null = null, limit = 10) =>
      (await store.tasks('acme', { ...ALL, ...filter }, before, limit)).map(({ id }) => Number(id.slice(-12)))

    t.same(await listed({}), [4, 3, 2, 1, 0])
    t.same(await listed({ kind: 'video' }), [4, 1])
    t.same(await listed({ status: 'queued' }), [3])
    t.same(await listed({ status: 'completed' }), [1, 0])
    t.same(await listed({ status: 'completed' }, null, 1), [1])
    t.same(await listed({ kind: 'image', status: 'completed' }), [0])
    t.same(await listed({ kind: 'image', status: 'processing' }), [])
    t.same(await listed({ kind: 'image' }, made(3).id), [0])
    t.same(await listed({ createdAfter: made(1).createdAt, createdBefore: made(4).createdAt }), [3, 2], 'both bounds are exclusive')
    t.same(await listed({ createdAfter: made(1).createdAt - 1, createdBefore: made(4).createdAt + 1 }), [4, 3, 2, 1])
    t.same(await listed({ createdBefore: made(4).createdAt, kind: 'video' }, made(4).id), [1])
    t.same(await listed({ createdBefore: T0 - 24 * 60 * MINUTE }), [])
    t.same(await listed({ createdAfter: T0 + 24 * 60 * MINUTE }), [])
    t.same(await listed({ createdAfter: -(2 ** 52), createdBefore: 2 ** 52 }), [4, 3, 2, 1, 0])
  },

  'tasks are due for a sweep at their `sweepAt`, earliest first': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    for (const [n, sweepAt] of [[1, 30], [2, 10], [3, 20], [4, 40]] as const) await store.createTask(task(n, { sweepAt: T0 + sweepAt }))
    const due = async (now: number, limit = 10) => (await other.tasksDue(T0 + now, [{ states: ['pending'], after: '', limit, perTenant: 10 }])).map((list) => list.map(({ id }) => id))
    t.same(await due(9), [[]])
    t.same(await due(30), [[taskId(2), taskId(3), taskId(1)]])
    t.same(await due(30, 2), [[taskId(2), taskId(3)]])
    await store.moveTask(taskId(2), { from: ['pending'] }, 'queued', { sweepAt: null })
    await store.moveTask(taskId(3), { from: ['pending'] }, 'queued', { sweepAt: T0 + 50 })
    t.same(await due(40), [[taskId(1), taskId(4)]])
    t.same((await allDue(other, T0 + 50)).map(({ id }) => id), [taskId(1), taskId(4), taskId(3)])
    t.same((await allDue(other, T0 + 30)), [await store.task('acme', taskId(1))])
  },

  'a list of due tasks has its states alone, and no more of a tenant than its share, whatever its backlog': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const states: [TaskState, number][] = [['queued', 30], ['processing', 5], ['failed', 1], ['canceled', 1]]
    const made = ['beta', 'acme', 'globex', 'hooli'].flatMap((tenant) => states.flatMap(([state, most]) => Array.from({ length: tenant === 'globex' ? most : 1 }, (_, n) => ({ tenant, state, sweepAt: T0 + n }))))
    await Promise.all(made.map((facts, n) => store.createTask(task(n, facts))))
    await store.createTask(task(999, { tenant: 'later', state: 'queued', sweepAt: T0 + 1000 }))
    const due = async (...lists: { states: TaskState[]; after?: string; limit?: number }[]) =>
      (await other.tasksDue(T0 + 100, lists.map((list) => ({ after: '', limit: 8, perTenant: 3, ...list })))).map((list) => list.map(({ tenant, state, sweepAt }) => `${tenant} ${state} ${(sweepAt ?? 0) - T0}`))
    t.same(await due({ states: ['queued'] }, { states: ['processing'], after: 'beta' }), [
      ['acme queued 0', 'beta queued 0', 'globex queued 0', 'globex queued 1', 'globex queued 2', 'hooli queued 0'],
      ['globex processing 0', 'globex processing 1', 'globex processing 2', 'hooli processing 0'],
    ])
    t.same(await due({ states: ['queued'], after: 'globex' }, { states: ['queued'], limit: 4 }, { states: ['settling'] }), [['hooli queued 0'], ['acme queued 0', 'beta queued 0', 'globex queued 0', 'globex queued 1'], []])
    const [relayed] = await due({ states: ['failed', 'canceled', 'completed'], limit: 5 })
    t.same(relayed?.map((one) => one.split(' ')[0]), ['acme', 'acme', 'beta', 'beta', 'globex'])
  },

  'open tasks are counted by state and kind': async (t, place) => {
    const store = await place.open()
    t.same(await store.openTasks(), [])
    const states = Object.keys(TRANSITIONS) as TaskState[]
    await Promise.all(states.map((state, i) => taskIn(store, state, task(i))))
    await Promise.all([20, 21].map((n) => taskIn(store, 'queued', task(n, { tenant: 'globex' }))))
    await taskIn(store, 'queued', task(22, { object: 'operation', kind: 'upscale' }))
    const counts = (await store.openTasks()).map(({ state, kind, count }) => `${state} ${kind} ${count}`)
    t.same(counts.toSorted(), ['pending image 1', 'processing image 1', 'queued image 3', 'queued upscale 1', 'settling image 1'])
  },

  'open tasks are counted with the creation time of the oldest of a state and kind': async (t, place) => {
    const store = await place.open()
    await taskIn(store, 'completed', task(1, { createdAt: T0 + 1 }), { endedAt: T0 + 10 })
    for (const n of [3, 5, 7]) await taskIn(store, 'queued', task(n, { createdAt: T0 + n }))
    await taskIn(store, 'queued', task(8, { object: 'operation', kind: 'upscale', createdAt: T0 + 8 }))
    const oldest = async () => Object.fromEntries((await store.openTasks()).map(({ kind, oldestAt }) => [kind, oldestAt - T0]))
    t.same(await oldest(), { image: 3, upscale: 8 })
    await store.moveTask(taskId(3), { from: ['queued'] }, 'failed', { endedAt: T0 + 20, sweepAt: null })
    t.same(await oldest(), { image: 5, upscale: 8 })
  },

  'open tasks that settle are counted with the time of the first outcome': async (t, place) => {
    const store = await place.open()
    for (const [n, at] of [[1, 900], [2, 700], [3, 800]] as const) await taskIn(store, 'settling', task(n, { createdAt: T0 + n }), { outcome: { outcome: 'canceled', at: T0 + at } })
    t.match(await store.openTasks(), [{ state: 'settling', count: 3, oldestAt: T0 + 700 }])
  },

  'the creation time of the oldest task is returned, in any state': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.equal(await store.oldestTask(), null)
    await taskIn(store, 'queued', task(3))
    await taskIn(store, 'completed', task(2, { tenant: 'globex', createdAt: T0 + 2 }), { endedAt: T0 + 10 })
    t.equal(await other.oldestTask(), T0 + 2)
    await other.removeTasks(T0 + 11, 10)
    t.equal(await store.oldestTask(), task(3).createdAt)
  },

  'final tasks that ended before a time are removed with their deliveries, unless their outbox is not empty': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const outbox = [{ event: 'task.completed' as const, body: '{}' }]
    await taskIn(store, 'completed', task(1), { endedAt: T0 + 10, outbox })
    await taskIn(store, 'failed', task(2), { endedAt: T0 + 20 })
    await taskIn(store, 'rejected', task(3), { endedAt: T0 + 30 })
    await taskIn(store, 'canceled', task(4), { endedAt: T0 + 40, idempotency: { key: 'k', bodyHash: 'h' } })
    await taskIn(store, 'processing', task(5))
    t.equal(await store.removeTasks(T0 + 20, 10), 0, 'the bound is exclusive, and a task with an outbox stays')
    await other.relay(taskId(1), [delivery(1)], [])
    const left = async () => (await Promise.all([1, 2, 3].map((n) => other.task('acme', taskId(n))))).filter((found) => found !== null)
    t.equal(await store.removeTasks(T0 + 40, 2), 2)
    t.equal((await left()).length, 1, 'at most the limit')
    t.equal(await other.removeTasks(T0 + 1_000_000, 10), 2)
    t.same(await left(), [])
    t.same(await store.deliveries(taskId(1)), [])
    t.equal(await store.taskWithKey('acme', 'k'), null)
    t.match(await store.tasks('acme', ALL, null, 10), [{ id: taskId(5) }])
    t.same(await store.claimDeliveries(T0, T0 + 1000, { limit: 10, perHost: 10, perTenant: 10, perQueue: 10 }), [], 'nothing is left to deliver')
  },
}
