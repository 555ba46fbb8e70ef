import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { createBatcher, type BatchOptions, type BatchOutcome } from '../../src/concurrency/batching.ts'

type Asked = { id: string; bytes: number }
type Sent = { ids: string[]; told: PromiseWithResolvers<BatchOutcome<string>[]> }

/** A kind whose commands a test ends by hand. They take no time, unless `now` says so. */
function commands(kind: Partial<BatchOptions<Asked, string>> = {}, now = () => 0) {
  const sent: Sent[] = []
  const ask = createBatcher<Asked, string>({
    backend: 'store',
    send(asked) {
      const told = Promise.withResolvers<BatchOutcome<string>[]>()
      sent.push({ ids: asked.map(({ id }) => id), told })
      return told.promise
    },
    idOf: ({ id }) => id,
    shares: false,
    most: 4,
    weigh: ({ bytes }) => bytes,
    ...kind,
  }, now)
  return { sent, ask: (id: string, bytes = 1) => ask({ id, bytes }) }
}

const answered = ({ ids }: Sent, n: number) => ids.map((id) => ({ answer: `${id} ${n}` }))

t.test('the calls of one turn share a command, calls during it share the next, and no call gets a result that was read before it', async (t) => {
  const { sent, ask } = commands({ shares: true })
  const first = [ask('a'), ask('b'), ask('a')]
  await nextTurn()
  t.same(sent[0]?.ids, ['a', 'b', 'a'])
  const later = [ask('a'), ask('c')]
  await nextTurn()
  t.equal(sent.length, 1, 'one at a time')
  sent[0]?.told.resolve(answered(sent[0], 1))
  t.same(await Promise.all(first), ['a 1', 'b 1', 'a 1'])
  await nextTurn()
  t.same(sent[1]?.ids, ['a', 'c'])
  sent[1]?.told.resolve(answered(sent[1], 2))
  t.same(await Promise.all(later), ['a 2', 'c 2'])
  const last = ask('d')
  await nextTurn()
  t.same(sent[2]?.ids, ['d'], 'who is alone waits for nobody')
  sent[2]?.told.resolve(answered(sent[2]!, 3))
  t.equal(await last, 'd 3')
})

t.test('a command holds a limited number of ids and bytes, and no id twice; a larger request is sent alone', async (t) => {
  const { sent, ask } = commands()
  const MB = 1024 * 1024
  const all = [ask('a', MB), ask('a', MB), ask('b', MB), ask('c', MB), ask('d', 9 * MB), ...['e', 'f', 'g', 'h', 'i'].map((id) => ask(id))]
  for (let n = 0; n < 5; n++) {
    await nextTurn()
    await nextTurn()
    sent[n]?.told.resolve(answered(sent[n]!, n))
  }
  t.same(sent.map(({ ids }) => ids.join('')), ['ab', 'ac', 'd', 'efgh', 'i'])
  t.same(await Promise.all(all), ['a 0', 'a 1', 'b 0', 'c 1', 'd 2', 'e 3', 'f 3', 'g 3', 'h 3', 'i 4'])
})

