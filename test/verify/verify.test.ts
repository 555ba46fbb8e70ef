/** `tollgate verify` on intact stores and on stores that were damaged on purpose. */
import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import { verifyStore, type Verified } from '../../src/verify/verify.ts'
import { CODE, contextOf, fill, HOUR_MS, NOW, STUDIO, taskId } from './filled-store.ts'
import { storeOf } from '../tasks/task-context.ts'

async function removePlans(store: Store): Promise<void> {
  for (const id of [STUDIO, CODE]) await store.change(id, { op: 'removePlan', uid: 'u' }, NOW)
}

/** Fills a store, damages its file with these statements, and verifies it. `then`: what happens before the damage. */
async function verifyDamaged(t: Test, statements: string[], now = NOW, keptSince = 0, then: (store: Store) => Promise<void> = async () => {}): Promise<Verified> {
  const file = join(t.testdir(), 'tollgate.db')
  const first = await openStore(`sqlite:${file}`, { recordsUsage: true })
  await fill(first)
  await then(first)
  await first.close()
  const database = new DatabaseSync(file)
  for (const statement of statements) database.exec(statement)
  database.close()
  const store = await openStore(`sqlite:${file}`)
  try {
    return await verifyStore(store, { now, keptSince })
  } finally {
    await store.close()
  }
}

function setTask(n: number, path: string, json: string): string {
  return `UPDATE tasks SET record = json_set(record, '$.${path}', json('${json}')) WHERE id = '${taskId(n)}'`
}

/** Of the only chunk. */
function setHold(id: string, path: string, json: string): string {
  return `UPDATE subscription_holds SET holds = json_set(holds, '$."${id}"${path}', json('${json}')) WHERE subscription = '${STUDIO}'`
}

function setRecord(id: string, path: string, json: string): string {
  return `UPDATE subscriptions SET record = json_set(record, '$.${path}', json('${json}')) WHERE id = '${id}'`
}

function setKey(path: string, json: string): string {
  return `UPDATE keys SET record = json_set(record, '$.${path}', json('${json}'))`
}

t.test('an intact store has no violations, and the checked entities are counted', async (t) => {
  const intact = { checked: { subscriptions: 2, periods: 1, keys: 1, tasks: 4, deliveries: 3, charges: 2, events: 3 }, violations: [] }
  t.same(await verifyDamaged(t, []), intact)
  t.same(await verifyDamaged(t, [], NOW, 0, removePlans), intact, 'without its Plans as well')
})

t.test('a record without a Plan, holds and reservations is verified like any other', async (t) => {
  const abandon = async (store: Store): Promise<void> => {
    const backends = contextOf(store)
    for (const n of [3, 4]) {
      const task = await store.task('acme', taskId(n))
      if (task) await cancel(backends, task)
    }
    for (const id of ['request-1', 'request-2']) await store.change(CODE, { op: 'settle', id, usage: null, estimated: false }, NOW)
    await removePlans(store)
  }
  t.same(await verifyDamaged(t, [], NOW, 0, abandon), { checked: { subscriptions: 2, periods: 1, keys: 1, tasks: 4, deliveries: 3, charges: 2, events: 3 }, violations: [] })
  const { violations } = await verifyDamaged(t, [setRecord(STUDIO, 'media.period.burned', '10')], NOW, 0, abandon)
  t.ok(violations.some((sentence) => /were charged 0.00006 in all, but only 0.00001 was burned/.test(sentence)), violations.join('\n'))
})

t.test('positions of events that begin with the time of a restore are no gap', async (t) => {
  t.same((await verifyDamaged(t, [`UPDATE events SET position = ${NOW} + position WHERE position > 1`])).violations, [])
})

