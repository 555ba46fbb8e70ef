/** Store verbs for tasks, webhook deliveries and ended media periods. */
import type { Redelivery } from '../../domain/webhook-redelivery.ts'
import type { MediaPeriod } from '../../domain/subscription/subscription.ts'
import type {
  Delivery,
  DeliveryAttempt,
  LoggedEvent,
  ReplayPosition,
  ReplayRange,
  Task,
  TaskFacts,
  TaskFilter,
  TaskGuard,
  TaskState,
} from '../../domain/task.ts'

/** Longer than any write can be late: the position of a removed event is free for a write that was sent before its position was taken. */
export const LATE_WRITE_MS = 24 * 3_600_000

/** Concurrent claims of deliveries: `limit` is that of one call, the others hold over all processes. `perQueue` may differ between
 * processes and calls; `queues` has the queues with another one, by `queueName`. */
export type DeliveryCaps = { limit: number; perHost: number; perTenant: number; perQueue: number; queues?: ReadonlyMap<string, number> }

export type DeliveryQueue = Pick<Delivery, 'tenant' | 'host'>

/** The name of a queue in `DeliveryCaps`, and among the full ones. */
export const queueName = ({ tenant, host }: DeliveryQueue): string => `${tenant} ${host}`

/** How many deliveries of a queue may be leased at once. */
export function capOf({ perQueue, queues }: DeliveryCaps, queue: DeliveryQueue): number {
  return queues?.get(queueName(queue)) ?? perQueue
}

/**
 * Due tasks in these states, at most `limit`: of the tenants whose names come after `after`, in the order of the names, at most `perTenant` of each, the earliest ones. The last
 * tenant may have more than were returned.
 */
export type DueList = { states: readonly TaskState[]; after: string; limit: number; perTenant: number }

/** `oldestAt`: epoch milliseconds of the creation of the oldest; of tasks that settle, the time of the first outcome. */
export type OpenTasks = { state: TaskState; kind: string; count: number; oldestAt: number }

/** The final state of a task, and its facts. */
export type TaskEnd = { state: TaskState; facts: TaskFacts }

export type TaskStore = {
  /**
   * Ids of subscriptions with a queued task of one of these kinds that is ready at `now`, and a free concurrency slot. The one not served for
   * the longest time first; of those never served, the one ready for the longest time.
   */
  subscriptionsDue(kinds: string[], now: number, limit: number): Promise<string[]>
  /** Archives an ended period. Idempotent: the first one stored for a subscription and number stays. */
  archivePeriod(subscription: string, period: MediaPeriod): Promise<void>
  /** The archived periods of a subscription, oldest first. */
  periods(subscription: string): Promise<MediaPeriod[]>

  /** Stores a new task unless one has its tenant and idempotency key, or its id; returns the stored one either way. */
  createTask(task: Task): Promise<{ outcome: 'created' | 'existing'; task: Task }>
  /**
   * Changes the state of a task that passes the guard, and its facts in the same write; returns the task as it is then, or null when it did
   * not pass or is not there. `idempotency: null` frees the key.
   */
  moveTask(id: string, guard: TaskGuard, to: TaskState, facts: TaskFacts): Promise<Task | null>
  /**
   * Renews the lease of a run (`sweepAt`) and records its progress, which never decreases. `lost`: the task is no longer processing under
   * this epoch.
   */
  renewTask(id: string, epoch: number, progress: number, sweepAt: number): Promise<'ok' | 'lost'>
  /** By id, in any state; null also for another tenant's task. */
  task(tenant: string, id: string): Promise<Task | null>
  taskWithKey(tenant: string, idempotencyKey: string): Promise<Task | null>
  /**
   * Visible tasks (never `pending` or `rejected`), newest first, with ids below `before` (null: from the newest). `createdAfter` and
   * `createdBefore` are exclusive.
   */
  tasks(tenant: string, filter: TaskFilter, before: string | null, limit: number): Promise<Task[]>
  /** The tasks of each list whose `sweepAt` has come, as the list asks for them. */
  tasksDue(now: number, lists: DueList[]): Promise<Task[][]>
  /** Creation time of the oldest task; null when there is none. */
  oldestTask(): Promise<number | null>
  /** Tasks by state and kind or operation, without final ones. */
  openTasks(): Promise<OpenTasks[]>
  /** Removes final tasks that ended before `before` and have an empty outbox, in any order, with their deliveries. Returns how many. */
  removeTasks(before: number, limit: number): Promise<number>

  /**
   * Stores the deliveries of a task and appends its events to the tenant's log, those that are not stored yet, and clears its outbox and `sweepAt`,
   * in one write; with `end`, it makes a task that is settling final in that write. The delivery of an event has the body that is logged. Returns
   * the task as it is then, or null when it is not there, or not settling.
   */
  relay(taskId: string, deliveries: Delivery[], events: LoggedEvent[], end?: TaskEnd): Promise<Task | null>
  /**
   * The events of a tenant in the order of the log, those after the position `after` (0: from the first) that were relayed at `since` or later. An event
   * never appears before one that a reader has seen: who goes on after the last position misses none, however late a write lands.
   */
  events(tenant: string, after: number, since: number, limit: number): Promise<(LoggedEvent & { position: number })[]>
  /** Removes events that were relayed before `before`; their positions are not used again. Returns how many. `before` is at least `LATE_WRITE_MS` ago. */
  removeEvents(before: number, limit: number): Promise<number>
  /** Events of every tenant get positions after this one from now on. Only while no process appends any. */
  raiseEventFloor(position: number): Promise<void>
  /**
   * Leases up to `limit` pending deliveries that are due. At most `perHost` of one receiver, `perTenant` of one tenant and `perQueue` of
   * one tenant to one receiver are leased at any time, over all processes. Longest due first, round-robin over tenants. A delivery whose
   * lease expired is claimed again under the next epoch.
   */
  claimDeliveries(now: number, leaseUntil: number, caps: DeliveryCaps): Promise<Delivery[]>
  /**
   * Records an attempt under the claim's epoch, with the next state, and makes the delivery `release` due at `at` if it is `waiting`, in the
   * same write. A redelivery is over then. Idempotent: the same attempt again is `recorded`. `lost`: another claim has the delivery, or this one returned it.
   */
  recordAttempt(
    id: string,
    epoch: number,
    attempt: DeliveryAttempt,
    next: { state: 'pending' | 'delivered' | 'failed'; nextAttemptAt: number | null },
    release: { id: string; at: number } | null,
  ): Promise<'recorded' | 'lost'>
  /** Returns a claimed delivery without an attempt, due at `at`, unless another claim has it. */
  returnDelivery(id: string, epoch: number, at: number): Promise<void>
  /** The deliveries of a task, ordered by id. */
  deliveries(taskId: string): Promise<Delivery[]>
  /**
   * Makes a delivery due at `now` for one more attempt, by the rule of `redeliver` in `src/domain/webhook-redelivery.ts`, and returns it as it is
   * then. Null: not there, or another tenant's.
   */
  redeliver(tenant: string, id: string, now: number): Promise<{ outcome: Redelivery['outcome']; delivery: Delivery } | null>
  /**
   * Examines up to `limit` deliveries of a range, of whichever event and state, oldest first, after the position, and makes due those that it selects and the same rule allows. `count`: how
   * many became due. `next`: where the next call goes on; null at the end of the range.
   */
  replay(
    tenant: string,
    range: ReplayRange,
    after: ReplayPosition | null,
    now: number,
    limit: number,
  ): Promise<{ count: number; next: ReplayPosition | null }>
}
