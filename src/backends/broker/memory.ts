/** The doorbell within one process. */
import type { Broker, BrokerSurroundings } from './broker.ts'

type Listener = { heard: (kind: string) => void; paused: boolean }

export function openMemory({ counted }: Pick<BrokerSurroundings, 'counted'>): Broker {
  const listeners = new Map<string, Set<Listener>>()
  return {
    publish(kind) {
      counted('rung', kind, 1)
      // Later, like a bell of another process: whoever rings is never run over by whoever hears.
      setImmediate(() => {
        for (const listener of listeners.get(kind) ?? []) {
          if (listener.paused) continue
          counted('heard', kind, 1)
          listener.heard(kind)
        }
      })
    },
    consume(kinds, heard) {
      const listener = { heard, paused: false }
      for (const kind of kinds) listeners.set(kind, (listeners.get(kind) ?? new Set()).add(listener))
      return {
        stop() {
          for (const kind of kinds) listeners.get(kind)?.delete(listener)
        },
        pause() {
          listener.paused = true
        },
        resume() {
          listener.paused = false
        },
      }
    },
    health: () => ({ ok: true, detail: 'in this process' }),
    async close() {
      listeners.clear()
    },
  }
}
