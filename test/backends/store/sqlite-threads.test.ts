/** The end of a store whose threads end by themselves meanwhile. */
import type { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { openStore } from '../../../src/backends/store/store.ts'

async function open(t: Test) {
  const threads: Worker[] = []
  const collect = (worker: Worker) => void threads.push(worker)
  process.on('worker', collect)
  t.teardown(() => process.off('worker', collect))
  return { store: await openStore(`sqlite:${t.testdir()}/tollgate.db`, { threads: true, isSole: true }), threads }
}

t.test('a store is closed also when the thread ends that it waits for', async (t) => {
  const { store, threads } = await open(t)
  const cut = store.heartbeat('i1', 1)
  const closed = store.close()
  await threads[0]?.terminate()
  await Promise.allSettled([cut, closed])
  t.same(threads.map(({ threadId }) => threadId), [-1, -1])
})

t.test('no thread is started again for a store that was closed', async (t) => {
  const { store, threads } = await open(t)
  await threads[0]?.terminate()
  await store.close()
  // Longer than the pause before a restart.
  await new Promise((resolve) => setTimeout(resolve, 700))
  t.same(threads.map(({ threadId }) => threadId), [-1, -1])
})

t.test('calls that a thread left unanswered fail with the reason of its end', async (t) => {
  const { store, threads } = await open(t)
  const [writer] = threads
  const cut = store.heartbeat('i1', 1)
  // A thread that fails by itself reports it so, before it exits.
  writer?.emit('error', new Error('out of memory'))
  await writer?.terminate()
  await t.rejects(cut, { name: 'Unavailable', cause: { message: 'the thread of the database ended', cause: { message: 'out of memory' } } })
  await store.close()
})
