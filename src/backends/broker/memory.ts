/** Broker within one process. */
import { detached } from '../../telemetry/tracing.ts'
import type { Message } from '../../domain/broker-messages.ts'
import type { Broker, BrokerContext } from './broker.ts'

export function openMemory({ counted }: Pick<BrokerContext, 'counted'>): Broker {
  const subscribers = new Map<string, Set<{ received: (message: Message) => Promise<void>; paused: boolean }>>()
  return {
    publish(message) {
      const { kind } = message
      counted('published', kind, 1)
      // Asynchronous, as between processes: a publisher is never called back before it returns.
      detached(() =>
        setImmediate(() => {
          for (const subscriber of subscribers.get(kind) ?? []) {
            if (subscriber.paused) continue
            counted('received', kind, 1)
            // A process that ends loses its messages: it reads the store when it starts.
            void subscriber.received(message).catch(() => {})
          }
        }),
      )
    },
    publishUsage: null,
    consume(kind, received) {
      const subscriber = { received, paused: false }
      subscribers.set(kind, (subscribers.get(kind) ?? new Set()).add(subscriber))
      return {
        isReceiving: () => subscribers.get(kind)?.has(subscriber) ?? false,
        stop: () => void subscribers.get(kind)?.delete(subscriber),
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
