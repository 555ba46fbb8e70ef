/**
 * Wrong clocks. Every process takes its time as `src/bootstrap/store-clock.ts` does: measured against the store's clock, whatever its wall clock says. Wall clocks are
 * seconds to 40 days off and leap forward and back. A process of a release without this measurement writes records that lie ahead, which the others must heal.
 */
import type { FastifyBaseLogger } from 'fastify'
import { Registry } from 'prom-client'
import type { Store } from '../../src/backends/store/store.ts'
import { openStoreClock, type StoreClock } from '../../src/bootstrap/store-clock.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { MAX_SKEW_MS } from '../../src/domain/subscription/clock-healing.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import type { Process, Scheduler } from './scheduler.ts'
import { rngOf } from './seeded-random.ts'
import type { Machine, World } from './world.ts'

const SECOND_MS = 1_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** How far a wall clock is off: what NTP leaves, seconds, minutes, hours, a period and more. */
const OFF_MS = [0, 2 * SECOND_MS, 20 * SECOND_MS, 180 * SECOND_MS, HOUR_MS, 9 * HOUR_MS, 40 * DAY_MS]
const LOG = { info() {}, error() {} } as unknown as FastifyBaseLogger

/** The process that takes its wall clock for the time. */
const UNMEASURED = 'previous-release'

export function isUnmeasured({ name }: Process): boolean {
  return name.startsWith(UNMEASURED)
}

type Work = (machine: Machine, store: Store, record: Subscription) => Promise<void>

/** One of seven seeds, whose faults are those of any seed. */
export function hasWrongClocks(seed: number): boolean {
  return seed % 7 === 3
}

/** Whether the process must not write. */
export function isOff({ wallOffMs }: Process): boolean {
  return Math.abs(wallOffMs) > MAX_SKEW_MS
}

/** The clock of a process. Time passes during a measurement when the scheduler runs on before it is used; the process then measures again before it writes. */
export function measureClock(process: Process, { now }: Scheduler): Promise<StoreClock> {
  const store: Pick<Store, 'clock'> = { clock: async () => now() }
  return openStoreClock(store, { log: LOG, registry: new Registry(), wall: () => now() + process.wallOffMs, monotonic: now })
}

/** Sets wall clocks, forward and back, and in the end right. */
export async function setWalls(world: World, seed: number): Promise<void> {
  const rng = rngOf(-seed)
  for (let i = rng.whole(2, 8); i > 0; i--) {
    await world.sleep(rng.whole(500, 25_000))
    const machines = world.machines.filter(({ process }) => !isUnmeasured(process))
    if (machines.length === 0) continue
    const { process } = rng.pick(machines)
    process.wallOffMs = rng.chance(0.4) ? 0 : rng.pick(OFF_MS) * rng.pick([1, -1])
    world.scheduler.log(process.name, `its wall clock is now ${process.wallOffMs} ms off`)
  }
  await world.sleep(rng.whole(0, 60_000))
  for (const { process } of world.machines) process.wallOffMs = 0
}

/** A process whose clock is ahead: `work` gets its store, and a subscription's record now and then. */
export function bootAhead(world: World, subscriptions: readonly string[], seed: number, work: Work): void {
  const rng = rngOf(seed + 1e6)
  world.boot(UNMEASURED, (machine) => {
    machine.process.skewMs = rng.pick(OFF_MS.slice(2))
    world.scheduler.log(UNMEASURED, `its clock is ${machine.process.skewMs} ms ahead`)
    const store = machine.store(machine.actor('writes'))
    machine.go('writes', async () => {
      for (let i = rng.whole(2, 8); i > 0 && !world.recovering; i--) {
        await machine.sleep(rng.whole(500, 20_000))
        try {
          const record = await store.subscription(rng.pick(subscriptions))
          if (record && !world.recovering) await work(machine, store, record)
        } catch (error) {
          if (!(error instanceof Unavailable)) throw error
        }
      }
    })
  })
}
