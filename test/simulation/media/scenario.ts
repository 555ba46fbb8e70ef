/** Scenario of media tasks: tenants with small plans, clients, workers, dispatchers, receivers, and the end of a period. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import type { Machine, World } from '../world.ts'
import { ACCOUNTS, planOf, T0, KINDS } from './accounts.ts'
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
    for (const account of ACCOUNTS) await store.change(account.subscription, planOf(account, 1, account.terms), T0)
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
    if (rng.chance(0.4)) world.boot('controller', (machine) => machine.go('edits', () => edit(world, machine)))
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

/** Edits plans while their tasks run: allowance, concurrency, suspension, keys. */
async function edit(world: World, machine: Machine): Promise<void> {
  const { rng } = world
  const store = machine.store(machine.actor('edits'))
  for (let generation = 2; generation < 5 && !world.recovering; generation++) {
    await world.sleep(rng.whole(2_000, 40_000))
    const account = rng.pick(ACCOUNTS)
    const limits = { allowance: rng.pick([300, 800, 1_500]), maxConcurrentTasks: rng.whole(1, 3) }
    const media = account.terms.media && { ...account.terms.media, ...limits }
    const state = generation < 4 && rng.chance(0.3) ? 'Suspended' : 'Active'
    await store.change(account.subscription, planOf(account, generation, { ...account.terms, media }, state), machine.clock())
    if (rng.chance(0.5)) await store.change(account.subscription, { op: 'keysChanged' }, machine.clock())
  }
}
