/** The world of one seed: its time, its trouble, the machines that run programs, and whoever is outside. */
import { Failure, Unavailable } from '../../src/domain/errors.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { diceOf, type Dice } from './seeded-random.ts'
import { doorsOf } from './faulty-store.ts'
import type { Real } from './real-store.ts'
import { openScheduler, type Actor, type Process, type Scheduler } from './scheduler.ts'
import { openFaults } from './faults.ts'
import { openWitness, type Witness } from './witness.ts'

/** A program that runs, with all that it may do. It lives until it crashes. */
export type Machine = {
  process: Process
  clock(): number
  actor(name: string, fence?: Actor['fence']): Actor
  store(actor: Actor): Store
  tasks(actor: Actor): TaskContext
  sleep(ms: number): Promise<void>
  /** Sleeps until a bell of these kinds is heard, so long at most. */
  nap(ms: number, kinds: readonly string[]): Promise<void>
  /** Goes on in the background. What the store or a client must expect is no surprise; any other error is told. */
  go(name: string, flow: () => Promise<void>): void
  /** Answers a client from outside, who is told when the machine is gone. */
  serve<T>(work: () => Promise<T>): Promise<T>
}

export type World = {
  dice: Dice
  /** What goes wrong, in words. */
  weather: string
  scheduler: Scheduler
  witness: Witness
  /** All trouble is over: loops end, and nothing goes wrong any more. */
  calm: boolean
  machines: Machine[]
  /** Starts a program, and another one some time after it crashed. */
  boot(kind: string, program: (machine: Machine) => void): void
  /** Somebody outside, who never crashes. */
  outside(name: string, flow: () => Promise<void>): void
  sleep(ms: number): Promise<void>
  uuid(now: number): string
  /** True while somebody outside is not done. */
  busy(): boolean
}

/** The largest error of a clock. */
const SKEW_MS = 10_000

export class Gone extends Error {}

export type Setting = { seed: number; start: number; story: 'media' | 'coding'; real: Real; trace: ((line: string) => void) | null }

export function openWorld({ seed, start, story, real, trace }: Setting): World {
  const dice = diceOf(seed)
  const trouble = openFaults(seed, story, dice, { now: () => scheduler.now(), tears: real.tear !== null })
  const skewed = dice.chance(0.6)
  const witness: Witness = openWitness(real.handles[0].store, () => scheduler.now())
  const scheduler: Scheduler = openScheduler({
    dice,
    start,
    sticky: trouble.sticky,
    fateOf: (step) => (world.calm ? { fate: 'ok', ms: 0 } : trouble.fateOf(step)),
    passed: trouble.passed,
    wrote: witness.wrote,
    tear: real.tear,
    trace,
  })
  const bells = new Map<string, Set<() => void>>()
  const booted = new Map<string, number>()
  let made = 0
  let ids = 0
  let outsiders = 0

  /** UUIDs v7 (RFC 9562, section 5.7) by the clock of their maker, never the same twice. */
  function uuid(now: number): string {
    const time = now.toString(16).padStart(12, '0')
    const count = (ids++ % 4096).toString(16).padStart(3, '0')
    return `${time.slice(0, 8)}-${time.slice(8)}-7${count}-8000-${Math.floor(dice.random() * 2 ** 48).toString(16).padStart(12, '0')}`
  }

  function publish(kind: string): void {
    for (const wake of bells.get(kind) ?? []) if (world.calm || dice.chance(0.8)) wake()
  }

  function boot(kind: string, program: (machine: Machine) => void): void {
    const life = (booted.get(kind) ?? 0) + 1
    booted.set(kind, life)
    const skewMs = skewed && !world.calm ? dice.whole(-SKEW_MS, SKEW_MS) : 0
    const name = life === 1 ? kind : `${kind}.${life}`
    const process: Process = { name, skewMs, frozenUntil: 0, alive: true, asked: new Set(), onCrash: new Set() }
    const machine = machineOf(process)
    world.machines.push(machine)
    process.onCrash.add(() => {
      world.machines = world.machines.filter((one) => one !== machine)
      if (world.calm) return
      void scheduler.sleep(null, dice.whole(500, 20_000)).done.then(() => boot(kind, program))
    })
    scheduler.say(process.name, `starts, its clock ${skewMs} ms off`)
    program(machine)
  }

  function machineOf(process: Process): Machine {
    const handle = real.handles[made++ % real.handles.length] ?? real.handles[0]
    const open = doorsOf(process, handle, scheduler, dice.pick([0, 300, 5_000]))
    const clock = () => scheduler.now() + process.skewMs
    const sleep = (ms: number) => scheduler.sleep(process, ms).done
    const error = ({ err }: { err?: unknown }, message: string) => surprised(`${process.name}: ${message}`, err)
    const log = { info: () => {}, warn: () => {}, error }
    const link = ({ file }: { file: string }) => `https://tollgate.test/files/${file}`
    return {
      process,
      clock,
      sleep,
      actor: (name, fence = null) => ({ process, name, fence }),
      store: open,
      tasks: (actor) => ({ store: open(actor), files: {} as TaskContext['files'], clock, uuid: () => uuid(clock()), random: dice.random, publish, moved() {}, link, linkedFile: () => null, resultMs: 7 * 24 * 3_600_000, log }),
      async nap(ms, kinds) {
        const { done, wake } = scheduler.sleep(process, ms)
        for (const kind of kinds) bells.set(kind, (bells.get(kind) ?? new Set()).add(wake))
        await done
        for (const kind of kinds) bells.get(kind)?.delete(wake)
      },
      go: (name, flow) => void flow().catch((error: unknown) => surprised(`${process.name} ${name}`, error)),
      serve: (work) =>
        new Promise((resolve, reject) => {
          const gone = () => reject(new Gone(process.name))
          process.onCrash.add(gone)
          void work().then(resolve, reject).finally(() => process.onCrash.delete(gone))
        }),
    }
  }

  function surprised(who: string, error: unknown): void {
    if (error instanceof Unavailable || error instanceof Gone) return
    if (error instanceof Failure && error.code !== 'internal') return
    witness.say(`${who} threw ${error instanceof Error ? error.stack : String(error)}`)
  }

  function outside(name: string, flow: () => Promise<void>): void {
    outsiders++
    void flow()
      .catch((error: unknown) => surprised(name, error))
      .finally(() => outsiders--)
  }

  const world: World = {
    dice,
    weather: trouble.name,
    scheduler,
    witness,
    calm: false,
    machines: [],
    boot,
    outside,
    sleep: (ms) => scheduler.sleep(null, ms).done,
    uuid,
    busy: () => outsiders > 0,
  }
  if (skewed) outside('time', () => setClocks(world))
  return world
}

/** From time to time somebody sets a clock, forward or back. */
async function setClocks(world: World): Promise<void> {
  for (let i = world.dice.whole(0, 4); i > 0; i--) {
    await world.sleep(world.dice.whole(1_000, 40_000))
    if (world.calm || world.machines.length === 0) return
    const { process } = world.dice.pick(world.machines)
    process.skewMs = world.dice.whole(-SKEW_MS, SKEW_MS)
    world.scheduler.say(process.name, `its clock is now ${process.skewMs} ms off`)
  }
}
