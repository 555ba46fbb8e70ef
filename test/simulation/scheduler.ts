/**
 * Decides what happens next. Everything that an actor asks of the store is a step; the scheduler holds all steps, replies, timers and late
 * writes, picks one of those that could come next, lets it happen, and waits until whoever it concerned has asked for the next thing.
 */
import { Unavailable } from '../../src/domain/errors.ts'
import type { Command } from '../../src/domain/subscription/commands.ts'
import type { Dice } from './seeded-random.ts'
import type { Real, Tear } from './real-store.ts'

/**
 * What can become of one step. `late`: its caller is told that nothing is known, and it is written after others had their turn. `torn`: so
 * it is told, and only the first of its writes may have happened.
 */
export type Fate =
  | 'ok'
  | 'slow_reply'
  | 'lost'
  | 'unknown'
  | 'late'
  | 'crash_before'
  | 'crash_after'
  | 'crash_late'
  | 'freeze_before'
  | 'freeze_after'
  | 'torn'
  | 'crash_torn'

/** A program of the installation, until it crashes; what starts in its place is another one. */
export type Process = {
  name: string
  /** How far its clock is from the true time. */
  skewMs: number
  frozenUntil: number
  alive: boolean
  /** Commands asked of its queues and not answered yet. */
  asked: Set<Asked>
  /** Whoever waits for it from outside learns that it is gone. */
  onCrash: Set<() => void>
}

/** Something that a process does. `fence`: the run of a task that it is part of. */
export type Actor = { process: Process; name: string; fence: { task: string; epoch: number } | null }

export type Asked = { actor: Actor; subscription: string; command: Command }

export type Step = {
  actor: Actor
  /** The verb, with what matters of it, such as `moveTask settling`. */
  label: string
  args: unknown[]
  writes: boolean
  /** The commands that a write of a subscription's record may contain. */
  asked: Asked[]
  perform(): Promise<unknown>
  resolve(value: unknown): void
  reject(error: unknown): void
}

export type Surroundings = {
  dice: Dice
  /** Epoch milliseconds at the beginning. */
  start: number
  fateOf(step: Step): { fate: Fate; ms: number }
  /** A step was performed. Answers which frozen processes go on now. */
  passed(step: Step): Process[]
  /** Called after every step that wrote, with what it came to; null if it was torn. */
  wrote(step: Step, result: unknown): Promise<void>
  tear: Real['tear']
  /** How likely the next event is one of the same process as the last. */
  sticky: number
  trace: ((line: string) => void) | null
}

type Happening = { process: Process | null; at: number; run(): void | Promise<void> }

export type Scheduler = {
  now(): number
  /** Asks for a step and answers what it came to. */
  step<T>(asked: Omit<Step, 'perform' | 'resolve' | 'reject'> & { perform: () => Promise<T> }): Promise<T>
  /** Resolves so many milliseconds later, or when `wake` is called. Null: the time of the world outside. */
  sleep(process: Process | null, ms: number): { done: Promise<void>; wake: () => void }
  crash(process: Process): void
  /** Lets one thing happen. False: nothing can until `until`, and the time is that now. */
  tick(until: number): Promise<boolean>
  say(who: string, text: string): void
  /** How many steps were performed. */
  steps(): number
}

/** Verbs have about so many writes; one that has less is not torn at a later one. */
const MOST_WRITES = 6
const LOST = () => new Unavailable('store', new Error('no answer came'))
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

