/** Scenario of coding requests: gateways that serve requests, send heartbeats, and sweep reservations of dead gateways. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { openDeclarations, type EditedPlan } from '../plan-edits.ts'
import type { Rng } from '../seeded-random.ts'
import type { Machine, World } from '../world.ts'
import { gateway } from './gateway.ts'
import { firstOf, LEASED_TIMES, SUBSCRIPTION, T0, termsOf } from './plan.ts'

const WEEK_MS = 7 * 24 * 3600 * 1000
/** The first week ends during the scenario; sessions end repeatedly. */
const START = T0 + WEEK_MS - 70_000
/** Bursts of requests begin so long after one another. */
const BURSTS_MS = 20_000
/** An edit is declared from so long before a burst until it ends: most controllers apply it within a second. */
const EARLY_MS = 250
const EDITED_MS = 1_000

export const codingScenario = {
  start: START,

  async prepare(store: Store, leases: boolean): Promise<void> {
    await store.change(SUBSCRIPTION, firstOf(leases), T0)
  },

  begin(world: World): void {
    const { rng, isSole, leases } = world
    const declarations = rng.chance(0.4) ? openDeclarations(world, [planOf(leases)]) : null
    for (const name of isSole ? ['gateway'] : ['gateway-1', 'gateway-2', 'gateway-3']) {
      world.boot(name, (machine) => {
        gateway(world, machine)
        if (isSole) declarations?.control(machine)
      })
    }
    if (declarations) {
      world.reconcile = declarations.reconcile
      world.runExternal('operator', declarations.operate)
      if (!isSole) for (const name of ['controller-1', 'controller-2'].slice(0, rng.whole(1, 2))) world.boot(name, declarations.control)
    }
    for (let i = rng.whole(10, 22) * (leases ? 3 : 1); i > 0; i--) {
      world.runExternal(`client-${i}`, async () => {
        // Some at once: a process that is alone or has a lease applies commands before it writes them.
        const isBurst = (isSole || leases) && rng.chance(0.8)
        await world.sleep(isBurst ? BURSTS_MS * rng.whole(0, 5) + rng.whole(0, leases ? 900 : 40) : rng.whole(0, 120_000))
        await gateway.request(world)
      })
    }
    if (rng.chance(0.3) && !isSole) world.boot('key-controller', (machine) => machine.go('keys', () => rotateKeys(world, machine)))
  },

  /** A gateway without a heartbeat for 45 s is dead. */
  recovery: { pausesMs: Array.from({ length: 16 }, () => 8_000), round: gateway.recover },

  /** A gateway whose clock is ahead serves a request. */
  ahead: {
    subscriptions: [SUBSCRIPTION],
    async work(machine: Machine, store: Store, { keysVersion }: Subscription): Promise<void> {
      const instance = `ahead-${machine.clock()}`
      const request = { id: `request-${instance}`, keyId: 'key-1', keyCap: null, promptBytes: 400, maxOutputTokens: 200 }
      await store.heartbeat(instance, 1)
      const admitted = await store.change(SUBSCRIPTION, { op: 'admit', instance, keysVersion, ...request }, machine.clock())
      if (admitted.outcome !== 'admitted') return
      await machine.sleep(500)
      const usage = { input: 100, cachedInput: 0, output: 40 }
      await store.change(SUBSCRIPTION, { op: 'settle', id: request.id, usage, estimated: false }, machine.clock())
    },
  },
}

/** A plan whose window tokens, weights, concurrency and next session are edited while its requests run. */
function planOf(leases: boolean): EditedPlan {
  const times = leases ? LEASED_TIMES : 1
  return {
    subscription: SUBSCRIPTION,
    first: firstOf(leases),
    // Amid a burst, what leases have admitted may wait for its write.
    ...(leases && { pauseMs: (rng: Rng, now: number) => BURSTS_MS - ((now - START + EARLY_MS) % BURSTS_MS) + rng.whole(0, EDITED_MS) }),
    edited: (rng: Rng) =>
      termsOf(leases, {
        sessionTokens: times * rng.pick(leases ? [1_000, 2_000, 9_000] : [6_000, 9_000, 14_000]),
        sessionMs: rng.pick([30_000, 45_000, 90_000]),
        weeklyTokens: times * rng.pick([12_000, 20_000, 30_000]),
        weights: { input: 1000, cachedInput: rng.pick([100, 500]), output: 2000 },
        maxConcurrentRequests: times * rng.whole(2, 6),
      }),
  }
}

async function rotateKeys(world: World, machine: Machine): Promise<void> {
  const store = machine.store(machine.actor('keys'))
  for (let i = world.rng.whole(1, 4); i > 0 && !world.recovering; i--) {
    await world.sleep(world.rng.whole(2_000, 40_000))
    await store.change(SUBSCRIPTION, { op: 'keysChanged' }, machine.clock())
  }
}
