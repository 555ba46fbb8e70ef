/** Releases the hold of a task that was rejected, or that ended without closing its hold. */
import { tenantOf } from '../domain/plans.ts'
import { publishReady } from './publish-ready.ts'
import type { TaskContext } from './task-context.ts'

/** Closes the hold of a task, if it is still open, and charges nothing. */
export async function release(context: TaskContext, subscription: string, task: string): Promise<'closed' | 'none'> {
  const { outcome, held, ready } = await context.store.change(subscription, { op: 'close', task, actual: null }, context.clock())
  if (outcome === 'closed') context.moved('void', tenantOf(subscription), held)
  publishReady(context, subscription, ready)
  return outcome
}
