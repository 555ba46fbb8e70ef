import type { Store } from '../../../src/backends/store/store.ts'
import type { Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import { entriesOf } from '../../../src/domain/subscription/holds.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import type { UsageRecord } from '../../../src/domain/usage-records.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { admit, hold, ID, mediaPlan, plan, seeded, sessionOf, settle, T0, taskId } from './acme.ts'

export const changePromises: Promises<Place> = {
  'a repeated change takes effect once': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await Promise.all([store.change(ID, plan(), T0), other.change(ID, plan(), T0)])
    const admits = await Promise.all([store, store, other].map((handle) => handle.change(ID, admit('r1', 500), T0)))
    t.same(admits.map(({ outcome }) => outcome), ['admitted', 'admitted', 'admitted'])
    t.same(sessionOf(await store.subscription(ID)), { used: 0, reserved: 500 })

    const settles = await Promise.all([store, store, other].map((handle) => handle.change(ID, settle('r1', 70), T0)))
    t.ok(settles.filter(({ outcome }) => outcome === 'settled').length <= 1)
    t.same(sessionOf(await other.subscription(ID)), { used: 70, reserved: 0 })
  },

  'a decided answer is that of the change, and stored once it is durable': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan({}, { sessionTokens: 1000 }), T0)
    const decided = (id: string) => store.decide<'admit'>(ID, admit(id, 700), T0)
    const admitted = await decided('r1')
    t.match(admitted.answer, { outcome: 'admitted', reserved: 700 })
    await admitted.durable
    t.same(sessionOf(await (await place.open()).subscription(ID)), { used: 0, reserved: 700 })
    const refused = await decided('r2')
    t.match(refused.answer, { outcome: 'reserved' })
    await refused.durable
    await (await store.decide<'settle'>(ID, settle('r1', 300), T0)).durable
    t.same(sessionOf(await store.subscription(ID)), { used: 300, reserved: 0 })
  },

  'refused requests that several handles count add up, each count once': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.change(ID, plan(), T0)
    const count = (handle: Store, id: string) => handle.change(ID, { op: 'countRefusals', id, reasons: { rate_limited: 2, plan_inactive: 1 }, keys: { 'key-1': 3 } }, T0)
    await Promise.all([count(store, 'a'), count(other, 'b'), count(store, 'a')])
    const { coding } = (await other.subscription(ID)) ?? {}
    t.same(coding?.refusals?.days, { '2026-01-05': { rate_limited: 4, plan_inactive: 2 } })
    t.match(coding?.keys, { 'key-1': { refused: 6 } })
  },

  'a refusal is based on everything that another handle wrote before the call': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.change(ID, plan(), T0)
    t.match(await store.change(ID, admit('r1', 500), T0), { outcome: 'admitted' })
    await other.change(ID, plan({ state: 'Suspended', plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }), T0)
    t.same(await store.change(ID, admit('r2', 500), T0), { outcome: 'inactive', reason: 'PlanSuspended' })
    await other.change(ID, plan({ plan: { uid: 'plan-1', createdAt: T0, generation: 3 } }), T0)
    t.match(await store.change(ID, admit('r3', 500), T0), { outcome: 'admitted' })
    await other.change(ID, { op: 'keysChanged' }, T0)
    const answer = await store.change(ID, admit('r4', 500), T0)
    t.match(answer, { outcome: 'stale', keysVersion: (await other.subscription(ID))?.keysVersion ?? 0 })
  },

  'one handle applies commands in the order of their calls': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan({}, { sessionTokens: 1000 }), T0)
    const answers = await Promise.all([
      store.change(ID, admit('r1', 1000), T0),
      store.change(ID, settle('r1', 400), T0),
      store.change(ID, admit('r2', 600), T0),
    ])
    t.match(answers[0], { outcome: 'admitted', reserved: 1000 })
    t.same(sessionOf(await store.subscription(ID)), { used: 400, reserved: 600 })
  },

  'a record whose time is ahead of the store\'s clock is healed by the next command, and reported once': async (t, place) => {
    const healed: [string, number][] = []
    const store = await place.open({ storeTime: () => T0, healed: (...one) => healed.push(one) })
    const wrong = await place.open()
    await wrong.change(ID, plan(), T0)
    await wrong.change(ID, admit('r1', 500), T0 + 3_600_000)
    t.equal((await store.subscription(ID))?.at, T0 + 3_600_000)
    t.same(await store.change(ID, { op: 'heal' }, T0), { outcome: 'healed' })
    t.equal((await wrong.subscription(ID))?.at, T0)
    t.match(await store.change(ID, admit('r2', 500), T0), { outcome: 'admitted' })
    t.match((await store.subscription(ID))?.coding?.session, { start: T0 })
    t.same(healed, [[ID, 3_600_000]])
  },

  'a command that throws fails only its own caller': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    const broken = admit('r2', 500)
    Object.defineProperty(broken, 'maxOutputTokens', {
      get: () => {
        throw new RangeError('no such number')
      },
    })
    const requests = [admit('r1', 100), broken, admit('r3', 300)]
    const [before, thrown, after] = await Promise.allSettled(requests.map((one) => store.change(ID, one, T0)))
    t.match(before, { status: 'fulfilled', value: { outcome: 'admitted' } })
    t.match(thrown, { status: 'rejected', reason: RangeError })
    t.match(after, { status: 'fulfilled', value: { outcome: 'admitted' } })
    t.same(Object.keys((await store.subscription(ID))?.coding?.reservations ?? {}).toSorted(), ['r1', 'r3'])
  },

  'hundreds of concurrent requests on several handles never reserve past a window, and each is charged once': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    const limit = 20_000
    await handles[0]!.change(ID, plan({}, { sessionTokens: limit }), T0)
    const random = seeded(42)
    let highest = 0
    let charged = 0
    let admitted = 0

    async function request(store: Store, id: string, reserve: number, use: number): Promise<void> {
      const answer = await store.change(ID, admit(id, reserve), T0)
      const { used, reserved } = sessionOf(await store.subscription(ID))
      highest = Math.max(highest, used + reserved)
      if (answer.outcome !== 'admitted') return
      admitted++
      charged += use
      // A settlement that is repeated on any handle must not charge twice.
      await Promise.all(handles.map((handle) => handle.change(ID, settle(id, use), T0)))
    }

    for (let wave = 0; wave < 6; wave++) {
      const requests = Array.from({ length: 80 }, (_, i) => {
        const reserve = 1 + Math.floor(random() * 1000)
        return request(handles[i % 2]!, `r${wave}-${i}`, reserve, Math.floor(random() * Math.min(reserve, 100)))
      })
      await Promise.all(requests)
    }
    t.ok(highest <= limit, `at most ${highest} of ${limit} were used or reserved`)
    t.ok(admitted > 100 && admitted < 480, `${admitted} of 480 were admitted`)
    t.same(sessionOf(await handles[1]!.subscription(ID)), { used: charged, reserved: 0 })
  },

  'requests in flight never exceed the limit of the plan, on all handles together': async (t, place) => {
    const handles = [await place.open(), await place.open(), await place.open()]
    await handles[0]!.change(ID, plan({}, { maxConcurrentRequests: 32 }), T0)
    const answers = await Promise.all(Array.from({ length: 300 }, (_, i) => handles[i % 3]!.change(ID, admit(`r${i}`, 1), T0)))
    t.equal(answers.filter(({ outcome }) => outcome === 'admitted').length, 32)
    t.equal(answers.filter(({ outcome }) => outcome === 'concurrency').length, 268)
    t.equal(Object.keys((await handles[0]!.subscription(ID))?.coding?.reservations ?? {}).length, 32)
  },

  'plans that two handles change in turn are what the reducer makes of all changes, with a hundred open tasks': async (t, place) => {
    const handles = await Promise.all([1, 2].map(() => place.open({ recordsUsage: true })))
    const random = seeded(7)
    const ids = ['acme/a', 'acme/b', 'globex/a']
    const models = new Map<string, Subscription | null>(ids.map((id) => [id, null]))
    const charges = new Map<string, string[]>(ids.map((id) => [id, []]))
    let [now, count] = [T0, 0]
    /** Commands whose order does not matter. */
    function some(id: string, round: number): Command[] {
      const open = [...entriesOf(models.get(id)?.media?.holds)]
      const draw = random()
      if (round === 0) return [mediaPlan({ allowance: 1_000_000_000 })]
      if (round < 4 || draw < 0.3) return Array.from({ length: round < 4 ? 40 : 1 + Math.floor(random() * 6) }, () => hold(taskId(count++)))
      if (draw < 0.5) return [{ op: 'claim', claim: `claim-${count++}`, kinds: ['image'] }]
      if (draw < 0.55) return [mediaPlan({ allowance: 1_000_000_000 + count }, { plan: { uid: 'plan-1', createdAt: T0, generation: ++count } })]
      return open.filter(() => random() < 0.05).map(([task]) => ({ op: 'close', task, actual: random() < 0.5 ? 40_000 : null }))
    }
    /** Without versions, which conflicts raise, and the epochs that follow from them. */
    const plain = (record: Subscription | null | undefined) =>
      record && { ...record, version: 0, outbox: null, media: record.media && { ...record.media, holds: [...entriesOf(record.media.holds)].map(([id, one]) => ({ ...one, id, epoch: 0, firstEpoch: 0 })) } }

    for (let round = 0; round < 40; round++) {
      now += 3
      const commands = ids.map((id) => some(id, round))
      const store = handles[Math.floor(random() * 2)]!
      await Promise.all(ids.map((id, n) => Promise.all(commands[n]!.map((command) => store.change(id, command, now)))))
      for (const [n, id] of ids.entries()) {
        for (const command of commands[n]!) {
          const made: UsageRecord[] = []
          models.set(id, reduce<CommandName>(models.get(id) ?? null, command, now, id, made).record)
          charges.get(id)!.push(...made.map((one) => one.id))
        }
      }
      const records = await Promise.all(ids.map((id) => handles[0]!.subscription(id)))
      t.same(records.map(plain), ids.map((id) => plain(models.get(id))), `round ${round}`)
    }
    for (const id of ids) {
      const stored = await handles[0]!.usageRecords(id, { since: T0, until: now + 1 }, null, 1000)
      t.same(stored.map((one) => one.id).toSorted(), charges.get(id)!.toSorted())
      t.ok(stored.length > 10, `${stored.length} charges`)
    }
  },
}
