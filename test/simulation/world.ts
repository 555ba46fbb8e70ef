/** The simulated installation of one seed: time, faults, machines that run processes, and external clients. */
import { Failure, Unavailable } from '../../src/domain/errors.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { MAX_SKEW_MS } from '../../src/domain/subscription/clock-healing.ts'
import type { StoreClock } from '../../src/bootstrap/store-clock.ts'
import { hasWrongClocks, isOff, isUnmeasured, measureClock, setWalls } from './clocks.ts'
import { rngOf, type Rng } from './seeded-random.ts'
import { LINKS, openFiles, type SimulatedFiles } from './media/files.ts'
import { openBroker, type SimulatedBroker } from './broker.ts'
import { openFaultyStore } from './faulty-store.ts'
import type { Real } from './real-store.ts'
import { openScheduler, type Actor, type Process, type Scheduler } from './scheduler.ts'
import { openFaultInjection, type DrawnFault } from './fault-injection.ts'
import { openInvariantChecker, type InvariantChecker } from './invariant-checker.ts'

/** A running process and what it may use. It ends when it crashes. */
export type Machine = {
  process: Process
  clock(): number
  actor(name: string, fence?: Actor['fence']): Actor
  store(actor: Actor): Store
  tasks(actor: Actor): TaskContext
  sleep(ms: number): Promise<void>
  /** Runs in the background. Expected errors are ignored; any other one is a violation. */
  go(name: string, flow: () => Promise<void>): void
  /** Serves an external client, which gets `Crashed` when the machine crashes. */
  serve<T>(work: () => Promise<T>): Promise<T>
}

export type World = {
  rng: Rng
  /** The injected faults, in words. */
  faultProfile: string
  scheduler: Scheduler
  checker: InvariantChecker
  files: SimulatedFiles
  broker: SimulatedBroker
  /** Recovery phase: no more faults; loops end. */
  recovering: boolean
  /** A subscription whose record other processes change all the time: no replacement of it succeeds. */
  busyRecord: string | null
  /** One process at a time writes the store, as the program does that serves everything over SQLite. */
  isSole: boolean
  /** Gateways take leases on the plan. */
  leases: boolean
  /** Webhooks that a receiver gets at once. With one, the adapter of MongoDB remembers others that are due. */
  perQueue: number
  /** Runs of engines begin jobs at a provider, which bills what it has begun. */
  hasProvider: boolean
  machines: Machine[]
  /** Applies the Plans that are declared, where a scenario edits them. */
  reconcile: (store: Store, machine: Machine) => Promise<void>
  /** Starts a process, and a replacement some time after it crashed. */
  boot(kind: string, program: (machine: Machine) => void): void
  /** Runs an external client, which never crashes. */
  runExternal(name: string, flow: () => Promise<void>): void
  sleep(ms: number): Promise<void>
  uuid(now: number): string
  /** True while an external client is running. */
  busy(): boolean
}

/** Maximum clock skew. */
export const SKEW_MS = 10_000

/** Longer than a write after which the queues answer nothing before it is done. */
const MAX_STALL_MS = 1_500

export class Crashed extends Error {}

export type WorldOptions = { seed: number; start: number; scenario: 'media' | 'coding'; real: Real; isSole: boolean; leases: boolean; perQueue: number; trace: ((line: string) => void) | null }

