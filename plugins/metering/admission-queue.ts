/** Admission queue: requests that exceed the plan's concurrency or a window's free tokens wait per subscription, in FIFO order and for a bounded time. */
import type { Writable } from 'node:stream'

export type AdmissionQueue = {
  /**
   * Repeats the attempt until its result is not `blocked`, `maxMs` have passed since the call, or the client disconnected; resolves with the last
   * result. Requests of one subscription are tried in the order of their arrival.
   */
  admit<A>(subscription: string, attempt: () => Promise<A>, blocked: (result: A) => boolean, client: Client): Promise<A>
  /** A reservation was settled: the first request of the queue tries again now. */
  notify(subscription: string): void
}

/** The response of a waiting request; it closes when the client disconnects. */
export type Client = Pick<Writable, 'closed' | 'once' | 'off'>

/** `notified`: a reservation was settled during its attempt, so it tries again at once. */
type Waiter = { wake: () => void; notified: boolean }

/** Per subscription and process. A request above this is tried once. */
const MAX_WAITING = 1_000

/** `retryMs`: how often the first of a queue tries without being notified, because other processes settle reservations too. */
export function openAdmissionQueue(clock: () => number, maxMs = 10_000, retryMs = 250): AdmissionQueue {
  const queues = new Map<string, Waiter[]>()

  function pause(waiter: Waiter, ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, ms)
    waiter.wake = resolve
    return promise.finally(() => clearTimeout(timer))
  }

  return {
    admit(subscription, attempt, blocked, client) {
      const deadline = clock() + maxMs
      const wait = () => queued(subscription, attempt, blocked, client, deadline)
      // Without a queue, attempts run concurrently: the store commits them together.
      return queues.has(subscription) ? wait() : attempt().then((result) => (blocked(result) ? wait() : result))
    },
    notify(subscription) {
      const first = queues.get(subscription)?.[0]
      if (!first) return
      first.notified = true
      first.wake()
    },
  }

  async function queued<A>(
    subscription: string,
    attempt: () => Promise<A>,
    blocked: (result: A) => boolean,
    client: Client,
    deadline: number,
  ): Promise<A> {
    const queue = queues.get(subscription) ?? []
    if (queue.length >= MAX_WAITING) return attempt()
    const waiter: Waiter = { wake: () => {}, notified: false }
    queue.push(waiter)
    queues.set(subscription, queue)
    const onClose = () => waiter.wake()
    client.once('close', onClose)
    try {
      for (;;) {
        const remainingMs = deadline - clock()
        if (queue[0] === waiter || remainingMs <= 0 || client.closed) {
          waiter.notified = false
          const result = await attempt()
          if (!blocked(result) || remainingMs <= 0 || client.closed) return result
        }
        if (!waiter.notified) await pause(waiter, Math.max(1, Math.min(retryMs, remainingMs)))
      }
    } finally {
      client.off('close', onClose)
      queue.splice(queue.indexOf(waiter), 1)
      if (queue.length === 0) queues.delete(subscription)
      queue[0]?.wake()
    }
  }
}
