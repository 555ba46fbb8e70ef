/** Outbox relay: from a task's events to deliveries. The ids follow from task and event, so that relaying twice creates them once. */
import type { TaskContext } from './task-context.ts'
import type { Delivery, Task } from '../domain/task.ts'

/** Stores the deliveries of a final task's events. `task.refunded` waits until the first attempt of `task.failed` has ended. */
export async function relay(context: Pick<TaskContext, 'store' | 'clock' | 'publish'>, task: Task): Promise<void> {
  const { webhookUrl } = task
  if (webhookUrl === null) return
  const now = context.clock()
  const deliveries = task.outbox.map(({ event, body }): Delivery => {
    const waits = event === 'task.refunded'
    return {
      id: deliveryId(task.id, event),
      taskId: task.id,
      tenant: task.tenant,
      keyVersionId: task.keyVersionId,
      event,
      url: webhookUrl,
      host: URL.parse(webhookUrl)?.host ?? '',
      body,
      state: waits ? 'waiting' : 'pending',
      nextAttemptAt: waits ? null : now,
      epoch: 0,
      leaseUntil: null,
      attempts: [],
      createdAt: now,
    }
  })
  await context.store.relay(task.id, deliveries)
  context.publish('webhook', task.id)
}

export function deliveryId(taskId: string, event: Delivery['event']): string {
  return `${taskId}.${event}`
}

/** The delivery that becomes due after an attempt of this one: `task.refunded` after the first of `task.failed`. */
export function releasedBy(delivery: Delivery): string | null {
  return delivery.event === 'task.failed' ? deliveryId(delivery.taskId, 'task.refunded') : null
}
