/**
 * Admission queue: requests that other requests block wait per subscription, in FIFO order and for a bounded time, each behind those of its own cause: the plan's concurrency, the tokens
 * of a window, or those of its key. A request that needs more tokens than are left lets smaller ones pass for half of its time; then those of its cause wait for it.
 */
import type { Writable } from 'node:stream'

/** Why a request is blocked. `cause`: requests with an equal one wait for each other. It `needs` tokens of which so many are `left`, both 0 where it is not about tokens. */
export type Block = { cause: string; needs: number; left: number }

export type QueuedRequest = {
  subscription: string
  /** Causes that may concern it, without `concurrency`, which concerns every request. */
  causes: readonly string[]
  client: Client
}

export type AdmissionQueue = {
  /** Whether a new request may try at once: nobody waits for whom it would have to wait. */
  isFree(request: Pick<QueuedRequest, 'subscription' | 'causes'>): boolean
  /**
   * Repeats the attempt until its result is not blocked, `maxMs` have passed since the call, or the client disconnected; resolves with the last result.
   */
  admit<A>(request: QueuedRequest, attempt: () => Promise<A>, blockOf: (result: A) => Block | null): Promise<A>
  /** A reservation was settled: those who wait try again now. */
  notify(subscription: string): void
}

/** The response of a waiting request; it closes when the client disconnects. */
export type Client = Pick<Writable, 'closed' | 'once' | 'off'>

export const CONCURRENCY = 'concurrency'

/** `attempt` resolves with whether the wait is over: always, if it is the last one. */
type Waiter = { block: Block; since: number; client: Client; attempt: (isLast: boolean) => Promise<boolean>; isTrying: boolean }

/** `patient`: until when nobody may hold up the others of a cause. */
type Line = {
  waiters: Waiter[]
  patient: Map<string, number>
  isTrying: boolean
  isNotified: boolean
  timer: NodeJS.Timeout
}

/** Per subscription and process. A request above this is tried once. */
const MAX_WAITING = 1_000

/** `retryMs`: how often those who wait try without being notified, because other processes settle reservations too. */
export function openAdmissionQueue(clock: () => number, maxMs = 10_000, retryMs = 250): AdmissionQueue {
  const lines = new Map<string, Line>()

  const isOver = ({ client, since }: Waiter) => client.closed || clock() - since >= maxMs

  /** Whether the others of its cause wait for this one: in the second half of its time, and not right after they have waited for another one. */
  function holdsUp({ patient }: Line, { block: { cause }, since }: Waiter): boolean {
    return cause === CONCURRENCY || (clock() - since >= maxMs / 2 && clock() >= (patient.get(cause) ?? 0))
  }

  /** Whom a new request has to wait for. */
  function waitsFor(line: Line | undefined, causes: readonly string[]): Waiter | undefined {
    return line?.waiters.find(
      (waiter) => (waiter.block.cause === CONCURRENCY || causes.includes(waiter.block.cause)) && holdsUp(line, waiter),
    )
  }

  function lineOf(subscription: string): Line {
    return lines.getOrInsertComputed(subscription, () => {
      const line: Line = {
        waiters: [],
        patient: new Map(),
        isTrying: false,
        isNotified: false,
        timer: setInterval(() => void tryAll(line), retryMs),
      }
      return line
    })
  }

  /** A notification during a round begins another one after it. */
  async function tryAll(line: Line): Promise<void> {
    line.isNotified = true
    if (line.isTrying) return
    line.isTrying = true
    while (line.isNotified) {
      line.isNotified = false
      await round(line)
    }
    line.isTrying = false
  }

  /** Tries in their order all who are not known to be blocked by what those before them have found to be left. */
  async function round(line: Line): Promise<void> {
    const left = new Map<string, number>()
    for (const waiter of line.waiters.slice()) {
      if (waiter.isTrying) continue
      const { cause, needs } = waiter.block
      // A last attempt holds up nobody: the store may take seconds for each.
      if (isOver(waiter)) void tryOne(waiter, true)
      else if (left.has(CONCURRENCY) || needs > (left.get(cause) ?? Infinity)) continue
      else if (!(await tryOne(waiter, false))) left.set(waiter.block.cause, holdsUp(line, waiter) ? -1 : waiter.block.left)
    }
  }

  async function tryOne(waiter: Waiter, isLast: boolean): Promise<boolean> {
    waiter.isTrying = true
    const isDone = await waiter.attempt(isLast)
    waiter.isTrying = isDone
    return isDone
  }

  /** `block` is why it waits. */
  async function wait<A>(
    { subscription, client }: QueuedRequest,
    attempt: () => Promise<A>,
    blockOf: (result: A) => Block | null,
    block: Block,
  ): Promise<A> {
    const line = lineOf(subscription)
    if (line.waiters.length >= MAX_WAITING) return attempt()
    const { promise, resolve, reject } = Promise.withResolvers<A>()
    const waiter: Waiter = {
      block,
      since: clock(),
      client,
      isTrying: false,
      async attempt(isLast) {
        try {
          const result = await attempt()
          const found = blockOf(result)
          if (found) waiter.block = found
          if (found && !isLast) return false
          resolve(result)
        } catch (error) {
          reject(error)
        }
        return true
      },
    }
    line.waiters.push(waiter)
    const onClose = () => void tryAll(line)
    client.once('close', onClose)
    return promise.finally(() => {
      client.off('close', onClose)
      leave(line, waiter, subscription)
    })
  }

  function leave(line: Line, waiter: Waiter, subscription: string): void {
    if (holdsUp(line, waiter)) line.patient.set(waiter.block.cause, clock() + maxMs / 2)
    line.waiters.splice(line.waiters.indexOf(waiter), 1)
    if (line.waiters.length > 0) return
    clearInterval(line.timer)
    lines.delete(subscription)
  }

  return {
    isFree: ({ subscription, causes }) => lines.size === 0 || waitsFor(lines.get(subscription), causes) === undefined,
    async admit(request, attempt, blockOf) {
      const first = waitsFor(lines.get(request.subscription), request.causes)
      if (first) return wait(request, attempt, blockOf, { cause: first.block.cause, needs: 0, left: 0 })
      const result = await attempt()
      const block = blockOf(result)
      return block ? wait(request, attempt, blockOf, block) : result
    },
    notify(subscription) {
      const line = lines.get(subscription)
      if (line) void tryAll(line)
    },
  }
}
