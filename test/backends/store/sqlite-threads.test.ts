/** The end of a store whose threads end by themselves meanwhile. */
import type { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { openDatabase } from '../../../src/backends/store/sqlite/database.ts'
import { startThread } from '../../../src/backends/store/sqlite/database-thread.ts'
import { UPGRADES } from '../../../src/backends/store/sqlite/migrations.ts'
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

t.test('calls give back what they were counted, however they end: forty thousand take no more room than one', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  await openDatabase(file, UPGRADES).close()
  const thread = startThread({ file, kind: 'reader' }, () => {})
  t.teardown(() => thread.close())
  await thread.open()
  // 2,000 bytes each if not said otherwise, and 64 MiB in all.
  for (let sent = 0; sent < 40_000; sent += 5_000) {
    const answers = await Promise.allSettled(Array.from({ length: 5_000 }, () => thread.call('oldestTask', [])))
    t.ok(answers.every(({ status }) => status === 'fulfilled'), `${sent + 5_000} calls`)
  }
  const MIB = 1024 * 1024
  for (let n = 0; n < 70; n++) await thread.call('oldestTask', [], MIB)
  for (let n = 0; n < 70; n++) await t.rejects(thread.call('heartbeat', ['i1', {}], MIB), { cause: { message: /readonly/ } })
  t.equal(await thread.call('oldestTask', [], 60 * MIB), null)
})

t.test('what waits for the disk is bounded in bytes and in number, and refused beyond that at once', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  await openDatabase(file, UPGRADES).close()
  const thread = startThread({ file, kind: 'reader' }, () => {})
  t.teardown(() => thread.close())
  await thread.open()
  const refused = { name: 'Unavailable', cause: { message: 'too many calls wait for the disk' } }
  const big = thread.call('oldestTask', [], 60 * 1024 * 1024)
  await t.rejects(thread.call('oldestTask', [], 5 * 1024 * 1024), refused)
  t.equal(await big, null)
  const many = Array.from({ length: 5_000 }, () => thread.call('oldestTask', []))
  await t.rejects(thread.call('oldestTask', []), refused)
  await Promise.all(many)
  t.equal(await thread.call('oldestTask', []), null)
})

t.test('a call whose answer has come is answered, however long this thread stood still meanwhile', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  await openDatabase(file, UPGRADES).close()
  const thread = startThread({ file, kind: 'reader' }, () => {})
  t.teardown(() => thread.close())
  await thread.open()
  const answer = thread.call('oldestTask', [])
  // Sent at the end of this turn.
  await new Promise((resolve) => setImmediate(resolve))
  // Longer than a call may take, for instance because the machine is busy.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5_600)
  t.equal(await answer, null)
})
