/** `tollgate trace`: what the store knows of a request or a task. Reads only, and returns nothing of its content. */
import type { Store } from '../backends/store/store.ts'
import type { CodingRequest, RequestPosition } from '../domain/coding-requests.ts'
import { holdOf } from '../domain/subscription/holds.ts'
import { idAt, resultsOf, type Delivery, type DeliveryAttempt, type Task, type TaskResult } from '../domain/task.ts'
import { readAll, readPages } from '../tasks/paged-reads.ts'

const SHOWN = [
  'id',
  'tenant',
  'subscription',
  'keyVersionId',
  'requestId',
  'kind',
  'state',
  'attempts',
  'lostLeases',
  'estimatedCost',
  'actualCost',
  'refundAmount',
  'createdAt',
  'startedAt',
  'endedAt',
] as const

/** Times are epoch milliseconds, money is micro-units. */
export type TaskStory = Pick<Task, (typeof SHOWN)[number]> & {
  /** Its money is still reserved in the plan. */
  isHeld: boolean
  /** End of the lease of its run; null when it does not run. */
  leaseUntil: number | null
  /** When a queued task may run; null in other states. */
  readyAt: number | null
  error: string | null
  /** What was made; none until it completed. */
  results: Pick<TaskResult, 'contentType' | 'bytes' | 'expiresAt'>[]
  deliveries: DeliveryStory[]
}

/** Without the body, and without the address but its host: the tenant may have put a secret into it. */
export type DeliveryStory = Pick<Delivery, 'event' | 'host' | 'state' | 'nextAttemptAt' | 'createdAt'> & {
  attempts: Omit<DeliveryAttempt, 'responsePrefix'>[]
}

/** A coding request in flight. */
export type ReservationStory = { id: string; subscription: string; keyId: string; tokens: number; at: number }

/** `request`: a coding request that has ended, if it is among the newest of its plan. */
export type Story = { tasks: TaskStory[]; reservation: ReservationStory | null; request: CodingRequest | null }

const PAGE = 500
/** A request of ours has the time of its beginning in its id; its task comes at the latest after a body of two minutes and a slow store. */
const WINDOW_MS = { before: 60_000, after: 10 * 60_000 }
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * The task, the tasks of the request, the open reservation, or the coding request with this id. A request is sought around the time in its id, if that is a
 * UUID v7, or among those from `since` on (epoch milliseconds) where that is given. Throws `Unavailable`.
 */
export async function traceOf(store: Store, id: string, since: number | null): Promise<Story> {
  const tasks = UUID.test(id) ? await tasksFrom(store, id.slice(0, -1), `${id}0`, (task) => task.id === id) : []
  if (tasks.length === 0) tasks.push(...(await tasksOfRequest(store, id, since)))
  const reservation = tasks.length === 0 ? await reservationOf(store, id) : null
  const request = tasks.length === 0 && !reservation ? await requestOf(store, id, since) : null
  return { tasks: await Promise.all(tasks.map((task) => storyOf(store, task))), reservation, request }
}

async function tasksOfRequest(store: Store, id: string, since: number | null): Promise<Task[]> {
  const isMaker = (task: Task) => task.requestId === id
  if (since !== null) return tasksFrom(store, idAt(since), null, isMaker)
  const at = timeOf(id)
  return at === null ? [] : tasksFrom(store, idAt(at - WINDOW_MS.before), idAt(at + WINDOW_MS.after), isMaker)
}

/** The tasks with ids above `after` and below `before` that `matches`. */
async function tasksFrom(store: Store, after: string, before: string | null, matches: (task: Task) => boolean): Promise<Task[]> {
  const matching: Task[] = []
  for (let next: string | null = after; next !== null;) {
    const page: Awaited<ReturnType<typeof store.scan<'tasks'>>> = await store.scan('tasks', next, PAGE)
    matching.push(...page.found.filter(matches))
    next = page.next !== null && (before === null || page.next < before) ? page.next : null
  }
  return matching
}

/** The time of a UUID v7 (RFC 9562, section 5.7); null for any other id. */
function timeOf(id: string): number | null {
  return UUID.test(id) && id[14] === '7' ? parseInt(id.slice(0, 8) + id.slice(9, 13), 16) : null
}

async function reservationOf(store: Store, id: string): Promise<ReservationStory | null> {
  for await (const { id: subscription, coding } of readPages(PAGE, (after) => store.subscriptionsWith('reservations', after, PAGE))) {
    const { keyId, tokens, at } = coding?.reservations[id] ?? {}
    if (keyId !== undefined && tokens !== undefined && at !== undefined) return { id, subscription, keyId, tokens, at }
  }
  return null
}

/** By its id or that of its reservation. */
async function requestOf(store: Store, id: string, since: number | null): Promise<CodingRequest | null> {
  const at = since === null ? timeOf(id) : null
  const from = at === null ? (since ?? 0) : at - WINDOW_MS.before
  for await (const { id: subscription } of readAll(store, 'subscriptions')) {
    let last: RequestPosition | null = at === null ? null : { at: at + WINDOW_MS.after, id: '' }
    do {
      const page: CodingRequest[] = await store.requests(subscription, last, PAGE)
      const found = page.find((one) => one.at >= from && [one.id, one.requestId].includes(id))
      if (found) return found
      last = page.length < PAGE ? null : (page.at(-1) ?? null)
    } while (last && last.at >= from)
  }
  return null
}

async function storyOf(store: Store, task: Task): Promise<TaskStory> {
  const { id, subscription, state, outcome } = task
  const shown = SHOWN.filter((name) => task[name] !== undefined).map((name) => [name, task[name]])
  const hold = holdOf((await store.subscription(subscription))?.media?.holds, id)
  return {
    ...(Object.fromEntries(shown) as Pick<Task, (typeof SHOWN)[number]>),
    isHeld: hold !== undefined,
    leaseUntil: state === 'processing' ? task.sweepAt : null,
    readyAt: state === 'queued' ? (hold?.readyAt ?? null) : null,
    error: outcome?.outcome === 'failed' ? outcome.code : null,
    results:
      outcome?.outcome === 'completed'
        ? resultsOf(outcome.result).map(({ contentType, bytes, expiresAt }) => ({ contentType, bytes, expiresAt }))
        : [],
    deliveries: (await store.deliveries(id)).map(({ event, host, state, nextAttemptAt, createdAt, attempts }) => {
      return { event, host, state, nextAttemptAt, createdAt, attempts: attempts.map(({ responsePrefix: _theirs, ...attempt }) => attempt) }
    }),
  }
}
