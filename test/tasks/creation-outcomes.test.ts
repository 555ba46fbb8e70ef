/** Creations whose outcome a request learns late or never. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { openFiles } from '../../src/backends/files/files.ts'
import { openStore } from '../../src/backends/store/store.ts'
import type { Answer, Command } from '../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { createTask, replay } from '../../src/tasks/create-task.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { sourceFile } from '../../src/tasks/inline-sources.ts'
import { sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import { mediaPlan, T0, task } from '../contracts/store/acme.ts'

const quiet = () => {}

async function open(t: Test) {
  const folder = t.testdir()
  const store = await openStore(`sqlite:${join(folder, 'tollgate.db')}`)
  const files = await openFiles(`disk:${join(folder, 'files')}`)
  t.teardown(() => Promise.all([store.close(), files.close()]))
  await store.change('acme/studio', mediaPlan(), T0)
  const context = { store, files, clock: () => T0, publish: quiet, moved: quiet, resultMs: 1e9, log: { info: quiet, warn: quiet, error: quiet } } as unknown as TaskContext
  const record = (await store.subscription('acme/studio'))!
  return { store, files, context, record }
}

/** Requests with the key of the record. */
const creatingOf = ({ keysVersion }: Subscription): Parameters<typeof createTask>[1] => async (attempt) => (await attempt('acme/studio', { keyId: 'key-1', keyCap: null, keysVersion })) as never

const unanswered = (verb: (...args: never[]) => Promise<unknown>) => async (...args: never[]) => {
  await verb(...args)
  throw new Unavailable('store', new Error('no answer'))
}

/** A task whose creation stopped before its hold. */
const stopped = task(1, { state: 'queued', sweepAt: T0 + 60_000, idempotency: { key: 'again', bodyHash: 'b' } })

t.test('a late refusal leaves the task that another request with its key had held, and its uploads, and answers it', async (t) => {
  const { files, context, record } = await open(t)
  const request = task(1, { object: 'operation', kind: 'upscale', input: { media_url: { content_type: 'image/png', bytes: 3 } }, idempotency: { key: 'again', bodyHash: 'b' } })

  const answers: (() => Promise<Answer<'hold'>>)[] = [
    async () => ({ outcome: 'held' }) as Answer<'hold'>,
    async () => {
      await replay(context, creatingOf(record), 'acme', request.idempotency, record)
      return { outcome: 'insufficient', available: 0 } as Answer<'hold'>
    },
  ]
  const creating = (() => answers.shift()?.()) as unknown as Parameters<typeof createTask>[1]
  const created = await createTask(context, creating, request, record, [{ field: 'media_url', bytes: Buffer.from('png') }])
  t.match(created.task, { id: request.id, state: 'queued' })
  t.ok(await files.stat(sourceFile(request.id, '/media_url')), 'its upload is there')
})

t.test('a refusal of the hold rejects the task at once, and its key is free', async (t) => {
  const { store, context, record } = await open(t)
  const answers = [{ outcome: 'held' }, { outcome: 'insufficient', available: 0 }]
  const creating = (async () => answers.shift()) as unknown as Parameters<typeof createTask>[1]
  await t.rejects(createTask(context, creating, stopped, record), { code: 'insufficient_balance' })
  t.match(await store.task('acme', stopped.id), { state: 'rejected', idempotency: null })
})

t.test('a creation that could not be stored for sure answers that nothing was accepted, and the sweep rejects its task', async (t) => {
  const { store, context, record } = await open(t)
  await t.rejects(createTask({ ...context, store: { ...store, createTask: unanswered(store.createTask) as typeof store.createTask } }, creatingOf(record), stopped, record), Unavailable)
  t.match(await sweepTasks({ ...context, clock: () => T0 + 60_000 }), { rejected: 1, unheld: 0 })
  t.match(await store.task('acme', stopped.id), { state: 'rejected', idempotency: null })
})

t.test('a creation whose hold has an unknown outcome gives the hold back and answers that nothing was accepted, or that this is not known', async (t) => {
  for (const isDown of [false, true]) {
    const { store, context, record } = await open(t)
    let holds = 0
    const change = (id: string, command: Command, now: number) => (command.op === 'hold' && holds++ === 0 ? unanswered(store.change)(id as never, command as never, now as never) : store.change(id, command as never, now))
    const moveTask = isDown ? () => Promise.reject(new Unavailable('store', new Error('down'))) : store.moveTask
    const creation = createTask({ ...context, store: { ...store, change: change as typeof store.change, moveTask } }, creatingOf(record), stopped, record)
    if (isDown) await t.rejects(creation, { code: 'unavailable', status: 503, message: /whether the task was accepted is not known/ })
    else await t.rejects(creation, Unavailable)
    t.match(await store.task('acme', stopped.id), { state: isDown ? 'queued' : 'rejected' })
    t.equal((await store.subscription('acme/studio'))?.media?.holds.count, isDown ? 1 : 0)
  }
})

