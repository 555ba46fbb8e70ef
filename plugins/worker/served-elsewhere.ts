/** Which kinds and operations other workers take: those of which this process has seen runs. */
import type { TaskState } from '../../src/domain/task.ts'

/** Workers restart, and a kind that they take may have no run for a while. */
const UNSEEN_MS = 3_600_000

export type ServedElsewhere = {
  /** `counts`: of the open tasks at `now`. */
  observe(counts: readonly { state: TaskState; kind: string }[], now: number): void
  /** False only when no run was seen for an hour of observation, up to a minute ago. */
  isServed(kind: string, now: number): boolean
}

/** After a gap of a minute without observations they start anew. */
export function openServedElsewhere(): ServedElsewhere {
  const seenAt = new Map<string, number>()
  let sinceMs = Infinity
  let lastMs = -Infinity
  const isInterrupted = (now: number): boolean => now - lastMs > UNSEEN_MS / 60
  return {
    observe(counts, now) {
      if (isInterrupted(now)) sinceMs = now
      lastMs = now
      for (const { state, kind } of counts) if (state === 'processing') seenAt.set(kind, now)
    },
    isServed: (kind, now) => isInterrupted(now) || now - Math.max(sinceMs, seenAt.get(kind) ?? -Infinity) < UNSEEN_MS,
  }
}
