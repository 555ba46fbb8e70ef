/** Outbox relay: from a task's events to deliveries and the tenant's event log. The ids follow from task and event, so that relaying twice creates them once. */
import type { TaskContext } from './task-context.ts'
import type { Delivery, LoggedEvent, Task } from '../domain/task.ts'

/** Logs the events of a final task, and stores their deliveries if it has a webhook. `task.refunded` waits until the first attempt of `task.failed` has ended. */
export async function relay(context: Pick<TaskContext, 'store' | 'clock' | 'publish'>, task: Task): Promise<void> {
  const now = context.clock()
  const events = task.outbox.map(({ event, body }): LoggedEvent => ({
    id: `${task.id}.${event}`,
    tenant: task.tenant,
    taskId: task.id,
    event,
    body,
    loggedAt: now,
  }))
  const deliveries = task.webhookUrl === null ? [] : deliveriesOf(task, task.webhookUrl, now)
  await context.store.relay(task.id, deliveries, events)
  if (deliveries.length > 0)
    context.publish({
      type: 'webhook.due',
      kind: 'webhook',
      tenant: task.tenant,
      task: task.id,
      key: task.id,
      ...(task.traceparent === undefined ? {} : { traceparent: task.traceparent }),
    })
}

function deliveriesOf(task: Task, url: string, now: number): Delivery[] {
  return task.outbox.map(({ event, body }) => {
    const waits = event === 'task.refunded'
    return {
      id: deliveryId(task.id, event),
      taskId: task.id,
      tenant: task.tenant,
      keyVersionId: task.keyVersionId,
      event,
      url,
      host: hostOf(url),
      body,
      ...(task.traceparent === undefined ? {} : { traceparent: task.traceparent }),
      ...(task.requestId === undefined ? {} : { requestId: task.requestId }),
      state: waits ? 'waiting' : 'pending',
      nextAttemptAt: waits ? null : now,
      epoch: 0,
      leaseUntil: null,
      attempts: [],
      createdAt: now,
    }
  })
}

/** Host and port of a receiver, whose deliveries share slots; `host.` is `host`. */
function hostOf(url: string): string {
  return (URL.parse(url)?.host ?? '').replace(/\.(?=:|$)/, '')
}

/** The id of an event and of its delivery. */
export function deliveryId(taskId: string, event: Delivery['event']): string {
  return `${taskId}.${event}`
}

/** The deliveries of a task that wait although the one that releases them was attempted. */
export function overlooked(deliveries: readonly Delivery[]): Delivery[] {
  const released = new Set(deliveries.flatMap((delivery) => (delivery.attempts.length > 0 ? [releasedBy(delivery)] : [])))
  return deliveries.filter(({ id, state }) => state === 'waiting' && released.has(id))
}

/** The delivery that becomes due after an attempt of this one: `task.refunded` after the first of `task.failed`. */
export function releasedBy(delivery: Delivery): string | null {
  return delivery.event === 'task.failed' ? deliveryId(delivery.taskId, 'task.refunded') : null
}
