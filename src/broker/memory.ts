/** The doorbell within one process. */
import type { Broker } from './broker.ts'

export function openMemory(): Broker {
  const listeners = new Map<string, Set<(kind: string) => void>>()
  return {
    ring(kind) {
      // Later, like a bell of another process: whoever rings is never run over by whoever hears.
      setImmediate(() => {
        for (const heard of listeners.get(kind) ?? []) heard(kind)
      })
    },
    listen(kinds, heard) {
      for (const kind of kinds) listeners.set(kind, (listeners.get(kind) ?? new Set()).add(heard))
      return () => {
        for (const kind of kinds) listeners.get(kind)?.delete(heard)
      }
    },
    health: () => ({ ok: true, detail: 'in this process' }),
    async close() {
      listeners.clear()
    },
  }
}
