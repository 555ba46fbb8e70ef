/** Requests that wait for a task: the reads that they cost, and how many a key may have. */
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { WAITS_PER_CALLER } from '../../plugins/task-watch/task-watch.ts'
import type { Task } from '../../src/domain/task.ts'
import { openStudio, type Studio } from '../plugins/studio.ts'

/** Counts the reads of tasks, and resolves once there were so many. */
function countReads({ store }: Studio): { made: () => number; reach(count: number): Promise<void> } {
  const { task: read } = store
  let made = 0
  let check = () => {}
  store.task = (tenant, id) => {
    made++
    check()
    return read(tenant, id)
  }
  return {
    made: () => made,
    reach: (count) =>
      new Promise((resolve) => {
        check = () => {
          if (made >= count) resolve()
        }
        check()
      }),
  }
}

t.test('forty requests that wait for one task cost the reads of one', async (t) => {
  const studio = await openStudio(t)
  studio.engine.next('hang')
  const wait = () => studio.create({}, { 'idempotency-key': 'k', prefer: 'wait=60' })
  const { id } = (await studio.create({}, { 'idempotency-key': 'k' })).json()
  await studio.engine.begun(1)
  const reads = countReads(studio)
  const waiting = Array.from({ length: 40 }, wait)
  await reads.reach(3)
  studio.engine.release()
  for (const answer of await Promise.all(waiting)) t.match([answer.statusCode, answer.json()], [200, { id, status: 'completed' }])
  t.ok(reads.made() < 40, `${reads.made()} reads`)
})

t.test('a key has fifty waits at most; one above is answered at once, and one that is left frees its place', async (t) => {
  let scope: FastifyInstance | undefined
  const studio = await openStudio(t, { also: (app) => (scope = app) })
  const { untilFinal } = (scope as FastifyInstance).taskWatch
  const id = await studio.hanging({}, { 'idempotency-key': 'k' })
  const task = (await studio.store.task('acme', id)) as Task
  const wait = (keyId: string, signal = new AbortController().signal) => untilFinal(task, keyId, { ms: 60_000, signal })
  const leaving = new AbortController()
  const [keyId = ''] = studio.keyVersionId.split('-')
  const left = wait(keyId, leaving.signal)
  const held = Array.from({ length: WAITS_PER_CALLER - 1 }, () => wait(keyId))
  t.match(await wait(keyId), { outcome: 'refused', task: { id } })
  const answer = await studio.create({}, { 'idempotency-key': 'k', prefer: 'wait=60' })
  t.match([answer.statusCode, answer.headers['preference-applied'], answer.json()], [200, undefined, { id, status: 'processing' }])
  leaving.abort()
  t.match(await left, { outcome: 'open', task: { id } })
  held.push(wait(keyId), wait('another'))
  studio.engine.release()
  t.same(new Set((await Promise.all(held)).map(({ outcome }) => outcome)), new Set(['final']))
})
