/** Two requests with one Idempotency-Key: the refusal of one arrives after the other was accepted. */
import { join } from 'node:path'
import t from 'tap'
import { openFiles } from '../../src/backends/files/files.ts'
import { openStore } from '../../src/backends/store/store.ts'
import type { Answer } from '../../src/domain/subscription/commands.ts'
import { createTask } from '../../src/tasks/create-task.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { sourceFile } from '../../src/tasks/uploads.ts'
import { hold, mediaPlan, T0, task } from '../contracts/store/acme.ts'

t.test('a late refusal leaves the task that another request with its key had queued, and its uploads, and answers it', async (t) => {
  const folder = t.testdir()
  const store = await openStore(`sqlite:${join(folder, 'tollgate.db')}`)
  const files = await openFiles(`disk:${join(folder, 'files')}`)
  t.teardown(() => Promise.all([store.close(), files.close()]))
  await store.change('acme/studio', mediaPlan(), T0)
  const quiet = () => {}
  const context = { store, files, clock: () => T0, publish: quiet, moved: quiet, resultMs: 1e9, log: { info: quiet, warn: quiet, error: quiet } } as unknown as TaskContext
  const request = task(1, { object: 'operation', verb: 'upscale', input: { media_url: { content_type: 'image/png', bytes: 3 } }, idempotency: { key: 'again', bodyHash: 'b' } })
  const record = await store.subscription('acme/studio')

  const answers: (() => Promise<Answer<'hold'>>)[] = [
    async () => ({ outcome: 'held' }) as Answer<'hold'>,
    async () => {
      await store.change('acme/studio', hold(request.id, 'upscale'), T0)
      await store.moveTask(request.id, { from: ['pending'] }, 'queued', {})
      return { outcome: 'insufficient', available: 0 } as Answer<'hold'>
    },
  ]
  const creating = (() => answers.shift()?.()) as unknown as Parameters<typeof createTask>[1]
  const created = await createTask(context, creating, request, record!, [{ field: 'media_url', bytes: Buffer.from('png') }])
  t.match(created.task, { id: request.id, state: 'queued' })
  t.ok(await files.stat(sourceFile(request.id, '/media_url')), 'its upload is there')
})
