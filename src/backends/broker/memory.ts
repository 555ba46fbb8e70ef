/** Broker within one process. */
import { detached } from '../../tracing/tracing.ts'
import type { Broker, BrokerContext } from './broker.ts'

type Subscriber = { received: (kind: string) => void; paused: boolean }

export function openMemory({ counted }: Pick<BrokerContext, 'counted'>): Broker {
  const subscribers = new Map<string, Set<Subscriber>>()
  return {
    publish(kind) {
      counted('rung', kind, 1)
      // Asynchronous, as between processes: a publisher is never called back before it returns.
      detached(() => setImmediate(() => {
        for (const subscriber of subscribers.get(kind) ?? []) {
          if (subscriber.paused) continue
          counted('heard', kind, 1)
          subscriber.received(kind)
        }
      }))
    },
    consume(kinds, received) {
      const subscriber = { received, paused: false }
      for (const kind of kinds) subscribers.set(kind, (subscribers.get(kind) ?? new Set()).add(subscriber))
      return {
        stop() {
          for (const kind of kinds) subscribers.get(kind)?.delete(subscriber)
        },
        pause() {
          subscriber.paused = true
        },
        resume() {
          subscriber.paused = false
        },
      }
    },
    health: () => ({ ok: true, detail: 'in this process' }),
    async close() {
      subscribers.clear()
    },
  }
}
