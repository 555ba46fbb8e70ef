/** Creations whose outcome a request learns late or never. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { openFiles } from '../../src/backends/files/files.ts'
import { openStore } from '../../src/backends/store/store.ts'
import type { Answer } from '../../src/domain/subscription/commands.ts'
import { createTask } from '../../src/tasks/create-task.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { sourceFile } from '../../src/tasks/inline-sources.ts'
import { hold, mediaPlan, T0, task } from '../contracts/store/acme.ts'

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

t.test('a late refusal leaves the task that another request with its key had queued, and its uploads, and answers it', async (t) => {
  const { store, files, context, record } = await open(t)
  const request = task(1, { object: 'operation', kind: 'upscale', input: { media_url: { content_type: 'image/png', bytes: 3 } }, idempotency: { key: 'again', bodyHash: 'b' } })

  const answers: (() => Promise<Answer<'hold'>>)[] = [
    async () => ({ outcome: 'held' }) as Answer<'hold'>,
    async () => {
      await store.change('acme/studio', hold(request.id, 'upscale'), T0)
      await store.moveTask(request.id, { from: ['pending'] }, 'queued', {})
      return { outcome: 'insufficient', available: 0 } as Answer<'hold'>
    },
  ]
  const creating = (() => answers.shift()?.()) as unknown as Parameters<typeof createTask>[1]
  const created = await createTask(context, creating, request, record, [{ field: 'media_url', bytes: Buffer.from('png') }])
  t.match(created.task, { id: request.id, state: 'queued' })
  t.ok(await files.stat(sourceFile(request.id, '/media_url')), 'its upload is there')
})

for (const [verb, promise] of [
  ['createTask', 'a creation that could not be stored for sure answers that nothing was accepted, and its task is never queued'],
  ['moveTask', 'a creation whose queueing has an unknown outcome answers that the task may have been accepted'],
] as const) {
  t.test(promise, async (t) => {
    const { store, context, record } = await open(t)
    const unanswered = async (...args: never[]) => {
      await (store[verb] as (...args: never[]) => Promise<unknown>)(...args)
      throw new Unavailable('store', new Error('no answer'))
    }
    const request = task(1)
    const creating: Parameters<typeof createTask>[1] = async (attempt) => (await attempt('acme/studio', { keyId: request.keyId, keyCap: null, keysVersion: record.keysVersion })) as never
    const creation = createTask({ ...context, store: { ...store, [verb]: unanswered } }, creating, request, record)
    if (verb === 'moveTask') await t.rejects(creation, { code: 'unavailable', status: 503, message: /whether the task was accepted is not known/ })
    else await t.rejects(creation, Unavailable)
    t.match(await store.task('acme', request.id), { state: verb === 'moveTask' ? 'queued' : 'pending' })
  })
}

t.test('a queueing that got no answer is tried once more: the task is accepted', async (t) => {
  const { store, context, record } = await open(t)
  let tries = 0
  const moveTask = (...args: Parameters<typeof store.moveTask>) => (tries++ === 0 ? Promise.reject(new Unavailable('store', new Error('no answer'))) : store.moveTask(...args))
  const creating: Parameters<typeof createTask>[1] = async (attempt) => (await attempt('acme/studio', { keyId: 'key-1', keyCap: null, keysVersion: record.keysVersion })) as never
  t.match(await createTask({ ...context, store: { ...store, moveTask } }, creating, task(1), record), { outcome: 'created', task: { state: 'queued' } })
  t.equal(tries, 2)
})
