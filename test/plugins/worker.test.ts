import t from 'tap'
import type { Broker } from '../../src/backends/broker/broker.ts'
import { VALID } from '../contracts/operations/bodies.ts'
import { openSources } from '../contracts/operations/sources.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { isFinal, openStudio } from './studio.ts'

t.test('a worker with all slots busy pauses its consumers until a slot is free', async (t) => {
  const said: string[] = []
  const studio = await openStudio(t, {
    env: { WORKER_SLOTS: '2' },
    workerKinds: ['image'],
    also(app) {
      const broker = app.broker as Broker
      const { consume } = broker
      broker.consume = (...args) => {
        const { pause, resume, ...rest } = consume(...args)
        const say = (word: string, then: () => void) => () => {
          said.push(word)
          then()
        }
        return { pause: say('pause', pause), resume: say('resume', resume), ...rest }
      }
    },
  })
  studio.engine.next('hang', 'hang', 'hang')
  await studio.create()
  await studio.engine.begun(1)
  t.same(said, [], 'one slot is free')
  await studio.create()
  await studio.engine.begun(2)
  t.same(said, ['pause'])
  await studio.create()
  studio.engine.release()
  await studio.engine.begun(3)
  t.equal(said[1], 'resume')
  studio.engine.release()
})

t.test('a worker that is assigned no messages finds its tasks by queries', async (t) => {
  const studio = await openStudio(t, {
    also(app) {
      const broker = app.broker as Broker
      broker.consume = () => ({ isReceiving: () => false, stop() {}, pause() {}, resume() {} })
    },
  })
  const { id } = (await studio.create()).json()
  t.match(await studio.until(id, isFinal), { status: 'completed' })
})

t.test('a worker runs the kinds and operations of its pool and leaves the others in the queue', async (t) => {
  const studio = await openStudio(t, { workerKinds: ['upscale', 'music'] })
  const { urls } = await openSources(t)
  const left = (await studio.operate(VALID.background_remove(urls))).json()
  const picture = (await studio.create()).json()
  const run = (await studio.operate(VALID.upscale(urls))).json()
  const song = (await studio.create({ kind: 'music' })).json()
  t.match(await studio.until(run.id, isFinal, 'operations'), { status: 'completed' })
  t.match(await studio.until(song.id, isFinal), { status: 'completed' })
  t.match((await studio.get(`/api/v1/operations/${left.id}`)).json(), { status: 'queued', attempts: 0 })
  t.match((await studio.get(`/api/v1/generations/${picture.id}`)).json(), { status: 'queued', attempts: 0 })
})

t.test('WORKER_KINDS takes kinds and operations, and nothing else', async (t) => {
  const { app } = await openEmbeddedProgram(t, { role: 'worker', env: { WORKER_KINDS: 'upscale,background_remove,video' } })
  t.ok(app.hasPlugin('worker'))
  await t.rejects(openEmbeddedProgram(t, { role: 'worker', env: { WORKER_KINDS: 'upscale,sculpt' } }), { message: /^WORKER_KINDS was "upscale,sculpt"; it must be some of image, video, music, background_remove, upscale, ai_edit, inpaint, trim, merge, or empty\.$/ })
})

t.test('a cancel reaches a run long before its lease is renewed', async (t) => {
  const studio = await openStudio(t, { env: { TASK_LEASE_SECONDS: '600' } })
  const id = await studio.hanging()
  t.equal((await studio.post(`/api/v1/generations/${id}/cancel`)).statusCode, 200)
  while (studio.engine.aborts.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  t.same(studio.engine.aborts, ['canceled'])
})