t.test('usage records are compared with the books of their day, where it says that they are complete and kept', async (t) => {
  const lost = await verifyDamaged(t, ['DELETE FROM usage_records'])
  t.same(lost.violations.toSorted(), [
    'acme/code: on 2026-01-05 coding are 1 charges of 30 tokens, but usage records of only 0 charges of 0 tokens',
    'acme/studio: on 2026-01-05 image are 1 charges of 0.00006, but usage records of only 0 charges of 0.0000',
  ])
  const changed = await verifyDamaged(t, [`UPDATE usage_records SET facts = json_set(facts, '$.charged', 31) WHERE id = 'request-2'`])
  t.same(changed.violations, ['acme/code: on 2026-01-05 coding are usage records of 1 charges of 31 tokens, but only 1 charges of 30 tokens'])
  const doubled = `INSERT INTO usage_records SELECT subscription, at, id || '-again', NULL, facts FROM usage_records WHERE subscription = 'acme/studio'`
  t.match((await verifyDamaged(t, [doubled])).violations, [/^acme\/studio: on 2026-01-05 image are usage records of 2 charges of 0.00012, but only 1 charges of 0.00006$/])
  const earlierRelease = (id: string, path: string) => `UPDATE subscriptions SET record = json_remove(record, '$.${path}."2026-01-05"${id}.isRecorded')`
  const unrecorded = [earlierRelease('', 'coding.usage'), earlierRelease('.image', 'media.period.usage')]
  t.same((await verifyDamaged(t, ['DELETE FROM usage_records', ...unrecorded])).violations, [], 'a day with charges that made none is not compared')
  const file = join(t.testdir(), 'kept.db')
  const store = await openStore(`sqlite:${file}`, { recordsUsage: true })
  t.teardown(() => store.close())
  await fill(store)
  await store.removeUsage(NOW + 1, 10, 'all')
  t.same((await verifyStore(store, { now: NOW })).violations, [], 'nor one of which some were removed, whatever USAGE_DAYS is now')
})

t.test('the event of a task that is settling is none: it is written before the last state', async (t) => {
  const settling = [setTask(1, 'state', '"settling"'), `UPDATE tasks SET state = 'settling' WHERE id = '${taskId(1)}'`]
  t.same((await verifyDamaged(t, settling)).violations.filter((sentence) => sentence.startsWith('event ')), [])
})

t.test('tasks removed after TASK_DAYS are not violations', async (t) => {
  const removed = [`DELETE FROM tasks WHERE id = '${taskId(1)}'`, `DELETE FROM deliveries WHERE task_id = '${taskId(1)}'`]
  t.match((await verifyDamaged(t, removed)).violations, [/is of a task that is not there/, /burned/, /burned/])
  t.same((await verifyDamaged(t, removed, NOW, NOW)).violations, [])
})

