/** Publishes messages about tasks that workers may claim. */
import { KINDS } from '../domain/media-generations.ts'
import { partitionKey } from '../domain/broker-messages.ts'
import { tenantOf } from '../domain/plans.ts'
import type { ReadyTask } from '../domain/subscription/ready-tasks.ts'
import type { Task } from '../domain/task.ts'
import type { TaskContext } from './task-context.ts'

const GENERATIONS: readonly string[] = KINDS

/** One message for each task. `repeat` counts the earlier messages about the same tasks; `origin` is the task whose trace they continue, if it is one of them. */
export function publishReady(
  { publish }: Pick<TaskContext, 'publish'>,
  subscription: string,
  ready: readonly ReadyTask[] = [],
  { repeat = 0, origin }: { repeat?: number; origin?: Task } = {},
): void {
  for (const { task, kind, attempt, readyAt, maxConcurrentTasks } of ready) {
    const object = GENERATIONS.includes(kind) ? 'generation' : 'operation'
    const key = partitionKey(subscription, task, maxConcurrentTasks, repeat)
    const traceparent = origin?.id === task ? origin.traceparent : undefined
    publish({
      type: 'task.ready',
      kind,
      object,
      tenant: tenantOf(subscription),
      subscription,
      task,
      attempt,
      readyAt,
      key,
      ...(traceparent === undefined ? {} : { traceparent }),
    })
  }
}
