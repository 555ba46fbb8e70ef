/**
 * `tollgate verify`: reads a whole store and reports violated invariants (`docs/media.md`, "Money"). Repairs nothing. The store may be in use:
 * each rule is about facts that were read in an order which makes it valid, or were read again.
 */
import type { Store } from '../backends/store/store.ts'
import { tenantOf } from '../domain/plans.ts'
import { aheadMs } from '../domain/subscription/clock-healing.ts'
import type { Hold, MediaPeriod, Subscription } from '../domain/subscription/subscription.ts'
import { entriesOf, holdOf, PASS_THROUGH } from '../domain/subscription/holds.ts'
import { FINAL, type Task } from '../domain/task.ts'
import { deliveryId } from '../tasks/outbox.ts'
import { readPages } from '../tasks/paged-reads.ts'
import { isUnheld } from '../tasks/reject-task.ts'
import { eventLogViolations } from './event-invariants.ts'
import { takeInventory } from './store-inventory.ts'
import { chargeFor, moneyViolations, type Charge } from './money-invariants.ts'
import { recordViolations } from './subscription-invariants.ts'
import { eventsOf, OVERDUE_MS } from './task-invariants.ts'
import { usageViolations } from './usage-invariants.ts'

export type Verified = {
  /** `charges`: usage records. */
  checked: { subscriptions: number; periods: number; keys: number; tasks: number; deliveries: number; charges: number; events: number }
  /** A sentence each. Ids and amounts, never a prompt, an address or a key. */
  violations: string[]
}

/** What is read, and what was found so far. */
export type Reading = { store: Store; now: number; keptSince: number; eventsKeptSince: number; found: Verified }

/** A snapshot of one subscription. */
type Books = { record: Subscription; periods: MediaPeriod[] }

const PAGE = 200

/**
 * Verifies everything that the store keeps. `now` is the time; tasks that ended before `keptSince` (now − TASK_DAYS), and events that were
 * logged before `eventsKeptSince` (now − EVENT_DAYS), may have been removed. Times are epoch milliseconds. Throws `Unavailable` when the store
 * cannot be read.
 */
export async function verifyStore(
  store: Store,
  { now, keptSince = 0, eventsKeptSince = keptSince }: { now: number; keptSince?: number; eventsKeptSince?: number },
): Promise<Verified> {
  const found: Verified = {
    checked: { subscriptions: 0, periods: 0, keys: 0, tasks: 0, deliveries: 0, charges: 0, events: 0 },
    violations: [],
  }
  const reading = { store, now, keptSince, eventsKeptSince, found }
  const tenants = Map.groupBy(await takeInventory(reading), tenantOf)
  for (const [tenant, ids] of tenants) await verifyTenant(reading, tenant, ids)
  return found
}

async function verifyTenant(reading: Reading, tenant: string, ids: string[]): Promise<void> {
  const { store, found } = reading
  const before = new Map<string, Books>()
  for (const id of ids) {
    const books = await readBooks(store, id)
    if (books) before.set(id, books)
  }
  const { charges, unheld, events } = await verifyTasks(reading, tenant, before)
  for await (const sentence of eventLogViolations(store, tenant, events, reading.eventsKeptSince)) found.violations.push(sentence)
  for (const [id, books] of before) {
    const current = async () => (await readBooks(store, id)) ?? books
    for await (const sentence of usageViolations(store, books, current, () => found.checked.charges++)) found.violations.push(sentence)
    const after = await current()
    found.violations.push(...recordViolations(after.record))
    await verifyClock(reading, after.record)
    found.violations.push(...moneyViolations(id, books.periods, after.periods, charges.get(id) ?? [], reading.keptSince))
    await verifyHolds(reading, books.record, after.record)
    await verifyReservations(reading, books.record, after.record)
    for (const task of unheld.get(id) ?? []) await verifyUnheld(reading, task, after.record)
  }
}

/** Reads the record first: a period that is no longer in it was archived before. */
async function readBooks(store: Store, id: string): Promise<Books | null> {
  const record = await store.subscription(id)
  if (!record) return null
  const open = record.media ? [...record.media.past, record.media.period] : []
  const archived = (await store.periods(id)).filter(({ n }) => !open.some((period) => period.n === n))
  return { record, periods: [...archived, ...open].sort((a, b) => a.n - b.n).map(ofTasks) }
}

/** The period as its tasks burned it: pass-through requests are charged without one. */
function ofTasks(period: MediaPeriod): MediaPeriod {
  const others = Object.values(period.usage).reduce((sum, day) => sum + (day[PASS_THROUGH]?.burned ?? 0), 0)
  return { ...period, burned: period.burned - others }
}

/**
 * Charges and holds by subscription, from the tasks of a tenant. `unheld`: tasks without the hold that they should have. `events`: ids of
 * the events that must be in the log.
 */
type Tasks = { charges: Map<string, Charge[]>; unheld: Map<string, Task[]>; events: Set<string> }

