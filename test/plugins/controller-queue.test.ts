/** Work queue of the controller: priorities, de-duplication, back-off, timers and stop. */
import t from 'tap'
import { openQueue } from '../../plugins/controller/work-queue.ts'

function open() {
  const timers: { ms: number; run: () => void; isCanceled: boolean }[] = []
  const queue = openQueue({
    after(ms, run) {
      const timer = { ms, run, isCanceled: false }
      timers.push(timer)
      return () => {
        timer.isCanceled = true
      }
    },
    random: () => 0,
    observer: { added: () => {}, taken: () => {}, retried: () => {} },
  })
  return { queue, timers, fire: () => timers.splice(0).forEach((timer) => timer.isCanceled || timer.run()) }
}

t.test('a queued name is taken once, urgent ones first', async (t) => {
  const { queue } = open()
  for (const name of ['a', 'b', 'a']) queue.add(name, 'background')
  queue.add('c', 'urgent')
  queue.add('b', 'urgent')
  queue.add('b', 'background')
  t.same([await queue.take(), await queue.take(), await queue.take()], ['c', 'b', 'a'])
  t.equal(queue.depth(), 0)
})

t.test('one worker at a time has a name, and a name added meanwhile is queued again', async (t) => {
  const { queue } = open()
  queue.add('a', 'urgent')
  t.equal(await queue.take(), 'a')
  queue.add('a', 'background')
  queue.add('a', 'background')
  let second: string | null = null
  const taking = queue.take().then((name) => (second = name))
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(second, null)
  t.notOk(queue.isIdle())
  queue.done('a', true)
  await taking
  t.equal(second, 'a')
  queue.done('a', true)
  t.ok(queue.isIdle())
})

t.test('a failed name comes back with exponential back-off, which a success resets', async (t) => {
  const { queue, timers, fire } = open()
  const waits: number[] = []
  for (let i = 0; i < 12; i++) waits.push(queue.retry('a'))
  t.same(waits, [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000])
  t.equal(queue.retry('b'), 50, 'each name has its own back-off')
  t.equal(timers.filter(({ isCanceled }) => !isCanceled).length, 2, 'one timer each')
  fire()
  t.equal(await queue.take(), 'a')
  queue.done('a', true)
  t.equal(queue.retry('a'), 50)
})

t.test('a name comes at the last time set for it, and no timer is longer than the runtime supports', async (t) => {
  const { queue, timers, fire } = open()
  queue.addAfter('a', 10)
  queue.addAfter('a', 1e12)
  t.same(timers.map(({ ms, isCanceled }) => [ms, isCanceled]), [[10, true], [3_600_000, false]])
  fire()
  t.equal(await queue.take(), 'a')
})

t.test('a stopped queue resolves pending takes to null and hands out no names', async (t) => {
  const { queue, timers } = open()
  const waiting = queue.take()
  queue.addAfter('b', 5)
  queue.stop()
  t.equal(await waiting, null)
  queue.add('a', 'urgent')
  queue.addAfter('c', 5)
  t.equal(await queue.take(), null)
  t.ok(timers.every(({ isCanceled }) => isCanceled))
  t.ok(queue.isIdle())
})