t.test('a repeated request continues a creation that stopped before its hold, and tries once more to confirm it: the sweep leaves the task', async (t) => {
  const { store, context, record } = await open(t)
  await store.createTask(stopped)
  let tries = 0
  const moveTask = (...args: Parameters<typeof store.moveTask>) => (tries++ === 0 ? Promise.reject(new Unavailable('store', new Error('no answer'))) : store.moveTask(...args))
  t.match(await replay({ ...context, store: { ...store, moveTask } }, creatingOf(record), 'acme', stopped.idempotency, record), { outcome: 'replayed', task: { state: 'queued' } })
  t.equal(tries, 2)
  t.equal((await store.subscription('acme/studio'))?.media?.holds.count, 1)
  t.match(await sweepTasks({ ...context, clock: () => T0 + 60_000 }), { rejected: 0, unheld: 0 })
})

t.test('a request that was frozen until the sweep rejected its task gives its hold back, and answers that nothing was accepted', async (t) => {
  const { store, context, record } = await open(t)
  let now = T0
  const change = async (id: string, command: Command, at: number) => {
    now = T0 + 60_000
    if (command.op === 'hold') await sweepTasks({ ...context, clock: () => now })
    return store.change(id, command as never, at)
  }
  await t.rejects(createTask({ ...context, clock: () => now, store: { ...store, change: change as typeof store.change } }, creatingOf(record), stopped, record), { code: 'unavailable' })
  t.match(await store.task('acme', stopped.id), { state: 'rejected', idempotency: null })
  t.equal((await store.subscription('acme/studio'))?.media?.holds.count, 0)
})

t.test('a repeated request whose task was canceled before its hold gives the hold back, and answers the task', async (t) => {
  const { store, context, record } = await open(t)
  await store.createTask(stopped)
  const change = async (id: string, command: Command, at: number) => {
    if (command.op === 'hold') await store.moveTask(stopped.id, { from: ['queued'] }, 'canceled', { sweepAt: null, endedAt: T0 })
    return store.change(id, command as never, at)
  }
  const replayed = replay({ ...context, store: { ...store, change: change as typeof store.change } }, creatingOf(record), 'acme', stopped.idempotency, record)
  t.match(await replayed, { outcome: 'replayed', task: { state: 'canceled' } })
  t.equal((await store.subscription('acme/studio'))?.media?.holds.count, 0)
})

t.test('a repeated request whose hold is refused rejects the task of a creation that stopped, so that its key is free', async (t) => {
  const { store, context, record } = await open(t)
  await store.createTask(stopped)
  const repeated = (ageMs: number) => replay({ ...context, clock: () => T0 + ageMs }, (async () => ({ outcome: 'insufficient', available: 0 })) as never, 'acme', stopped.idempotency, record)
  await t.rejects(repeated(19_999), { code: 'insufficient_balance' }, 'its creation may go on')
  t.match(await store.task('acme', stopped.id), { state: 'queued' })
  await t.rejects(repeated(20_000), { code: 'insufficient_balance' })
  t.match(await store.task('acme', stopped.id), { state: 'rejected', idempotency: null })
})

t.test('a creation that goes on after a repeated request has rejected its task gives its hold back', async (t) => {
  const { store, context, record } = await open(t)
  let now = T0
  const change = async (id: string, command: Command, at: number) => {
    now = T0 + 20_000
    const refused = (async () => ({ outcome: 'insufficient', available: 0 })) as never
    if (command.op === 'hold') await t.rejects(replay({ ...context, clock: () => now }, refused, 'acme', stopped.idempotency, record))
    return store.change(id, command as never, at)
  }
  await t.rejects(createTask({ ...context, clock: () => now, store: { ...store, change: change as typeof store.change } }, creatingOf(record), stopped, record), { code: 'unavailable' })
  t.equal((await store.subscription('acme/studio'))?.media?.holds.count, 0)
})

t.test('a task is not canceled before its hold, which would outlast it', async (t) => {
  const { store, context, record } = await open(t)
  const change = async (id: string, command: Command, at: number) => {
    if (command.op === 'hold') await t.rejects(cancel(context, (await store.task('acme', stopped.id))!), { code: 'unavailable' })
    return store.change(id, command as never, at)
  }
  const { task } = await createTask({ ...context, store: { ...store, change: change as typeof store.change } }, creatingOf(record), stopped, record)
  t.match(await cancel(context, task), { state: 'canceled' })
  t.equal((await store.subscription('acme/studio'))?.media?.holds.count, 0)
  await t.rejects(cancel(context, task), { code: 'already_final' })
})