export function openScheduler({ dice, start, fateOf, passed, wrote, tear, sticky, trace }: Surroundings): Scheduler {
  let now = start
  let performed = 0
  let happenings: Happening[] = []
  let last: Process | null = null

  function say(who: string, text: string): void {
    trace?.(`${((now - start) / 1000).toFixed(3).padStart(9)}  ${who.padEnd(26)} ${text}`)
  }

  function later(process: Process | null, at: number, run: Happening['run']): Happening {
    const happening = { process, at, run }
    happenings.push(happening)
    return happening
  }

  function crash(process: Process): void {
    process.alive = false
    happenings = happenings.filter((happening) => happening.process !== process)
    say(process.name, 'CRASHES')
    for (const told of process.onCrash) told()
    process.onCrash.clear()
  }

  function freeze(process: Process, ms: number): void {
    process.frozenUntil = Math.max(process.frozenUntil, now + ms)
    say(process.name, `FREEZES for ${(ms / 1000).toFixed(1)} s`)
  }

  async function perform(step: Step, torn: Tear | null = null): Promise<() => void> {
    performed++
    try {
      const value = await (torn && tear ? tear(step.perform, torn) : step.perform())
      if (step.writes) await wrote(step, value)
      for (const process of passed(step)) process.frozenUntil = Math.min(process.frozenUntil, now + dice.whole(0, 200))
      return () => step.resolve(value)
    } catch (error) {
      if (torn) await wrote(step, null)
      return () => step.reject(error)
    }
  }

  async function decide(step: Step): Promise<void> {
    const { fate, ms } = fateOf(step)
    const { process, name } = step.actor
    const who = `${process.name} ${name}`
    if (fate === 'freeze_before') {
      freeze(process, ms)
      later(process, now, () => decide(step))
      return
    }
    if (trace) say(who, `${step.label} ${brief(step.args)}${fate === 'ok' ? '' : `   ← ${fate.toUpperCase()}`}`)
    if (fate === 'lost') step.reject(LOST())
    else if (fate === 'crash_before') crash(process)
    else if (fate === 'late' || fate === 'crash_late') {
      later(null, now + ms, async () => {
        say(who, `${step.label} LANDS LATE`)
        await perform(step)
      })
      if (fate === 'late') step.reject(LOST())
      else crash(process)
    } else {
      const isTorn = fate === 'torn' || fate === 'crash_torn'
      const reply = await perform(step, isTorn ? { write: dice.whole(1, MOST_WRITES), happens: dice.chance(0.5) } : null)
      if (fate === 'unknown') step.reject(LOST())
      else if (fate === 'crash_after' || fate === 'crash_torn') crash(process)
      else if (fate === 'slow_reply') later(process, now + ms, reply)
      else if (fate === 'freeze_after') {
        freeze(process, ms)
        later(process, now, reply)
      } else reply()
    }
  }

  async function tick(until: number): Promise<boolean> {
    const ready = happenings.filter(({ at, process }) => at <= now && (process?.frozenUntil ?? 0) <= now)
    if (ready.length === 0) {
      const next = happenings.reduce((soonest, { at, process }) => Math.min(soonest, Math.max(at, process?.frozenUntil ?? 0)), Infinity)
      now = Math.min(Math.max(now, next), Math.max(now, until))
      return next <= until
    }
    const same = last !== null && dice.chance(sticky) ? ready.filter(({ process }) => process === last) : []
    const chosen = dice.pick(same.length > 0 ? same : ready)
    happenings.splice(happenings.indexOf(chosen), 1)
    last = chosen.process
    now += dice.whole(0, 6)
    await chosen.run()
    await nextTurn()
    return true
  }

  return {
    now: () => now,
    step: ({ perform: work, ...asked }) =>
      new Promise((resolve, reject) => {
        const step: Step = { ...asked, perform: work, resolve: resolve as Step['resolve'], reject }
        if (asked.actor.process.alive) later(asked.actor.process, now, () => decide(step))
      }),
    sleep: (process, ms) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      if (process?.alive === false) return { done: promise, wake: () => {} }
      const happening = later(process, now + ms, resolve)
      return { done: promise, wake: () => void (happening.at = Math.min(happening.at, now)) }
    },
    crash,
    tick,
    say,
    steps: () => performed,
  }
}

/** Arguments as a reader wants them: short. */
export function brief(value: unknown): string {
  const text = JSON.stringify(value) ?? ''
  const plain = text.replaceAll('"', '')
  return plain.length > 200 ? `${plain.slice(0, 200)}…` : plain
}
