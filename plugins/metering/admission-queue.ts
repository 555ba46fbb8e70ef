/** Where requests wait for room: a queue per subscription, first come first served within this process, bounded in time. */
import type { Writable } from 'node:stream'

export type AdmissionQueue = {
  /**
   * Tries until the answer is not `crowded`, or `maxMs` have passed since the call, or the client left; answers the last one. Whoever came first tries first:
   * while others wait for the same subscription, a newcomer waits behind them.
   */
  enter<A>(subscription: string, attempt: () => Promise<A>, crowded: (answer: A) => boolean, client: Client): Promise<A>
  /** Room may have been made: whoever waits first tries now. */
  poke(subscription: string): void
}

/** Who waits: a response whose `closed` turns true, with its event, when the client leaves. */
export type Client = Pick<Writable, 'closed' | 'once' | 'off'>

/** `isRung`: room was made while this one was trying, so it tries again at once. */
type Place = { wake: () => void; isRung: boolean }

/** More than these wait for one subscription in no process. */
const MOST_WAITING = 1_000

/** `retryMs`: how often the first in the queue looks by itself, because room is also made by other processes. */
export function openAdmissionQueue(clock: () => number, maxMs = 10_000, retryMs = 250): AdmissionQueue {
  const queues = new Map<string, Place[]>()

  function pause(place: Place, ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, ms)
    place.wake = resolve
    return promise.finally(() => clearTimeout(timer))
  }

  return {
    async enter(subscription, attempt, crowded, client) {
      const until = clock() + maxMs
      // While nobody waits, tries run side by side: the store commits them together.
      if (!queues.has(subscription)) {
        const answer = await attempt()
        if (!crowded(answer)) return answer
      }
      const queue = queues.get(subscription) ?? []
      if (queue.length >= MOST_WAITING) return attempt()
      const place: Place = { wake: () => {}, isRung: false }
      queue.push(place)
      queues.set(subscription, queue)
      const leave = () => place.wake()
      client.once('close', leave)
      try {
        for (;;) {
          const remainingMs = until - clock()
          if (queue[0] === place || remainingMs <= 0 || client.closed) {
            place.isRung = false
            const answer = await attempt()
            if (!crowded(answer) || remainingMs <= 0 || client.closed) return answer
          }
          if (!place.isRung) await pause(place, Math.max(1, Math.min(retryMs, remainingMs)))
        }
      } finally {
        client.off('close', leave)
        queue.splice(queue.indexOf(place), 1)
        if (queue.length === 0) queues.delete(subscription)
        queue[0]?.wake()
      }
    },
    poke(subscription) {
      const first = queues.get(subscription)?.[0]
      if (!first) return
      first.isRung = true
      first.wake()
    },
  }
}