/** Reads each task once, and what is compared with it afterwards. */
async function verifyTasks({ store, eventsKeptSince, found }: Reading, tenant: string, before: Map<string, Books>): Promise<Tasks> {
  const charges = new Map<string, Charge[]>()
  const unheld = new Map<string, Task[]>()
  const byKey = new Map<string, string>()
  const events = new Set<string>()
  for await (const task of tasksOf(store, tenant)) {
    // One that a release without an event log relayed is not expected there: also after a rollback, whenever that was.
    const isLogged = task.eventsLogged && FINAL.includes(task.state) && task.outbox.length === 0 && (task.endedAt ?? 0) >= eventsKeptSince
    if (isLogged) for (const event of eventsOf(task)) events.add(deliveryId(task.id, event))
    const other = task.idempotency && byKey.get(task.idempotency.key)
    if (other) found.violations.push(`tasks ${other} and ${task.id} of ${tenant} have one Idempotency-Key`)
    if (task.idempotency) byKey.set(task.idempotency.key, task.id)
    const charge = chargeFor(task)
    if (charge) append(charges, task.subscription, charge)
    const known = before.get(task.subscription)
    if (isOpen(task) && !holdOf(known?.record.media?.holds, task.id)) append(unheld, task.subscription, task)
  }
  return { charges, unheld, events }
}

/** Queued or processing: it was held before, and its hold is closed after. */
function isOpen({ state }: Task): boolean {
  return state === 'queued' || state === 'processing'
}

function append<V>(lists: Map<string, V[]>, name: string, value: V): void {
  const list = lists.get(name)
  if (list) list.push(value)
  else lists.set(name, [value])
}

async function* tasksOf(store: Store, tenant: string): AsyncGenerator<Task> {
  for (const object of ['generation', 'operation'] as const) {
    const filter = { object, kind: null, status: null, createdAfter: null, createdBefore: null }
    yield* readPages(PAGE, (before) => store.tasks(tenant, filter, before || null, PAGE))
  }
}

/** A record that was written after `now` was read may be later than `now`, and never later than the store's clock. */
async function verifyClock({ store, now, found }: Reading, record: Subscription): Promise<void> {
  const ahead = aheadMs(record, now) && aheadMs(record, await store.clock())
  if (ahead > 0) found.violations.push(`${record.id}: its time is ${Math.round(ahead / 1000)} s ahead of the store's clock`)
}

/** Open before the record was read and open after: it never settled, so the record must hold it, unless it is still being created. */
async function verifyUnheld({ store, now, found }: Reading, task: Task, after: Subscription): Promise<void> {
  if (holdOf(after.media?.holds, task.id)) return
  const again = await store.task(task.tenant, task.id)
  if (again && isOpen(again) && !isUnheld(again, after, now))
    found.violations.push(`task ${task.id} of ${after.id} is ${again.state}, but nothing is held for it`)
}

/** A hold that exists before and after its task was read must belong to an open task, within the time of the sweeps. */
async function verifyHolds({ store, now, found }: Reading, before: Subscription, after: Subscription): Promise<void> {
  for (const [id, first] of entriesOf(before.media?.holds)) {
    const task = await store.task(before.tenant, id)
    const known = holdOf(after.media?.holds, id)
    // Extended since, before its task was.
    const isLess = known && task && known.amount < task.estimatedCost
    const hold = isLess ? holdOf((await store.subscription(before.id))?.media?.holds, id) : known
    if (!hold || hold.at !== first.at) continue
    for (const sentence of holdViolations(first, hold, task, now)) {
      found.violations.push(`${after.id} holds ${hold.amount} micro-units for task ${id}, ${sentence}`)
    }
  }
}

function* holdViolations(first: Hold, hold: Hold, task: Task | null, now: number): Generator<string> {
  if (!task) {
    if (now - hold.at > OVERDUE_MS) yield 'which is not there'
    return
  }
  // A hold is extended before its task. One that a late request took for a task that has ended is not, and is released.
  const isLess = hold.amount < task.estimatedCost && (task.extendableTo === undefined || !FINAL.includes(task.state))
  if (isLess || hold.amount > (task.extendableTo ?? task.estimatedCost)) yield `whose quote is ${task.estimatedCost}`
  if (FINAL.includes(task.state)) {
    if (now - (task.endedAt ?? 0) > OVERDUE_MS && now - hold.at > OVERDUE_MS) yield `which was ${task.state} long ago`
  } else if (task.state === 'queued' && first.run?.claim === hold.run?.claim && hold.run && now - hold.run.at > OVERDUE_MS) {
    yield 'which was claimed long ago and never began'
  }
}

/** The instance of every reservation has a heartbeat, which is removed only after its reservations were charged. */
async function verifyReservations({ store, now, found }: Reading, before: Subscription, after: Subscription): Promise<void> {
  const lasting = Object.entries(before.coding?.reservations ?? {}).filter(([id]) => after.coding?.reservations[id])
  const old = lasting.filter(([, { at }]) => now - at > OVERDUE_MS)
  if (old.length === 0) return
  const known = new Set((await store.heartbeats()).map(({ instance }) => instance))
  for (const [id, { instance, tokens }] of old) {
    if (!known.has(instance)) found.violations.push(`${after.id} reserves ${tokens} tokens for request ${id} of a process that is gone`)
  }
}
