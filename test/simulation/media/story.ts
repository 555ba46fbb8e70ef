/** The story of media tasks: tenants with small plans, clients, workers, dispatchers, receivers, and a period that ends meanwhile. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Machine, World } from '../world.ts'
import { ACCOUNTS, planOf, T0 } from './accounts.ts'
import { clientOf } from './clients.ts'
import { dispatcher, mintKeys } from './dispatcher.ts'
import { rest } from './rest.ts'
import { worker } from './worker.ts'

const DAY_MS = 24 * 3600 * 1000

export const mediaStory = {
  /** The first period ends while the story is told. */
  start: T0 + DAY_MS - 60_000,

  async prepare(store: Store): Promise<void> {
    await mintKeys(store, ACCOUNTS)
    for (const account of ACCOUNTS) await store.change(account.subscription, planOf(account, 1, account.terms), T0)
  },

  begin(world: World): void {
    const { dice } = world
    const gateways = ['gateway-1', 'gateway-2']
    for (const name of gateways) world.boot(name, () => {})
    const slots = dice.chance(0.15) ? 0 : 2
    for (const name of ['worker-1', 'worker-2']) world.boot(name, (machine) => worker(world, machine, slots))
    for (const name of ['dispatcher-1', 'dispatcher-2']) world.boot(name, (machine) => dispatcher(world, machine))
    const client = clientOf(world)
    for (let i = dice.whole(4, 8); i > 0; i--) world.outside(`client-${i}`, () => client(`client-${i}`))
    if (dice.chance(0.4)) world.boot('controller', (machine) => machine.go('edits', () => edit(world, machine)))
  },

  rest,
}

/** Plans are edited while their tasks run: less or more allowance, more or fewer at once, suspended for a while; and their keys change. */
async function edit(world: World, machine: Machine): Promise<void> {
  const { dice } = world
  const store = machine.store(machine.actor('edits'))
  for (let generation = 2; generation < 5 && !world.calm; generation++) {
    await world.sleep(dice.whole(2_000, 40_000))
    const account = dice.pick(ACCOUNTS)
    const limits = { allowance: dice.pick([300, 800, 1_500]), maxConcurrentTasks: dice.whole(1, 3) }
    const media = account.terms.media && { ...account.terms.media, ...limits }
    const state = generation < 4 && dice.chance(0.3) ? 'Suspended' : 'Active'
    await store.change(account.subscription, planOf(account, generation, { ...account.terms, media }, state), machine.clock())
    if (dice.chance(0.5)) await store.change(account.subscription, { op: 'keysChanged' }, machine.clock())
  }
}
