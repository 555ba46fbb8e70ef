/** Scenario of media tasks: tenants with small plans, clients, workers, dispatchers, receivers, and the end of a period. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { openDeclarations, type EditedPlan } from '../plan-edits.ts'
import type { Rng } from '../seeded-random.ts'
import type { Machine, World } from '../world.ts'
import { ACCOUNTS, planOf, T0, KINDS, type Account } from './accounts.ts'
import { clientOf } from './clients.ts'
import { dispatcher, mintKeys } from './dispatcher.ts'
import { recovery } from './recovery.ts'
import { worker } from './worker.ts'

const DAY_MS = 24 * 3600 * 1000

export const mediaScenario = {
  /** The first period ends during the scenario. */
  start: T0 + DAY_MS - 60_000,

  async prepare(store: Store): Promise<void> {
    await mintKeys(store, ACCOUNTS)
    for (const { subscription, first } of PLANS) await store.change(subscription, first, T0)
  },

  begin(world: World): void {
    const { rng } = world
    const gateways = ['gateway-1', 'gateway-2']
    for (const name of gateways) world.boot(name, () => {})
    const slots = rng.chance(0.15) ? 0 : 2
    for (const name of ['worker-1', 'worker-2']) world.boot(name, (machine) => worker(world, machine, slots))
    for (const name of ['dispatcher-1', 'dispatcher-2']) world.boot(name, (machine) => dispatcher(world, machine))
    const client = clientOf(world)
    for (let i = rng.whole(4, 8); i > 0; i--) world.runExternal(`client-${i}`, () => client(`client-${i}`))
    if (rng.chance(0.4)) {
      const declarations = openDeclarations(world, PLANS)
      world.reconcile = declarations.reconcile
      world.runExternal('operator', declarations.operate)
      for (const name of ['controller-1', 'controller-2'].slice(0, rng.whole(1, 2))) world.boot(name, declarations.control)
      world.boot('key-controller', (machine) => machine.go('keys', () => rotateKeys(world, machine)))
    }
  },

  recovery,

  /** A worker whose clock is ahead claims tasks; it hands them back, or dies. */
  ahead: {
    subscriptions: ACCOUNTS.map(({ subscription }) => subscription),
    async work(machine: Machine, store: Store, { id }: Subscription): Promise<void> {
      const claimed = await store.change(id, { op: 'claim', claim: `ahead-${machine.clock()}`, kinds: KINDS }, machine.clock())
      await machine.sleep(200)
      if (claimed.outcome === 'none' || machine.clock() % 2 === 0) return
      const { task, epoch } = claimed
      await store.change(id, { op: 'requeue', task, epoch, readyAt: machine.clock() + 5_000, served: false }, machine.clock())
    },
  },
}

/** Plans that are edited while their tasks run: allowance, concurrency, the length of the next period. */
const PLANS = ACCOUNTS.map((account): EditedPlan => {
  const { subscription, terms } = account
  return { subscription, first: planOf(account, terms), edited: (rng) => ({ ...terms, media: mediaOf(account, rng) }) }
})

function mediaOf({ terms: { media } }: Account, rng: Rng): Account['terms']['media'] {
  const period = { unit: 'days', count: rng.whole(1, 2) } as const
  return media && { ...media, period, allowance: rng.pick([300, 800, 1_500]), maxConcurrentTasks: rng.whole(1, 3) }
}

async function rotateKeys(world: World, machine: Machine): Promise<void> {
  const store = machine.store(machine.actor('keys'))
  for (let i = world.rng.whole(1, 4); i > 0 && !world.recovering; i--) {
    await world.sleep(world.rng.whole(2_000, 40_000))
    await store.change(world.rng.pick(ACCOUNTS).subscription, { op: 'keysChanged' }, machine.clock())
  }
}
