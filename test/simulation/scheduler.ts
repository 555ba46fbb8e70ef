/**
 * Deterministic scheduler of a simulation. Every call to the store is a step. The scheduler holds all steps, replies, timers and late writes, picks
 * one of those that are ready by the seeded random numbers, runs it, and lets the event loop settle before the next.
 */
import { Unavailable } from '../../src/domain/errors.ts'
import type { Command } from '../../src/domain/subscription/commands.ts'
import type { Rng } from './seeded-random.ts'
import type { Real, Tear } from './real-store.ts'

/**
 * The fault injected into one step. `late`: its caller gets `Unavailable`, and it is written later. `torn`: its caller gets `Unavailable`, and only
 * the first of its writes may have taken effect.
 */
export type Fault =
  | 'none'
  | 'slow_reply'
  | 'lost'
  /** Its caller learns only later that it was lost. */
  | 'lost_late'
  | 'unknown'
  | 'late'
  | 'crash_before'
  | 'crash_after'
  | 'crash_late'
  | 'freeze_before'
  | 'freeze_after'
  | 'torn'
  /** A replacement of a record that another process changed first. */
  | 'conflict'
  | 'crash_torn'

/** A process of the installation, until it crashes; its replacement is a new one. */
export type Process = {
  name: string
  /** Offset of its clock from the true time. */
  skewMs: number
  /** Offset of its wall clock, from which it does not take its time (`clocks.ts`). */
  wallOffMs: number
  frozenUntil: number
  alive: boolean
  /** Commands in its queues that are not answered yet. */
  pending: Set<PendingCommand>
  /** Callbacks for external callers that wait for it. */
  onCrash: Set<() => void>
}

/** An activity of a process. `fence`: the task run that it belongs to. */
export type Actor = { process: Process; name: string; fence: { task: string; epoch: number } | null }

export type PendingCommand = { actor: Actor; subscription: string; command: Command }

export type Step = {
  actor: Actor
  /** The verb and its distinguishing argument, such as `moveTask settling`. */
  label: string
  args: unknown[]
  writes: boolean
  /** When it was requested. */
  since: number
  /** The commands that a write of a subscription's record may contain. */
  commands: PendingCommand[]
  perform(): Promise<unknown>
  resolve(value: unknown): void
  reject(error: unknown): void
}

export type SchedulerOptions = {
  rng: Rng
  /** Epoch milliseconds at the beginning. */
  start: number
  faultFor(step: Step): { fault: Fault; ms: number }
  /** Called after a step was performed. Returns the frozen processes to resume. */
  passed(step: Step): Process[]
  /** Called after every step that wrote, with its result; null if it was torn. */
  wrote(step: Step, result: unknown): Promise<void>
  tear: Real['tear']
  /** Probability that the next event belongs to the same process as the last. */
  sticky: number
  trace: ((line: string) => void) | null
}

type ScheduledEvent = { process: Process | null; at: number; run(): void | Promise<void> }

export type Scheduler = {
  now(): number
  /** Schedules a step and resolves with its result. */
  step<T>(request: Omit<Step, 'perform' | 'resolve' | 'reject' | 'since'> & { perform: () => Promise<T> }): Promise<T>
  /** Resolves after `ms` milliseconds, or when `wake` is called. Null: not part of any process, so it never freezes. */
  sleep(process: Process | null, ms: number): { done: Promise<void>; wake: () => void }
  crash(process: Process): void
  /** Runs one event. False: none is due until `until`, to which the time was advanced. */
  tick(until: number): Promise<boolean>
  log(who: string, text: string): void
  /** Number of performed steps. */
  steps(): number
}

/** Approximate maximum of writes in a verb; a tear after its last write has no effect. */
const MAX_WRITES = 6
const unknownOutcome = () => new Unavailable('store', new Error('no answer came'))
const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve))