t.test('after a command that took its time, calls wait for others as long, up to a few milliseconds, unless they fill a command or nobody waited', async (t) => {
  let ms = 0
  const { sent, ask } = commands({ most: 3 }, () => ms)
  const first = ask('a')
  await nextTurn()
  const all = [ask('b')]
  ms = 1000
  sent[0]?.told.resolve(answered(sent[0], 1))
  t.equal(await first, 'a 1')
  all.push(ask('c'))
  while (sent.length < 2) await nextTurn()
  t.same(sent[1]?.ids, ['b', 'c'], 'who came during the pause shares the command')
  all.push(ask('d'), ask('e'), ask('f'))
  ms = 2000
  sent[1]?.told.resolve(answered(sent[1]!, 2))
  t.same(await Promise.all(all.slice(0, 2)), ['b 2', 'c 2'])
  await nextTurn()
  t.same(sent[2]?.ids, ['d', 'e', 'f'], 'a command that is full waits for nobody')
  ms = 3000
  sent[2]?.told.resolve(answered(sent[2]!, 3))
  await Promise.all(all)
  const last = ask('g')
  await nextTurn()
  t.same(sent[3]?.ids, ['g'], 'nobody waited')
  sent[3]?.told.resolve(answered(sent[3]!, 4))
  t.equal(await last, 'g 4')

  const eager = commands({ most: 3, pauses: false }, () => ms)
  const some = [eager.ask('a')]
  await nextTurn()
  some.push(eager.ask('b'))
  ms = 4000
  eager.sent[0]?.told.resolve(answered(eager.sent[0], 1))
  await some[0]
  await nextTurn()
  t.same(eager.sent[1]?.ids, ['b'], 'a kind without pauses')
  eager.sent[1]?.told.resolve(answered(eager.sent[1]!, 2))
  t.equal(await some[1], 'b 2')
})

t.test('a failure of one call fails that call; a failure of the command fails its calls and those that it had no room for, but no later call', async (t) => {
  const { sent, ask } = commands({ most: 2 })
  const some = Promise.allSettled([ask('a'), ask('b')])
  await nextTurn()
  sent[0]?.told.resolve([{ failure: new Error('a only') }, { answer: 'b' }])
  t.match(await some, [{ reason: { message: 'a only' } }, { value: 'b' }])
  const many = Promise.allSettled(['a', 'b', 'c'].map((id) => ask(id)))
  await nextTurn()
  const later = ask('d')
  sent[1]?.told.reject(new Error('away'))
  t.same((await many).map(({ status }) => status), ['rejected', 'rejected', 'rejected'])
  await nextTurn()
  t.same(sent[2]?.ids, ['d'])
  sent[2]?.told.resolve([{ answer: 'd' }])
  t.equal(await later, 'd')
  const forgotten = ask('e')
  await nextTurn()
  sent[3]?.told.resolve([])
  await t.rejects(forgotten, TypeError)
})

t.test('a command that never ends is unavailable and does not block later commands of its kind', async (t) => {
  const { sent, ask } = commands({ longestMs: 1, most: 1 })
  const told = Promise.allSettled([ask('a'), ask('b')])
  let isTold = false
  void told.then(() => (isTold = true))
  while (!isTold) await nextTurn()
  const failed = { status: 'rejected', reason: { name: 'Unavailable', backend: 'store', cause: { message: 'no answer within 1 ms' } } }
  t.match(await told, [failed, failed])
  ask('c').catch(() => {})
  await nextTurn()
  t.same(sent.map(({ ids }) => ids), [['a'], ['c']])
})

t.test('a request that has queued for twenty seconds is unavailable, and one that cannot be weighed fails alone', async (t) => {
  let ms = 0
  const { sent, ask } = commands({ most: 1 }, () => ms)
  const some = Promise.allSettled([ask('a'), ask('b'), ask('c')])
  await nextTurn()
  ms = 20_000
  sent[0]?.told.resolve(answered(sent[0], 1))
  await nextTurn()
  await nextTurn()
  ms = 20_001
  const late = ask('d')
  sent[1]?.told.resolve(answered(sent[1]!, 2))
  t.match(await some, [{ value: 'a 1' }, { value: 'b 2' }, { reason: { name: 'Unavailable', cause: { message: 'too many requests are queued' } } }])
  await nextTurn()
  t.same(sent.map(({ ids }) => ids.join('')), ['a', 'b', 'd'])
  ms = 60_000
  const alone = ask('e')
  sent[2]?.told.resolve(answered(sent[2]!, 3))
  t.equal(await late, 'd 3')
  await nextTurn()
  sent[3]?.told.resolve(answered(sent[3]!, 4))
  t.equal(await alone, 'e 4')
  const strange = commands({ weigh: () => { throw new TypeError('no such thing') } })
  await t.rejects(strange.ask('f'), TypeError)
})
