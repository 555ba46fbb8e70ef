/** Batching: concurrent requests of many callers go to a server in one command. */
import { clearTimeout, setTimeout as startTimer } from 'node:timers'
import { Unavailable } from '../domain/errors.ts'

/** The outcome of one request of a batch: its answer, or its failure. */
export type BatchOutcome<Answer> = { answer: Answer } | { failure: unknown }

/** How requests of one kind are sent. */
export type BatchOptions<Request, Answer> = {
  /** The backend that `Unavailable` names. */
  backend: string
  /** Sends one command for all requests and returns their outcomes in the same order. An error it throws fails all of them. */
  send(request: Request[]): Promise<BatchOutcome<Answer>[]>
  /** The id of a request: one command holds an id once. */
  idOf(request: Request): string
  /** Whether one answer may serve several requests of the same id, as for reads; otherwise the second one goes into a later command. */
  shares: boolean
  /** The largest number of ids in one command. */
  most: number
  /** The approximate bytes that a request adds to the command; 0 when absent. */
  weigh?(request: Request): number
  /** False: no request waits for others, since its caller holds what others need. */
  pauses?: boolean
  /** Timeout of one command; 15 s when absent. */
  longestMs?: number
}

type Pending<Request, Answer> = {
  request: Request
  id: string
  weight: number
  sinceMs: number
  resolve(answer: Answer): void
  reject(failure: unknown): void
}

/**
 * Longer than server selection (3 s), connecting (5 s) and the answer (5 s) together. A command that a client library never settles, as
 * MongoDB's did (`patchWrites`), must not block all later ones.
 */
const LONGEST_MS = 15_000
/** Requests that have queued for this long are dropped: an overloaded server would otherwise do work whose callers have given up. */
const STALE_MS = 20_000
/** Longest pause after a command. One costs the driver and the server half a millisecond of processor time, however few requests it has. */
const MAX_PAUSE_MS = 5
/** Size limit of a command, unless a single request is larger: a large command delays all later ones. */
const MOST_BYTES = 2 * 1024 * 1024

/**
 * Returns a function that requests one thing and batches concurrent requests, one command at a time. Requests of the same event-loop turn
 * share a command; requests during a command go into the next. That one is sent at once if they are as many as it holds ids, and otherwise,
 * however large they are, after a pause as long as the last command took, up to 5 ms, for more of them. So no answer is older than its
 * request, and a lone request is not delayed. When a command throws, the requests that did not fit into it fail as well, rather than wait
 * for a second failure. A command that times out is `Unavailable` and the next one is sent; a request that has queued for 20 s is
 * `Unavailable` too. `now`: milliseconds of a monotonic clock.
 */
export function createBatcher<Request, Answer>(
  kind: BatchOptions<Request, Answer>,
  now: () => number = performance.now.bind(performance),
): (request: Request) => Promise<Answer> {
  let waiting: Pending<Request, Answer>[] = []
  let isBusy = false

  function begin(): void {
    isBusy = true
    // Requests of the rest of this turn join the command.
    setImmediate(() => void sendNext())
  }

  async function sendNext(): Promise<void> {
    const begunMs = now()
    const { batch, rest } = next(freshOf(waiting), kind)
    waiting = [...rest]
    try {
      if (batch.length === 0) return
      answer(batch, await withTimeout(kind.backend, kind.longestMs ?? LONGEST_MS, kind.send(batch.map(({ request }) => request))))
    } catch (error) {
      const failed = new Set([...batch, ...rest])
      waiting = waiting.filter((one) => !failed.has(one))
      for (const { reject } of failed) reject(error)
    } finally {
      const pauseMs = Math.min(MAX_PAUSE_MS, now() - begunMs)
      if (waiting.length === 0) isBusy = false
      else if (kind.pauses === false || waiting.length >= kind.most || pauseMs < 1) begin()
      else startTimer(() => void sendNext(), pauseMs)
    }
  }

  /** The requests that have not queued for too long; the others are rejected. */
  function freshOf(all: Pending<Request, Answer>[]): Pending<Request, Answer>[] {
    const staleMs = now() - STALE_MS
    for (const { sinceMs, reject } of all)
      if (sinceMs < staleMs) reject(new Unavailable(kind.backend, new Error('too many requests are queued'), 'store_queue'))
    return all.filter(({ sinceMs }) => sinceMs >= staleMs)
  }

  return (request) =>
    new Promise((resolve, reject) => {
      waiting.push({ request, id: kind.idOf(request), weight: kind.weigh?.(request) ?? 0, sinceMs: now(), resolve, reject })
      if (!isBusy) begin()
    })
}

/** Resolves like `work`, or rejects with `Unavailable` after `longestMs`. */
export async function withTimeout<T>(backend: string, longestMs: number, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = startTimer(() => late.reject(new Unavailable(backend, new Error(`no answer within ${longestMs} ms`))), longestMs).unref()
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

function answer<Request, Answer>(batch: Pending<Request, Answer>[], outcomes: BatchOutcome<Answer>[]): void {
  for (const [n, { resolve, reject }] of batch.entries()) {
    const one = outcomes[n] ?? { failure: new TypeError('a command returned no outcome for one of its requests') }
    if ('answer' in one) resolve(one.answer)
    else reject(one.failure)
  }
}

/** Splits the queue into the next command, oldest first, and the rest. */
function next<Request, Answer>(waiting: Pending<Request, Answer>[], { shares, most }: BatchOptions<Request, Answer>) {
  const batch: Pending<Request, Answer>[] = []
  const rest: Pending<Request, Answer>[] = []
  const ids = new Set<string>()
  let bytes = 0
  for (const one of waiting) {
    const { id } = one
    const isNew = !ids.has(id)
    const weight = isNew ? one.weight : 0
    const hasRoom = isNew ? ids.size < most && (ids.size === 0 || bytes + weight <= MOST_BYTES) : shares
    if (hasRoom) {
      ids.add(id)
      bytes += weight
      batch.push(one)
    } else rest.push(one)
  }
  return { batch, rest }
}