export function openWorld({ seed, start, scenario, real, isSole, leases, perQueue, trace }: WorldOptions): World {
  const rng = rngOf(seed)
  const faults = openFaultInjection(seed, scenario, rng, { now: () => scheduler.now(), tears: real.tear !== null })
  const wrongClocks = hasWrongClocks(seed)
  const skewed = rng.chance(0.6) && !wrongClocks
  const outage = outageOf(rng, start)
  const checker: InvariantChecker = openInvariantChecker(real.handles[0].store, () => scheduler.now(), { outage, skewed, aheadMs: wrongClocks ? MAX_SKEW_MS : 2 * SKEW_MS }, () => files)
  const scheduler: Scheduler = openScheduler({
    rng,
    start,
    sticky: faults.sticky,
    faultFor: (step) => {
      if (step.label.startsWith('replace') && step.args[0] === world.busyRecord) return { fault: 'conflict', ms: 0 }
      if (world.recovering) return { fault: 'none', ms: 0 }
      const drawn = isIn(outage, scheduler.now()) ? { fault: 'lost' as const, ms: 0 } : faults.faultFor(step)
      return isSole ? onOwnDisk(drawn) : drawn
    },
    passed: faults.passed,
    wrote: checker.wrote,
    tear: real.tear,
    trace,
  })
  const files = openFiles(scheduler)
  const broker = openBroker(rngOf(seed + 2e6), scheduler, () => !world.recovering)
  const booted = new Map<string, number>()
  let machines = 0
  let ids = 0
  let external = 0

  /** Unique UUIDs v7 (RFC 9562, section 5.7) by the clock of the process. */
  function uuid(now: number): string {
    const time = now.toString(16).padStart(12, '0')
    const count = (ids++ % 4096).toString(16).padStart(3, '0')
    return `${time.slice(0, 8)}-${time.slice(8)}-7${count}-8000-${Math.floor(rng.random() * 2 ** 48).toString(16).padStart(12, '0')}`
  }

  function boot(kind: string, program: (machine: Machine) => void): void {
    const life = (booted.get(kind) ?? 0) + 1
    booted.set(kind, life)
    const skewMs = skewed && !world.recovering ? rng.whole(-SKEW_MS, SKEW_MS) : 0
    const name = life === 1 ? kind : `${kind}.${life}`
    const process: Process = { name, skewMs, wallOffMs: 0, frozenUntil: 0, alive: true, pending: new Set(), onCrash: new Set() }
    if (!wrongClocks || isUnmeasured(process) || world.recovering) return run(kind, program, machineOf(process, null))
    void measureClock(process, scheduler).then((clock) => run(kind, program, machineOf(process, clock)))
  }

  function run(kind: string, program: (machine: Machine) => void, machine: Machine): void {
    const { process } = machine
    world.machines.push(machine)
    process.onCrash.add(() => {
      world.machines = world.machines.filter((one) => one !== machine)
      if (world.recovering) return
      void scheduler.sleep(null, rng.whole(500, 20_000)).done.then(() => boot(kind, program))
    })
    scheduler.log(process.name, `starts, its clock ${process.skewMs} ms off`)
    program(machine)
  }

  /** `measured`: its store clock; null where it is the true time and `skewMs`. */
  function machineOf(process: Process, measured: StoreClock | null): Machine {
    const handle = real.handles[machines++ % real.handles.length] ?? real.handles[0]
    const clock = () => (measured ? measured.now() : scheduler.now() + process.skewMs)
    const heals = wrongClocks && !isUnmeasured(process)
    const storeTime = () => (heals ? (measured?.writeTime() ?? clock()) : null)
    // Recovery outlasts a conflict with a thawed process, but does not spend the steps of the scenario on a record that stays busy.
    const retryForMs = process.name === 'recovery' ? 300 : world.recovering ? 5_000 : rng.pick([0, 300, 5_000])
    const faulty = openFaultyStore(process, handle, scheduler, { retryForMs, isSole, leases, storeTime, called: (verb) => called(process, verb), wrote: (succeeded) => world.checker.bills.wrote(process, succeeded) })
    const open = (actor: Actor) => (measured ? measured.guard(faulty(actor)) : faulty(actor))
    const sleep = (ms: number) => scheduler.sleep(process, ms).done
    const error = ({ err }: { err?: unknown }, message: string) => reportUnexpected(`${process.name}: ${message}`, err)
    const log = { info: () => {}, warn: () => {}, error }
    const link = ({ file }: { file: string }) => `${LINKS}${file}`
    const linkedFile = (url: string) => (url.startsWith(LINKS) ? url.slice(LINKS.length) : null)
    return {
      process,
      clock,
      sleep,
      actor: (name, fence = null) => ({ process, name, fence }),
      store: open,
      tasks: (actor) => ({ store: open(actor), files: files.open(actor), clock, uuid: () => uuid(clock()), random: rng.random, publish: broker.publish, moved() {}, link, linkedFile, resultMs: 7 * 24 * 3_600_000, log }),
      go: (name, flow) => void flow().catch((error: unknown) => reportUnexpected(`${process.name} ${name}`, error)),
      serve: (work) =>
        new Promise((resolve, reject) => {
          const crashed = () => reject(new Crashed(process.name))
          process.onCrash.add(crashed)
          void work().then(resolve, reject).finally(() => process.onCrash.delete(crashed))
        }),
    }
  }

  function called(process: Process, verb: string): void {
    if (isOff(process)) checker.report(`${process.name} called ${verb}, although its wall clock is ${process.wallOffMs} ms off`)
  }

  function reportUnexpected(who: string, error: unknown): void {
    if (error instanceof Unavailable || error instanceof Crashed) return
    if (error instanceof Failure && error.code !== 'internal') return
    checker.report(`${who} threw ${error instanceof Error ? error.stack : String(error)}`)
  }

  function runExternal(name: string, flow: () => Promise<void>): void {
    external++
    void flow()
      .catch((error: unknown) => reportUnexpected(name, error))
      .finally(() => external--)
  }

  const world: World = {
    rng,
    faultProfile: faults.name,
    scheduler,
    checker,
    files,
    broker,
    recovering: false,
    busyRecord: null,
    isSole,
    perQueue,
    leases,
    hasProvider: seed % 8 === 5,
    machines: [],
    reconcile: async () => {},
    boot,
    runExternal,
    sleep: (ms) => scheduler.sleep(null, ms).done,
    uuid,
    busy: () => external > 0,
  }
  if (skewed) runExternal('time', () => setClocks(world))
  if (wrongClocks) runExternal('walls', () => setWalls(world, seed))
  return world
}

/** An outage of the store for all processes, longer than every lease. */
export type Outage = { from: number; until: number }

/** Troubles that some invariants depend on. `skewed`: the clocks of the processes differ and leap. `aheadMs`: how far a record may lie ahead. */
export type Troubles = { outage: Outage | null; skewed: boolean; aheadMs: number }

function outageOf(rng: Rng, start: number): Outage | null {
  if (!rng.chance(0.25)) return null
  const from = start + rng.whole(2_000, 60_000)
  return { from, until: from + rng.whole(12_000, 60_000) }
}

function isIn(outage: Outage | null, now: number): boolean {
  return outage !== null && now >= outage.from && now < outage.until
}

/** A fault where one process writes a disk of its own: it may wait long for nothing, and what it sent there is done when the next process starts. */
function onOwnDisk({ fault, ms }: DrawnFault): DrawnFault {
  if (fault === 'lost') return { fault: 'lost_late', ms: ms % MAX_STALL_MS }
  return { fault: fault === 'crash_late' ? 'crash_after' : fault, ms }
}

/** Sets the clock of a machine now and then, forward or back. */
async function setClocks(world: World): Promise<void> {
  for (let i = world.rng.whole(0, 4); i > 0; i--) {
    await world.sleep(world.rng.whole(1_000, 40_000))
    if (world.recovering || world.machines.length === 0) return
    const { process } = world.rng.pick(world.machines)
    process.skewMs = world.rng.whole(-SKEW_MS, SKEW_MS)
    world.scheduler.log(process.name, `its clock is now ${process.skewMs} ms off`)
  }
}
