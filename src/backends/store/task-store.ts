/** The verbs of the store backend that remember tasks, their deliveries, and the periods that paid for them. */
import type { MediaPeriod } from '../../domain/subscription/subscription.ts'
import type { Delivery, DeliveryAttempt, Task, TaskFacts, TaskFilter, TaskGuard, TaskState } from '../../domain/task.ts'

export type TaskStore = {
  /**
   * Ids of subscriptions with a waiting task of one of these kinds that is ready at `now` while fewer run than may: longest unserved first;
   * of those never served, the longest ready.
   */
  subscriptionsDue(kinds: string[], now: number, limit: number): Promise<string[]>
  /** Keeps an ended period for good: the first that is told of a subscription and number. */
  archivePeriod(subscription: string, period: MediaPeriod): Promise<void>
  /** The archived periods of a subscription, oldest first. */
  periods(subscription: string): Promise<MediaPeriod[]>

  /** Stores a new task unless one has its tenant and idempotency key, or its id: both times answers the one that is stored. */
  createTask(task: Task): Promise<{ outcome: 'created' | 'existing'; task: Task }>
  /**
   * Moves a task if it passes the guard, with the facts in the same write, and answers it as it is then; null when it did not pass or is
   * not there. A fact `idempotency` of null frees the key.
   */
  moveTask(id: string, guard: TaskGuard, to: TaskState, facts: TaskFacts): Promise<Task | null>
  /**
   * Tells how far a run is, which never decreases, and prolongs its lease (`sweepAt`). `lost`: the task is no longer processing under this
   * epoch.
   */
  renewTask(id: string, epoch: number, progress: number, sweepAt: number): Promise<'ok' | 'lost'>
  /** By id, in whatever state; null also when it is another tenant's. */
  task(tenant: string, id: string): Promise<Task | null>
  taskWithKey(tenant: string, idempotencyKey: string): Promise<Task | null>
  /**
   * Visible tasks (never `pending` or `rejected`), newest first, with ids below `before` (null: from the newest). `createdAfter` and
   * `createdBefore` are left out themselves.
   */
  tasks(tenant: string, filter: TaskFilter, before: string | null, limit: number): Promise<Task[]>
  /** Tasks whose `sweepAt` has come, earliest first. */
  tasksDue(now: number, limit: number): Promise<Task[]>
  /** When the oldest task that is there was created; null when there is none. */
  oldestTask(): Promise<number | null>
  /** How many tasks there are by state and verb, final ones left out. */
  openTasks(): Promise<{ state: TaskState; verb: string; count: number }[]>
  /** Removes final tasks that ended before `before` and have nothing to relay, in any order, with their deliveries. Answers how many. */
  removeTasks(before: number, limit: number): Promise<number>

  /**
   * Stores the deliveries of a task, those that are not there yet, and clears its outbox and `sweepAt`, in one write. Nothing happens when
   * the task is not there.
   */
  relay(taskId: string, deliveries: Delivery[]): Promise<void>
  /**
   * Leases pending deliveries that are due, `limit` of them now: at most `perHost` of one receiver and `perTenant` of one tenant are leased
   * at any time. Longest due first, one for each tenant before any gets a second. One whose lease ended is claimed again, with the next
   * epoch.
   */
  claimDeliveries(now: number, leaseUntil: number, caps: { limit: number; perHost: number; perTenant: number }): Promise<Delivery[]>
  /**
   * Writes an attempt down under the claim's epoch, with what comes next, and makes `release` due at `at` if it waits, in the same write.
   * Written down once: the same attempt again is `recorded`. `lost`: another claim has it, or this one gave it back.
   */
  recordAttempt(
    id: string,
    epoch: number,
    attempt: DeliveryAttempt,
    next: { state: 'pending' | 'delivered' | 'failed'; nextAttemptAt: number | null },
    release: { id: string; at: number } | null,
  ): Promise<'recorded' | 'lost'>
  /** Gives a claimed delivery back unspent, due at `at`, unless another claim has it. */
  returnDelivery(id: string, epoch: number, at: number): Promise<void>
  /** The deliveries of a task, in the order of their ids. */
  deliveries(taskId: string): Promise<Delivery[]>
}
