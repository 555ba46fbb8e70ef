/**
 * First pass of `tollgate verify`: everything that the store keeps is read once and counted, whether or not a Plan, a record or a task
 * refers to it, with the invariants of each and of what it refers to.
 */
import { keyVersionId, type KeyVersion } from '../domain/api-keys.ts'
import { tenantOf } from '../domain/plans.ts'
import { FINAL, type Delivery, type Task } from '../domain/task.ts'
import type { Store } from '../backends/store/store.ts'
import { deliveryId } from '../tasks/outbox.ts'
import { endedTask } from '../tasks/run-outcome.ts'
import { periodViolations } from './subscription-invariants.ts'
import { deliveryViolations, eventsOf, OVERDUE_MS, taskViolations } from './task-invariants.ts'
import { readAll } from '../tasks/paged-reads.ts'
import type { Reading } from './verify.ts'

/**
 * Returns the ids of all subscriptions, and adds the counts and violations to `found`. A reference to something that is not there is read
 * again: the store may be in use.
 */
export async function takeInventory({ store, now, keptSince, found: { checked, violations } }: Reading): Promise<string[]> {
  const subscriptions = new Set<string>()
  const isKnown = async (id: string) => subscriptions.has(id) || (await store.subscription(id)) !== null
  for await (const record of readAll(store, 'subscriptions')) {
    checked.subscriptions++
    if (record.media) checked.periods += 1 + record.media.past.length
    subscriptions.add(record.id)
    if (record.tenant !== tenantOf(record.id)) violations.push(`${record.id} is of tenant ${record.tenant}`)
  }
  for await (const { subscription, ...period } of readAll(store, 'periods')) {
    checked.periods++
    for (const sentence of periodViolations(period)) violations.push(`${subscription}: ${sentence}`)
    if (!(await isKnown(subscription))) violations.push(`${subscription} has an archived period ${period.n}, but no record`)
  }
  for await (const key of readAll(store, 'keys')) {
    checked.keys++
    for (const sentence of keyViolations(key)) violations.push(`key ${key.id} of ${key.tenant} ${sentence}`)
  }
  for await (const task of readAll(store, 'tasks')) {
    checked.tasks++
    violations.push(...taskViolations(task, now))
    if (!(await isKnown(task.subscription))) violations.push(`task ${task.id} is of ${task.subscription}, which has no record`)
    if (task.tenant !== tenantOf(task.subscription)) violations.push(`task ${task.id} of ${task.subscription} is of tenant ${task.tenant}`)
    const isSent = FINAL.includes(task.state) && task.webhookUrl !== null && (task.endedAt ?? 0) >= keptSince
    if (isSent) violations.push(...deliveryViolations(task, await store.deliveries(task.id), now))
  }
  for await (const delivery of readAll(store, 'deliveries')) {
    checked.deliveries++
    if (!(await isOfTask(store, delivery)) && now - delivery.createdAt > OVERDUE_MS)
      violations.push(`delivery ${delivery.id} of ${delivery.tenant} is of a task that is not there`)
  }
  for await (const event of readAll(store, 'events')) {
    checked.events++
    const task = await store.task(event.tenant, event.taskId)
    // The task of an old event may have been removed.
    if (task ? !announces(task, event.id) : event.loggedAt - OVERDUE_MS >= keptSince)
      violations.push(`event ${event.id} of ${event.tenant} is of a task that ${task ? `is ${task.state}` : 'is not there'}`)
  }
  return [...subscriptions]
}

function* keyViolations({ id, keyId, revision, tenant, subscription, state, sealed, endedAt }: KeyVersion): Generator<string> {
  const isOver = state === 'revoked' || state === 'deleted'
  if (id !== keyVersionId(keyId, revision)) yield `is revision ${revision} of ${keyId}`
  if (tenantOf(subscription) !== tenant) yield `is of ${subscription}`
  if (!isOver && endedAt !== null) yield `is ${state}, but has ended`
  if (!isOver && sealed === null) yield `is ${state}, but can sign nothing`
}

/** Deliveries are removed before their task. */
async function isOfTask(store: Store, { id, tenant, taskId }: Delivery): Promise<boolean> {
  if (await store.task(tenant, taskId)) return true
  return !(await store.deliveries(taskId)).some((delivery) => delivery.id === id)
}

/** Events are logged in the write before the one that makes a task final; a sweep repeats both. */
function announces(task: Task, id: string): boolean {
  const ended = task.state === 'settling' && task.outcome ? endedTask(task, 0) : task
  return eventsOf(ended).some((event) => deliveryId(task.id, event) === id)
}
