/**
 * Watches tasks for event streams and for callers that wait (`Prefer: wait`, MCP's `wait_seconds`): one poll loop per task and process, with back-off while nothing
 * changes, however many follow it.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { openCounts } from '../../src/domain/counts-by-name.ts'
import { FINAL, taskLogFields, type Task } from '../../src/domain/task.ts'

declare module 'fastify' {
  interface FastifyInstance {
    taskWatch: TaskWatch
  }
}

/** Called with the task as it is at first known and after each change; with null once the task was removed. */
export type Listener = (task: Task | null) => void

export type TaskWatch = {
  /** Returns the function that ends it. A final task is reported once and watched no longer. */
  watch(task: Task, listener: Listener): () => void
  /**
   * Resolves with the task as it was read last: `final` once it has ended, `open` when `ms` are over, `signal` is aborted or the program stops, and `refused`, at once,
   * when the caller, a key or a session (`countedBy`), has as many waits as it may have. `changed` is called as a listener is. Never fails: while the store is unavailable it waits on.
   */
  untilFinal(task: Task, countedBy: string, wait: Wait): Promise<{ outcome: 'final' | 'open' | 'refused'; task: Task }>
}

export type Wait = {
  ms: number
  /** Aborted when the client has left. */
  signal: AbortSignal
  changed?: (task: Task) => void
}

/** Waits that one caller may have open in this process. */
export const WAITS_PER_CALLER = 50

const POLL_MS = { first: 200, longest: 1_000, growth: 1.5 }

type Watch = { listeners: Set<Listener>; latest: Task; timer: NodeJS.Timeout | undefined }

async function taskWatch(app: FastifyInstance): Promise<void> {
  const { log } = app
  const { store } = app.tasks
  const watches = new Map<string, Watch>()
  const waits = new Set<() => void>()
  const waitsByCaller = openCounts()
  let stopping = false

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
      log.warn({ event: 'task_watch_failed', err, ...taskLogFields(latest) }, 'task watch failed, retrying')
      if (watch.listeners.size > 0) poll(watch, slower)
    }
  }

  function watch(task: Task, listener: Listener): () => void {
    listener(task)
    if (FINAL.includes(task.state)) return () => {}
    const watched = watches.get(task.id) ?? begin(task)
    watched.listeners.add(listener)
    // What the loop has read may be newer.
    if (watched.latest !== task) listener(watched.latest)
    return () => {
      watched.listeners.delete(listener)
      if (watched.listeners.size > 0) return
      clearTimeout(watched.timer)
      if (watches.get(task.id) === watched) watches.delete(task.id)
    }
  }

  /** The task after its wait: it may have ended since the loop read it. */
  async function latestOf(task: Task): Promise<Task> {
    return (await store.task(task.tenant, task.id).catch(() => null)) ?? task
  }

  async function untilFinal(task: Task, countedBy: string, { ms, signal, changed }: Wait): ReturnType<TaskWatch['untilFinal']> {
    const isRefused = waitsByCaller.of(countedBy) >= WAITS_PER_CALLER && !FINAL.includes(task.state)
    if (isRefused || ms <= 0 || signal.aborted || stopping) {
      changed?.(task)
      return { outcome: FINAL.includes(task.state) ? 'final' : isRefused ? 'refused' : 'open', task }
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    const stop = () => resolve()
    let latest = task
    waits.add(stop)
    waitsByCaller.add(countedBy, 1)
    signal.addEventListener('abort', stop)
    const unwatch = watch(task, (now) => {
      if (now) changed?.(now)
      latest = now ?? latest
      if (now === null || FINAL.includes(now.state)) stop()
    })
    const timer = setTimeout(stop, ms)
    await promise
    clearTimeout(timer)
    unwatch()
    signal.removeEventListener('abort', stop)
    waits.delete(stop)
    waitsByCaller.add(countedBy, -1)
    if (!FINAL.includes(latest.state) && !signal.aborted) latest = await latestOf(latest)
    return { outcome: FINAL.includes(latest.state) ? 'final' : 'open', task: latest }
  }

  app.decorate('taskWatch', { watch, untilFinal })
  // A client that waits gets the present record when the program stops, instead of a closed connection.
  app.addHook('preClose', async () => {
    stopping = true
    for (const stop of waits) stop()
  })
}

/** What of a task its events show. */
function signOf({ state, progress, startedAt }: Task): string {
  return `${state} ${progress} ${startedAt}`
}

export default fp(taskWatch, { name: 'task-watch', fastify: '5.x', decorators: { fastify: ['tasks'] } })
