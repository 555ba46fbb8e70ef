/** Publishes again what stays ready: tasks whose message was lost, or whose next attempt has become due. One process at a time does it, under the lease of a sweep. */
import { readyTasks } from '../domain/subscription/ready-tasks.ts'
import { publishReady } from './publish-ready.ts'
import { sweepEach } from './sweep-pass.ts'
import type { TaskContext } from './task-context.ts'

/** Ready for this long: a little less than the second between two passes. */
const FIRST_MS = 900
/** Between two messages about one subscription: doubling from a second. */
const BACKOFF_MS = { first: 1_000, max: 60_000 }
/** Subscriptions of one pass: those listed, and those whose record is read. */
const LISTED = 1_000
const READ = 100
/** Messages about one kind of one subscription in a pass. */
const TASKS = 16

export type Republisher = {
  /** One pass at the monotonic time `now`. Returns how many messages were published. Throws `Unavailable`. */
  pass(now: number): Promise<number>
}

/** Knows what was due in its own passes only: a process that takes over the sweep begins anew. */
export function openRepublisher(context: TaskContext, kinds: string[]): Republisher {
  let known = new Map<string, { repeat: number; nextAt: number }>()

  async function republish(subscription: string, now: number): Promise<number> {
    const repeat = (known.get(subscription)?.repeat ?? 0) + 1
    known.set(subscription, { repeat, nextAt: now + Math.min(BACKOFF_MS.max, BACKOFF_MS.first * 2 ** repeat) })
    const ready = readyTasks(await context.store.subscription(subscription), context.clock(), TASKS)
    publishReady(context, subscription, ready, { repeat })
    return ready.length
  }

  return {
    async pass(now) {
      const due = await context.store.subscriptionsDue(kinds, context.clock(), LISTED)
      known = new Map(due.map((subscription) => [subscription, known.get(subscription) ?? { repeat: 0, nextAt: now + FIRST_MS }]))
      const late = due.filter((subscription) => now >= (known.get(subscription)?.nextAt ?? Infinity)).slice(0, READ)
      let published = 0
      const failed = (subscription: string, err: unknown) =>
        context.log.warn({ event: 'republish_failed', err, subscription }, 'tasks not published again, retrying')
      await sweepEach(late, async (subscription) => (published += await republish(subscription, now)), failed)
      return published
    },
  }
}
