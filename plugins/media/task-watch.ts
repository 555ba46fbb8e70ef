/** Watches tasks for their event streams: one poll loop per task and process, with back-off while nothing changes, however many streams follow it. */
import type { FastifyBaseLogger } from 'fastify'
import type { Store } from '../../src/backends/store/store.ts'
import { FINAL, type Task } from '../../src/domain/task.ts'

/** Called with the task as it is at first known and after each change; with null once the task was removed. */
export type Listener = (task: Task | null) => void

const POLL_MS = { first: 200, longest: 2_000, growth: 1.5 }

type Watch = { listeners: Set<Listener>; latest: Task; timer: NodeJS.Timeout | undefined }

/** `watch` returns the function that ends it. A final task is reported once and watched no longer. */
export function openTaskWatch(store: Store, log: FastifyBaseLogger): { watch(task: Task, listener: Listener): () => void } {
  const watches = new Map<string, Watch>()

  function begin(task: Task): Watch {
    const watch: Watch = { listeners: new Set(), latest: task, timer: undefined }
    watches.set(task.id, watch)
    poll(watch, POLL_MS.first)
    return watch
  }

  function poll(watch: Watch, pauseMs: number): void {
    watch.timer = setTimeout(() => void look(watch, pauseMs), pauseMs)
  }

  async function look(watch: Watch, pausedMs: number): Promise<void> {
    const { latest } = watch
    const slower = Math.min(pausedMs * POLL_MS.growth, POLL_MS.longest)
    try {
      const task = await store.task(latest.tenant, latest.id)
      if (watch.listeners.size === 0) return
      const hasChanged = task === null || signOf(task) !== signOf(latest)
      if (task) watch.latest = task
      if (task === null || FINAL.includes(task.state)) watches.delete(latest.id)
      else poll(watch, hasChanged ? POLL_MS.first : slower)
      if (hasChanged) for (const listener of watch.listeners) listener(task)
    } catch (err) {
      log.warn({ event: 'task_watch_failed', err, taskId: latest.id }, 'task watch failed, retrying')
      if (watch.listeners.size > 0) poll(watch, slower)
    }
  }

  return {
    watch(task, listener) {
      listener(task)
      if (FINAL.includes(task.state)) return () => {}
      const watch = watches.get(task.id) ?? begin(task)
      watch.listeners.add(listener)
      // What the loop has read may be newer.
      if (watch.latest !== task) listener(watch.latest)
      return () => {
        watch.listeners.delete(listener)
        if (watch.listeners.size > 0) return
        clearTimeout(watch.timer)
        if (watches.get(task.id) === watch) watches.delete(task.id)
      }
    },
  }
}

/** What of a task its events show. */
function signOf({ state, progress, startedAt }: Task): string {
  return `${state} ${progress} ${startedAt}`
}
