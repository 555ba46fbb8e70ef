/** Giving back a hold whose task came to nothing, or to an end that its money was not told of. */
import type { TaskContext } from './task-context.ts'

/** Closes the hold of a task, if it is still open, and charges nothing. `held` is its amount in micro-units. Returns what became of it. */
export async function release(context: TaskContext, subscription: string, task: string, held: number): Promise<'closed' | 'none'> {
  const { outcome } = await context.store.change(subscription, { op: 'close', task, actual: null }, context.clock())
  if (outcome === 'closed') context.moved('void', subscription.slice(0, subscription.indexOf('/')), held)
  return outcome
}