export function openScheduler({ rng, start, faultFor, passed, wrote, tear, sticky, trace }: SchedulerOptions): Scheduler {
  let now = start
  let performed = 0
  let events: ScheduledEvent[] = []
  let last: Process | null = null

  function log(who: string, text: string): void {
    trace?.(`${((now - start) / 1000).toFixed(3).padStart(9)}  ${who.padEnd(26)} ${text}`)
  }

  function later(process: Process | null, at: number, run: ScheduledEvent['run']): ScheduledEvent {
    const event = { process, at, run }
    events.push(event)
    return event
  }

  function crash(process: Process): void {
    process.alive = false
    events = events.filter((event) => event.process !== process)
    log(process.name, 'crashes')
    for (const listener of process.onCrash) listener()
    process.onCrash.clear()
  }

  function freeze(process: Process, ms: number): void {
    process.frozenUntil = Math.max(process.frozenUntil, now + ms)
    log(process.name, `freezes for ${(ms / 1000).toFixed(1)} s`)
  }

  async function perform(step: Step, torn: Tear | null = null): Promise<() => void> {
    performed++
    try {
      const value = await (torn && tear ? tear(step.perform, torn) : step.perform())
      if (step.writes) await wrote(step, value)
      for (const process of passed(step)) process.frozenUntil = Math.min(process.frozenUntil, now + rng.pick([0, rng.whole(0, 200)]))
      return () => step.resolve(value)
    } catch (error) {
      if (torn) await wrote(step, null)
      return () => step.reject(error)
    }
  }

  async function runStep(step: Step): Promise<void> {
    const { fault, ms } = faultFor(step)
    const { process, name } = step.actor
    const who = `${process.name} ${name}`
    if (fault === 'freeze_before') {
      freeze(process, ms)
      later(process, now, () => runStep(step))
      return
    }
    if (trace) log(who, `${step.label} ${brief(step.args)}${fault === 'none' ? '' : `   ← ${fault.toUpperCase()}`}`)
    if (fault === 'lost') step.reject(unknownOutcome())
    else if (fault === 'lost_late') later(process, now + ms, () => step.reject(unknownOutcome()))
    else if (fault === 'conflict') step.resolve('conflict')
    else if (fault === 'crash_before') crash(process)
    else if (fault === 'late' || fault === 'crash_late') {
      later(null, now + ms, async () => {
        log(who, `${step.label} is written late`)
        await perform(step)
      })
      if (fault === 'late') step.reject(unknownOutcome())
      else crash(process)
    } else {
      const isTorn = fault === 'torn' || fault === 'crash_torn'
      const reply = await perform(step, isTorn ? { write: rng.whole(1, MAX_WRITES), happens: rng.chance(0.5) } : null)
      if (fault === 'unknown') step.reject(unknownOutcome())
      else if (fault === 'crash_after' || fault === 'crash_torn') crash(process)
      else if (fault === 'slow_reply') later(process, now + ms, reply)
      else if (fault === 'freeze_after') {
        freeze(process, ms)
        later(process, now, reply)
      } else reply()
    }
  }

  async function tick(until: number): Promise<boolean> {
    const ready = events.filter(({ at, process }) => at <= now && (process?.frozenUntil ?? 0) <= now)
    if (ready.length === 0) {
      const next = events.reduce((soonest, { at, process }) => Math.min(soonest, Math.max(at, process?.frozenUntil ?? 0)), Infinity)
      now = Math.min(Math.max(now, next), Math.max(now, until))
      return next <= until
    }
    const same = last !== null && rng.chance(sticky) ? ready.filter(({ process }) => process === last) : []
    const chosen = rng.pick(same.length > 0 ? same : ready)
    events.splice(events.indexOf(chosen), 1)
    last = chosen.process
    now += rng.whole(0, 6)
    await chosen.run()
    await nextTick()
    return true
  }

  return {
    now: () => now,
    step: ({ perform: work, ...request }) =>
      new Promise((resolve, reject) => {
        const step: Step = { ...request, since: now, perform: work, resolve: resolve as Step['resolve'], reject }
        if (request.actor.process.alive) later(request.actor.process, now, () => runStep(step))
      }),
    sleep: (process, ms) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      if (process?.alive === false) return { done: promise, wake: () => {} }
      const event = later(process, now + ms, resolve)
      return { done: promise, wake: () => void (event.at = Math.min(event.at, now)) }
    },
    crash,
    tick,
    log,
    steps: () => performed,
  }
}

/** A value as short text for the trace. */
export function brief(value: unknown): string {
  const text = JSON.stringify(value) ?? ''
  const plain = text.replaceAll('"', '')
  return plain.length > 200 ? `${plain.slice(0, 200)}…` : plain
}
