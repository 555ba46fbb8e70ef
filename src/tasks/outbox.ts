/** Outbox relay: from a task's events to deliveries and the tenant's event log, in the write that makes the task final. The ids follow from task and event, so that relaying twice creates them once. */
import type { TaskEnd } from '../backends/store/task-store.ts'
import type { TaskContext } from './task-context.ts'
import type { Delivery, LoggedEvent, OutboxEvent, Task } from '../domain/task.ts'

/**
 * Logs the events of an ended task, and stores their deliveries if it has a webhook. `task.refunded` waits until the first attempt of `task.failed` has ended. `end`
 * makes the task final in the same write. Null when it is not there, or not settling any more.
 */
export async function relay(
  context: Pick<TaskContext, 'store' | 'clock' | 'publish'>,
  task: Task,
  outbox: readonly OutboxEvent[],
  end?: TaskEnd,
): Promise<Task | null> {
  const now = context.clock()
  const events = outbox.map(({ event, body }): LoggedEvent => ({
    id: `${task.id}.${event}`,
    tenant: task.tenant,
    taskId: task.id,
    event,
    body,
    loggedAt: now,
  }))
  const deliveries = task.webhookUrl === null ? [] : deliveriesOf(task, outbox, task.webhookUrl, now)
  const relayed = await context.store.relay(task.id, deliveries, events, end)
  if (deliveries.length > 0)
    context.publish({
      type: 'webhook.due',
      kind: 'webhook',
      tenant: task.tenant,
      task: task.id,
      key: task.id,
      ...(task.traceparent === undefined ? {} : { traceparent: task.traceparent }),
    })
  return relayed
}

function deliveriesOf(task: Task, outbox: readonly OutboxEvent[], url: string, now: number): Delivery[] {
  return outbox.map(({ event, body }) => {
    const waits = event === 'task.refunded'
    return {
      id: deliveryId(task.id, event),
      taskId: task.id,
      tenant: task.tenant,
      keyVersionId: task.keyVersionId,
      event,
      url,
      host: receiverOf(url),
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

/** Host and port of a receiver, whose deliveries share slots. `host.` is `host`, and 443 is not named. */
function receiverOf(url: string): string {
  const { protocol, hostname, port } = new URL(url)
  const named = port || (protocol === 'http:' ? '80' : '')
  return `${hostname.replace(/\.$/, '')}${named && `:${named}`}`
}

/** The id of an event and of its delivery. */
export function deliveryId(taskId: string, event: Delivery['event']): string {
  return `${taskId}.${event}`
}

/** The delivery that becomes due after an attempt of this one: `task.refunded` after the first of `task.failed`. */
export function releasedBy(delivery: Delivery): string | null {
  return delivery.event === 'task.failed' ? deliveryId(delivery.taskId, 'task.refunded') : null
}
