/** The story of coding requests: gateways that admit, extend, settle, say that they live, and sweep for those that do not. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Machine, World } from '../world.ts'
import { gateway } from './gateway.ts'
import { SUBSCRIPTION, T0, terms } from './plan.ts'

const WEEK_MS = 7 * 24 * 3600 * 1000

export const codingStory = {
  /** The first week ends while the story is told; sessions end all the time. */
  start: T0 + WEEK_MS - 70_000,

  async prepare(store: Store): Promise<void> {
    const plan = { uid: 'plan-code', createdAt: T0, generation: 1 }
    const always = { state: 'Active', activeFrom: null, activeUntil: null, verdict: null } as const
    await store.change(SUBSCRIPTION, { op: 'applyPlan', plan, product: 'Coding', terms, ...always }, T0)
  },

  begin(world: World): void {
    const { dice } = world
    for (const name of ['gateway-1', 'gateway-2', 'gateway-3']) world.boot(name, (machine) => gateway(world, machine))
    for (let i = dice.whole(10, 22); i > 0; i--) {
      world.outside(`client-${i}`, async () => {
        await world.sleep(dice.whole(0, 120_000))
        await gateway.ask(world, `client-${i}`)
      })
    }
    if (dice.chance(0.3)) world.boot('controller', (machine) => machine.go('keys', () => turnKeys(world, machine)))
  },

  /** A dead gateway is found by looking at its beat for 45 s. */
  rest: { pausesMs: Array.from({ length: 16 }, () => 8_000), round: gateway.lookAfter },
}

async function turnKeys(world: World, machine: Machine): Promise<void> {
  const store = machine.store(machine.actor('keys'))
  for (let i = world.dice.whole(1, 4); i > 0 && !world.calm; i--) {
    await world.sleep(world.dice.whole(2_000, 40_000))
    await store.change(SUBSCRIPTION, { op: 'keysChanged' }, machine.clock())
  }
}
