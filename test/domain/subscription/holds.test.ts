import t from 'tap'
import { balanceOf, keyUse } from '../../../src/domain/balance.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import { earliestWaiting, entriesOf, heldByKey, heldIn, holdOf, holdsFrom, NO_HOLDS, oldestReady, PASS_THROUGH, waitingUntil, withHold, withoutHold } from '../../../src/domain/subscription/holds.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Hold, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { queuePosition } from '../../../src/domain/subscription/task-queue.ts'
import { mediaPlan, T0, taskId } from '../../contracts/store/acme.ts'
import { rngOf, type Rng } from '../../simulation/seeded-random.ts'

const KINDS = ['image', 'video', PASS_THROUGH]

function someHold({ pick, chance, whole }: Rng): Hold {
  const run = chance(0.2) ? { claim: `w${whole(1, 1000)}`, at: 1, servedBefore: 0 } : null
  return { period: pick([3, 4]), amount: whole(0, 100), kind: pick(KINDS), keyId: pick(['k', 'l']), epoch: 1, run, readyAt: pick([0, 0, 50, 100]), at: 0 }
}

t.test('the sums and the order are those of the holds, whatever was added, changed and removed before', async (t) => {
  for (let seed = 1; seed <= 20; seed++) {
    const rng = rngOf(seed)
    let holds = NO_HOLDS
    const model = new Map<string, Hold>()
    for (let step = 0; step < 600; step++) {
      const id = taskId(rng.whole(0, 399))
      if (rng.chance(step < 400 ? 0.7 : 0.2)) {
        const hold = someHold(rng)
        holds = withHold(holds, id, hold)
        model.set(id, hold)
      } else {
        holds = withoutHold(holds, id)
        model.delete(id)
      }
      if (step % 40 !== 0) continue
      const entries = [...model].sort(([a], [b]) => (a < b ? -1 : 1))
      t.same([...entriesOf(holds)], entries, 'the oldest first')
      t.same(holds, { ...holdsFrom(entries), chunks: holds.chunks }, 'the sums of holds that were read together')
      const sum = (of: (hold: Hold) => boolean) => entries.reduce((all, [, hold]) => all + (of(hold) ? hold.amount : 0), 0)
      t.equal(heldIn(holds, 3), sum(({ period }) => period === 3))
      t.equal(heldByKey(holds, 4, 'l'), sum(({ period, keyId }) => period === 4 && keyId === 'l'))
      t.equal(holdOf(holds, id), model.get(id))
      const waiting = entries.filter(([, { run, kind }]) => run === null && kind !== PASS_THROUGH)
      t.equal(waitingUntil(holds, id), waiting.filter(([other]) => other <= id).length)
      t.same(oldestReady(holds, ['video'], 60), waiting.find(([, { kind, readyAt }]) => kind === 'video' && readyAt <= 60) ?? null)
      const due = ['image', 'video'].flatMap((kind) => {
        const times = waiting.filter(([, hold]) => hold.kind === kind).map(([, { readyAt }]) => readyAt)
        return times.length > 0 ? [{ kind, readyAt: Math.min(...times) }] : []
      })
      t.same(earliestWaiting(holds).sort((a, b) => (a.kind < b.kind ? -1 : 1)), due)
    }
  }
})

t.test('chunks that emptied join, so that their number follows that of the holds', async (t) => {
  let holds = holdsFrom(Array.from({ length: 6400 }, (_, n) => [taskId(n), someHold(rngOf(n))] as const))
  t.equal(holds.chunks.length, 100)
  for (let n = 0; n < 6400; n++) if (n % 64 !== 63) holds = withoutHold(holds, taskId(n))
  t.equal(holds.count, 100)
  t.ok(holds.chunks.length <= 8, `${holds.chunks.length} chunks`)
  for (let n = 63; n < 6400; n += 64) holds = withoutHold(holds, taskId(n))
  t.same(holds, NO_HOLDS, 'nothing is left of the last one')
})

/** A record with so many waiting holds after two that run, and the ids of the holds of which any member was read since. */
function watched(count: number): { record: Subscription; visited: Set<string> } {
  const visited = new Set<string>()
  const plan = reduce<'applyPlan'>(null, mediaPlan({ maxQueuedTasks: 20_000, maxConcurrentTasks: 4 }), T0, 'acme/studio').record as Subscription
  const media = plan.media as NonNullable<Subscription['media']>
  const entries = Array.from({ length: count }, (_, n): [string, Hold] => {
    const run = n < 2 ? { claim: `w${n}`, at: T0, servedBefore: 0 } : null
    const hold: Hold = { period: media.period.n, amount: 1, kind: 'image', keyId: 'key', epoch: 1, run, readyAt: 0, at: T0 }
    return [taskId(n), new Proxy(hold, { get: (target, member) => (visited.add(taskId(n)), Reflect.get(target, member)) })]
  })
  const record = { ...plan, media: { ...media, holds: holdsFrom(entries) } }
  visited.clear()
  return { record, visited }
}

t.test('an operation visits as many holds beside ten thousand others as beside a hundred', async (t) => {
  const hold: Command = { op: 'hold', task: taskId(30_000), kind: 'image', amount: 1, keyId: 'key', keyCap: 1_000_000, keysVersion: 1 }
  const operations: Record<string, (record: Subscription, count: number) => unknown> = {
    hold: (record) => reduce(record, hold, T0, record.id),
    claim: (record) => reduce(record, { op: 'claim', claim: 'w9', kinds: ['image'] }, T0, record.id),
    'claim for nothing': (record) => reduce(record, { op: 'claim', claim: 'w9', kinds: ['video'] }, T0, record.id),
    'claim again': (record) => reduce(record, { op: 'claim', claim: 'w1', kinds: ['image'] }, T0, record.id),
    requeue: (record) => reduce(record, { op: 'requeue', task: taskId(1), epoch: 1, readyAt: T0 + 1, served: false }, T0, record.id),
    close: (record) => reduce(record, { op: 'close', task: taskId(1), actual: 1 }, T0, record.id),
    'close in the middle': (record, count) => reduce(record, { op: 'close', task: taskId(count / 2), actual: null }, T0, record.id),
    archived: (record) => reduce(record, { op: 'archived', n: 7 }, T0, record.id),
    balance: (record) => [balanceOf(record.media!), keyUse(record.media!, 'key')],
    'queue position': (record, count) => queuePosition(record, taskId(count - 1)),
  }
  for (const [name, operation] of Object.entries(operations)) {
    const counts = [128, 10_000].map((count) => {
      const { record, visited } = watched(count)
      operation(record, count)
      return visited.size
    })
    t.ok(Math.max(...counts) <= 68, `${name}: ${counts.join(' and ')}`)
  }
})
