/** One seed of the simulation: prepare, run its scenario with injected faults, recover without faults, and check every invariant. */
import { verifyStore } from '../../src/verify/verify.ts'
import { bootAhead, hasWrongClocks } from './clocks.ts'
import { codingScenario } from './coding/scenario.ts'
import { checkMessagesAlone } from './media/messages-alone.ts'
import { mediaScenario } from './media/scenario.ts'
import { openReal } from './real-store.ts'
import { openWorld, type Machine, type World } from './world.ts'

export type SeedResult = {
  seed: number
  scenario: 'media' | 'coding'
  /** The injected faults, in words. */
  faults: string
  steps: number
  tasks: number
  requests: number
  /** Empty when every invariant held, after every step and after the recovery. */
  violations: string[]
  /** One line per event; empty unless `traced`. */
  trace: string[]
}

/** Steps after which a scenario is considered endless. */
const MAX_STEPS = 20_000
const HOUR_MS = 3_600_000

export function scenarioOf(seed: number): SeedResult['scenario'] {
  return seed % 4 === 0 ? 'coding' : 'media'
}

/** One of three seeds of coding requests, without wrong clocks: those need a second process. */
function isSoleProcess(seed: number): boolean {
  return scenarioOf(seed) === 'coding' && Math.floor(seed / 12) % 3 === 2 && !hasWrongClocks(seed)
}

/** Two of three of the other seeds of coding requests. */
function takesLeases(seed: number): boolean {
  return scenarioOf(seed) === 'coding' && Math.floor(seed / 12) % 3 !== 2
}

export type SeedOptions = {
  traced?: boolean
  /** URL of a MongoDB server without a database; the store is SQLite without it. */
  server?: string | null
}

/** Runs the scenario of a seed. The same seed over the same kind of store repeats every step. */
export async function runSeed(seed: number, { traced = false, server = null }: SeedOptions = {}): Promise<SeedResult> {
  const scenario = scenarioOf(seed)
  const { start, prepare, begin, recovery, ahead } = scenario === 'coding' ? codingScenario : mediaScenario
  const real = await openReal(server)
  const lines: string[] = []
  try {
    const leases = takesLeases(seed)
    await prepare(real.handles[0].store, leases)
    const world = openWorld({ seed, start, scenario, real, isSole: server === null && isSoleProcess(seed), leases, perQueue: server !== null && seed % 3 === 2 ? 1 : 2, trace: traced ? (line) => void lines.push(line) : null })
    begin(world)
    if (hasWrongClocks(seed)) bootAhead(world, ahead.subscriptions, seed, ahead.work)
    if (world.rng.chance(0.2)) world.boot('operator', (machine) => machine.go('verify', () => verifyConcurrently(world, machine)))
    await runWithFaults(world)
    real.recover()
    if (holds(world)) await recover(world, recovery)
    if (holds(world)) {
      await world.checker.checkFinal()
      const { violations } = await verifyStore(real.handles[0].store, { now: world.scheduler.now() })
      violations.forEach(world.checker.report)
    }
    if (holds(world) && scenario === 'media') await checkMessagesAlone(world)
    const { checker, faultProfile, scheduler } = world
    const [tasks, requests] = [checker.seen.tasks.size, checker.requests.size]
    return { seed, scenario, faults: faultProfile, steps: scheduler.steps(), tasks, requests, violations: checker.violations, trace: readable(lines) }
  } finally {
    await real.close()
  }
}

/** Runs `tollgate verify` during the scenario: changes between two of its reads must not count as damage. */
async function verifyConcurrently(world: World, machine: Machine): Promise<void> {
  await machine.sleep(world.rng.whole(5_000, 90_000))
  const { violations } = await verifyStore(machine.store(machine.actor('verify')), { now: machine.clock() })
  for (const sentence of violations) world.checker.report(`concurrent verify: ${sentence}`)
}

function holds({ checker, scheduler }: World): boolean {
  if (scheduler.steps() > MAX_STEPS) checker.report(`the scenario does not end within ${MAX_STEPS} steps`)
  return checker.violations.length === 0
}

/** Runs until the external clients are done, and a while longer. */
async function runWithFaults(world: World): Promise<void> {
  const { scheduler, rng } = world
  while (world.busy() && holds(world)) await scheduler.tick(scheduler.now() + HOUR_MS)
  await drain(world, scheduler.now() + rng.pick([0, 30_000, 100_000]))
}

/** Recovery of a scenario: the pause before each round, and the round. */
type Recovery = { pausesMs: number[]; round: (world: World, machine: Machine, nth: number) => Promise<void> }

async function recover(world: World, { pausesMs, round }: Recovery): Promise<void> {
  const { scheduler } = world
  world.recovering = true
  scheduler.log('', 'recovery: no more faults')
  let machine: Machine | undefined
  world.boot('recovery', (booted) => (machine = booted))
  for (const [nth, pauseMs] of pausesMs.entries()) {
    await drain(world, scheduler.now() + pauseMs)
    if (!holds(world) || !machine) return
    let done = false
    const recoveryMachine = machine
    recoveryMachine.go('round', () => round(world, recoveryMachine, nth).catch((error: unknown) => world.checker.report(`recovery: ${String(error)}`)).finally(() => (done = true)))
    // Its first call becomes a step of the scheduler, which would otherwise find nothing to do for an hour.
    await new Promise((resolve) => setImmediate(resolve))
    while (!done && holds(world)) await scheduler.tick(scheduler.now() + HOUR_MS)
  }
}

async function drain(world: World, until: number): Promise<void> {
  while (holds(world) && (await world.scheduler.tick(until)));
}

/** Replaces ids by their order of appearance: `#1`, `#2`. */
function readable(lines: string[]): string[] {
  const names = new Map<string, string>()
  const named = (id: string) => {
    if (!names.has(id)) names.set(id, `#${names.size + 1}`)
    return names.get(id) ?? id
  }
  return lines.map((line) => line.replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-8000-[0-9a-f]{12}/g, named))
}