t.test('a record whose time is ahead of the store\'s clock is reported', async (t) => {
  const ahead = Date.now() + HOUR_MS
  t.match((await verifyDamaged(t, [setRecord(CODE, 'at', String(ahead))])).violations, [/^acme\/code: its time is 3[56]\d\d s ahead of the store's clock$/])
  t.same((await verifyDamaged(t, [setRecord(CODE, 'at', String(NOW + HOUR_MS))])).violations, [], 'written after the verification began')
})

t.test('a hold that is extended while it is compared is read again after its task', async (t) => {
  const store = await storeOf(t, { recordsUsage: true })
  await fill(store)
  const running = { ...(await store.task('acme', taskId(3)))!, id: taskId(9), state: 'queued', epoch: 0, idempotency: null, estimatedCost: 100, extendableTo: 300 } as const
  await store.createTask(running)
  await store.change(STUDIO, { op: 'hold', task: running.id, kind: 'image', amount: 100, keyId: 'key-1', keyCap: null, keysVersion: 1 }, NOW)
  await store.change(STUDIO, { op: 'close', task: taskId(4), actual: null }, NOW)
  const claimed = await store.change(STUDIO, { op: 'claim', claim: 'c9', kinds: ['image'] }, NOW)
  t.match(claimed, { outcome: 'claimed', task: running.id })
  const { epoch } = claimed as { epoch: number }
  await store.moveTask(running.id, { from: ['queued'], epoch: 0 }, 'processing', { epoch })
  const extend = async () => {
    await store.change(STUDIO, { op: 'extendHold', task: running.id, epoch, amount: 200, keyCap: null }, NOW)
    await store.moveTask(running.id, { from: ['processing'], epoch }, 'processing', { estimatedCost: 200 })
  }
  const busy: Store = Object.assign(Object.create(store) as Store, {
    task: async (tenant: string, id: string) => {
      if (id === running.id) await extend()
      return store.task(tenant, id)
    },
  })
  const { violations } = await verifyStore(busy, { now: NOW })
  t.same(violations.filter((sentence) => sentence.includes(running.id)), [])
  t.equal((await store.task('acme', running.id))?.estimatedCost, 200)
})

const DAMAGES: { damage: string; statements: string[]; later?: number; reports: RegExp }[] = [
  {
    damage: 'burned without a charge',
    statements: [setRecord(STUDIO, 'media.period.burned', '90')],
    reports: /burned 0.00009, but its tasks were charged only 0.00006/,
  },
  {
    damage: 'a charge that was not burned',
    statements: [setRecord(STUDIO, 'media.period.burned', '10')],
    reports: /were charged 0.00006 in all, but only 0.00001 was burned/,
  },
  {
    damage: 'a period whose days add up to something else',
    statements: [setRecord(STUDIO, 'media.period.usage', '{}')],
    reports: /period 0 burned 60 micro-units, its days 0/,
  },
  {
    damage: 'keys that add up to something else',
    statements: [setRecord(STUDIO, 'media.keys', '{}')],
    reports: /period 0 burned 60 micro-units, its keys 0/,
  },
  {
    damage: 'more held and burned than the allowance',
    statements: [setRecord(STUDIO, 'media.period.allowance', '200')],
    reports: /allows 0.0002, but 0.0002 is held and 0.00006 burned/,
  },
  {
    damage: 'a negative hold',
    statements: [setHold(taskId(4), '.amount', '-100')],
    reports: /the hold of task \S+ is -100 micro-units/,
  },
  {
    damage: 'a hold of another amount than the quote',
    statements: [setHold(taskId(4), '.amount', '70')],
    reports: /holds 70 micro-units for task \S+, whose quote is 100/,
  },
  {
    damage: 'a hold of a period that is not open',
    statements: [setHold(taskId(4), '.period', '7')],
    reports: /of period 7, which is not open/,
  },
  { damage: 'a queue that hides a task', statements: [setRecord(STUDIO, 'media.due', '[]')], reports: /what is due next/ },
  {
    damage: 'more runs than the plan allows',
    statements: [setRecord(STUDIO, 'terms.media.maxConcurrentTasks', '0')],
    reports: /1 tasks run, where 0 may/,
  },
  { damage: 'a lost period', statements: [setRecord(STUDIO, 'media.period.n', '1')], reports: /the periods before 1 are lost/ },
  {
    damage: 'an open task without a hold',
    statements: ['DELETE FROM subscription_holds'],
    reports: /is (queued|processing), but nothing is held for it/,
  },
  {
    damage: 'a hold without a task',
    statements: [`DELETE FROM tasks WHERE id = '${taskId(4)}'`],
    later: HOUR_MS,
    reports: /for task \S+, which is not there/,
  },
  {
    damage: 'a hold of a task that is over',
    statements: [
      `UPDATE subscription_holds SET holds = json_set(holds, '$."${taskId(2)}"', json_extract(holds, '$."${taskId(4)}"'))`,
    ],
    later: HOUR_MS,
    reports: /which was failed long ago/,
  },
  {
    damage: 'a claim that never began',
    statements: [setHold(taskId(4), '.run', `{"claim":"x","at":${NOW}}`)],
    later: HOUR_MS,
    reports: /which was claimed long ago and never began/,
  },
  {
    damage: 'a completed task that was charged another amount',
    statements: [setTask(1, 'actualCost', '100')],
    reports: /is completed, but was charged 0.0001 instead of 0.00006/,
  },
  { damage: 'a charge above the quote', statements: [setTask(1, 'outcome.cost', '500')], reports: /was charged 0.00006 instead of 0.0001/ },
  {
    damage: 'a failed task that was charged',
    statements: [setTask(2, 'actualCost', '10')],
    reports: /is failed, but was charged 0.00001 instead of 0.0000/,
  },
  {
    damage: 'a refund that is not the rest',
    statements: [setTask(2, 'refundAmount', '40')],
    reports: /of 0.0001 held, 0.0000 was charged and 0.00004 went back/,
  },
  { damage: 'a final state without an outcome', statements: [setTask(2, 'outcome', 'null')], reports: /is failed, but it came to be nothing/ },
  {
    damage: 'a settling task without an outcome',
    statements: [setTask(4, 'state', '"settling"'), `UPDATE tasks SET state = 'settling' WHERE id = '${taskId(4)}'`],
    reports: /is settling, but nothing has come of it/,
  },
  { damage: 'more attempts than allowed', statements: [setTask(3, 'attempts', '9')], reports: /9 of 3 attempts were made/ },
  {
    damage: 'an expired lease that was not taken back',
    statements: [],
    later: 3 * HOUR_MS,
    reports: /is processing, and no process has picked it up for 120 minutes/,
  },
  { damage: 'two tasks with one Idempotency-Key', statements: [setTask(2, 'idempotency.key', '"key 1"')], reports: /have one Idempotency-Key/ },
  {
    damage: 'a missing delivery',
    statements: [`DELETE FROM deliveries WHERE task_id = '${taskId(1)}'`],
    reports: /should have sent task.completed, but has deliveries of nothing/,
  },
  {
    damage: 'a duplicate delivery',
    statements: [
      `INSERT INTO deliveries SELECT id || '.again', task_id, host, tenant, claimable_at, lease_until, record
        FROM deliveries WHERE task_id = '${taskId(1)}'`,
    ],
    reports: /has deliveries of task.completed and task.completed/,
  },
  {
    damage: 'a delivery recorded as delivered without an attempt',
    statements: [
      `UPDATE deliveries SET record = json_set(record, '$.state', 'delivered', '$.nextAttemptAt', json('null'))
        WHERE task_id = '${taskId(1)}'`,
    ],
    reports: /is said to be delivered, but its last attempt did not arrive/,
  },
  {
    damage: 'a due delivery without an attempt',
    statements: [],
    later: 2 * HOUR_MS,
    reports: /is due, and nobody made an attempt for 120 minutes/,
  },
  {
    damage: 'a week whose keys add up to something else',
    statements: [setRecord(CODE, 'coding.weekly.used', '70')],
    reports: /the week used 70 tokens, its keys 30/,
  },
  {
    damage: 'more requests in flight than the plan allows',
    statements: [setRecord(CODE, 'terms.coding.maxConcurrentRequests', '0')],
    reports: /1 requests are in flight, where 0 may be/,
  },
  {
    damage: 'a reservation of nothing',
    statements: [setRecord(CODE, 'coding.reservations.request-1.tokens', '0')],
    reports: /request request-1 reserves 0 tokens/,
  },
  {
    damage: 'a reservation of a process that does not exist',
    statements: ['DELETE FROM beats'],
    later: HOUR_MS,
    reports: /reserves 50 tokens for request request-1 of a process that is gone/,
  },
  {
    damage: 'an archived period whose days add up to something else',
    statements: [`INSERT INTO periods SELECT id, 7, json_set(json_extract(record, '$.media.period'), '$.usage', json('{}')) FROM subscriptions WHERE id = '${STUDIO}'`],
    reports: /acme\/studio: period 0 burned 60 micro-units, its days 0/,
  },
  {
    damage: 'an archived period without a record',
    statements: [`INSERT INTO periods SELECT 'acme/gone', 7, json_extract(record, '$.media.period') FROM subscriptions WHERE id = '${STUDIO}'`],
    reports: /acme\/gone has an archived period 0, but no record/,
  },
  { damage: 'a record of another tenant', statements: [setRecord(STUDIO, 'tenant', '"globex"')], reports: /acme\/studio is of tenant globex/ },
  { damage: 'a task without a record', statements: [setTask(1, 'subscription', '"acme/gone"')], reports: /task \S+ is of acme\/gone, which has no record/ },
  { damage: 'a task of another tenant', statements: [setTask(1, 'tenant', '"globex"')], reports: /task \S+ of acme\/studio is of tenant globex/ },
  { damage: 'a pending task that ended', statements: [setTask(4, 'state', '"pending"'), setTask(4, 'endedAt', '1')], reports: /is pending, but it has ended or was paid/ },
  {
    damage: 'a delivery without a task',
    statements: [`DELETE FROM tasks WHERE id = '${taskId(1)}'`],
    later: HOUR_MS,
    reports: /delivery \S+\.task\.completed of acme is of a task that is not there/,
  },
  {
    damage: 'a refund that waits for a delivery which was attempted',
    statements: [
      `UPDATE deliveries SET record = json_set(record, '$.attempts', json('[{"number":1,"at":1,"durationMs":1,"statusCode":500,"error":null,"responsePrefix":null}]'))
        WHERE task_id = '${taskId(2)}' AND id LIKE '%failed'`,
    ],
    reports: /delivery \S+\.task\.refunded of acme\/studio waits for another one, which was attempted/,
  },
  { damage: 'an event without a task', statements: [`DELETE FROM tasks WHERE id = '${taskId(1)}'`], reports: /event \S+\.task\.completed of acme is of a task that is not there/ },
  { damage: 'an event of another end', statements: [setTask(1, 'state', '"canceled"')], reports: /event \S+\.task\.completed of acme is of a task that is canceled/ },
  { damage: 'a missing event', statements: [`DELETE FROM events WHERE id LIKE '${taskId(1)}%'`], reports: /event \S+\.task\.completed of acme is not in the event log/ },
  { damage: 'a gap in the event log', statements: ['DELETE FROM events WHERE position = 2'], reports: /the event log of acme has no events between positions 1 and 3/ },
  { damage: 'a key of another tenant', statements: [setKey('subscription', '"globex/studio"')], reports: /key key-1-1 of acme is of globex\/studio/ },
  { damage: 'a key under the id of another revision', statements: [setKey('revision', '4')], reports: /key key-1-1 of acme is revision 4 of key-1/ },
  { damage: 'an active key that has ended', statements: [setKey('endedAt', '1')], reports: /key key-1-1 of acme is active, but has ended/ },
  { damage: 'an active key that was erased', statements: [setKey('sealed', 'null')], reports: /key key-1-1 of acme is active, but can sign nothing/ },
]

for (const [plans, then] of [['with its Plans', undefined], ['without Plans', removePlans]] as const) {
  t.test(`damage of a store ${plans} is reported as a sentence:`, async (t) => {
    for (const { damage, statements, later = 0, reports } of DAMAGES) {
      await t.test(damage, async (t) => {
        const { violations } = await verifyDamaged(t, statements, NOW + later, 0, then)
        t.ok(violations.some((sentence) => reports.test(sentence)), `${violations.join('\n')} matches ${reports}`)
      })
    }
  })
}

t.test('a violation names ids and amounts, never content of a client', async (t) => {
  const damage = [setTask(1, 'input', '{"prompt":"secret words"}'), setTask(1, 'actualCost', '1'), setTask(2, 'refundAmount', '1')]
  const { violations } = await verifyDamaged(t, damage)
  t.ok(violations.length > 0)
  t.notMatch(violations.join('\n'), /secret|hooks\.test|key 1/)
})

t.test('a task that a release without an event log relayed, before or after a roll-back, is not a violation', async (t) => {
  const relayed = [`UPDATE tasks SET record = json_remove(record, '$.eventsLogged') WHERE id = '${taskId(1)}'`, `DELETE FROM events WHERE id LIKE '${taskId(1)}%'`]
  // The first of its tenant, so that it leaves no gap.
  t.same((await verifyDamaged(t, relayed)).violations, [])
})

t.test('a lowered allowance is not a violation', async (t) => {
  const lowered = [setRecord(STUDIO, 'media.period.allowance', '200'), setRecord(STUDIO, 'lowered', 'true')]
  t.same((await verifyDamaged(t, lowered)).violations, [])
  const unknown = [setRecord(STUDIO, 'media.period.allowance', '200'), `UPDATE subscriptions SET record = json_remove(record, '$.lowered')`]
  t.same((await verifyDamaged(t, unknown)).violations, [], 'of a record of an earlier version')
})
