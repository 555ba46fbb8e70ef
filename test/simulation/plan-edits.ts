/**
 * Edits, suspensions, removals and returns of the Plans of a scenario. An operator declares them; controllers apply what is declared, as `plugins/controller`
 * does, and are sometimes so slow that it is declared no more.
 */
import { Unavailable } from '../../src/domain/errors.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { Terms } from '../../src/domain/plans.ts'
import type { Command } from '../../src/domain/subscription/commands.ts'
import type { Rng } from './seeded-random.ts'
import type { Machine, World } from './world.ts'

export type Applying = Extract<Command, { op: 'applyPlan' }>
type Removing = { op: 'removePlan' }

/** A Plan as it is declared first, the terms of an edit, and the time until the next one, from a time on. */
export type EditedPlan = { subscription: string; first: Applying; edited: (rng: Rng) => Terms; pauseMs?: (rng: Rng, now: number) => number }

/** What is declared of a Plan: its last form, and whether it is there. */
type Declared = { plan: EditedPlan; last: Applying; command: Applying | Removing; version: number }

const RECONCILE_MS = 500
const SLOW_MS = 15_000

/** The declarations of one seed. */
export type Declarations = {
  /** Declares changes now and then. Never crashes. */
  operate(): Promise<void>
  /** Applies what is declared, as long as the process runs. */
  control(machine: Machine): void
  /** Applies everything once. */
  reconcile(store: Store, machine: Machine): Promise<void>
}

export function openDeclarations(world: World, plans: readonly EditedPlan[]): Declarations {
  const { rng } = world
  const all = plans.map((plan): Declared => ({ plan, last: plan.first, command: plan.first, version: 0 }))

  async function operate(): Promise<void> {
    for (let changes = rng.whole(2, 7); changes > 0 && !world.recovering; changes--) {
      await world.sleep(plans[0]?.pauseMs?.(rng, world.scheduler.now()) ?? rng.whole(500, 20_000))
      const declared = rng.pick(all)
      declared.command = changed(declared, rng, world.scheduler.now())
      if (declared.command.op === 'applyPlan') declared.last = declared.command
      declared.version++
      world.scheduler.log('operator', `declares ${declared.plan.subscription} ${declared.command.op}`)
    }
  }

  function control(machine: Machine): void {
    const applied = new Map<Declared, number>()
    const store = machine.store(machine.actor('plans'))
    machine.go('plans', async () => {
      while (!world.recovering) {
        await machine.sleep(RECONCILE_MS + rng.whole(0, RECONCILE_MS))
        for (const declared of all) {
          const { version } = declared
          if (version === (applied.get(declared) ?? 0)) continue
          if (await apply(store, machine, declared, rng.chance(0.2) ? rng.whole(0, SLOW_MS) : 0)) applied.set(declared, version)
        }
      }
    })
  }

  async function reconcile(store: Store, machine: Machine): Promise<void> {
    for (const declared of all) {
      const { plan, command } = declared
      if (plan.subscription === world.busyRecord || !(await apply(store, machine, declared, 0))) continue
      world.checker.declared(plan.subscription, command.op === 'applyPlan' ? command.plan : null)
    }
  }

  return { operate, control, reconcile }
}

/** Applies what is declared now, after `slowMs`: a removal is that of the Plan in the record. Whether it is done; otherwise the next round tries again. */
async function apply(store: Store, machine: Machine, { plan: { subscription }, command }: Declared, slowMs: number): Promise<boolean> {
  try {
    const former = command.op === 'removePlan' ? await store.subscription(subscription) : null
    if (slowMs > 0) await machine.sleep(slowMs)
    if (command.op === 'applyPlan') await store.change(subscription, command, machine.clock())
    else if (former?.plan) await store.change(subscription, { op: 'removePlan', uid: former.plan.uid }, machine.clock())
    return true
  } catch (error) {
    if (error instanceof Unavailable) return false
    throw error
  }
}

/** The next declaration: an edit, another state, an end, or a removal; a removed Plan returns as another resource, with the terms that it had or others. */
function changed({ plan, last, command }: Declared, rng: Rng, now: number): Applying | Removing {
  if (command.op === 'removePlan') {
    const terms = rng.chance(0.5) ? last.terms : plan.edited(rng)
    return { ...plan.first, terms, plan: { uid: `${plan.first.plan.uid}-${now}`, createdAt: now, generation: 1 } }
  }
  const next = { ...last, plan: { ...last.plan, generation: last.plan.generation + 1 } }
  const what = rng.weighted({ edit: 5, remove: 4, suspend: 2, end: 1 })
  if (what === 'remove') return { op: 'removePlan' }
  if (what === 'suspend') return { ...next, state: last.state === 'Active' ? 'Suspended' : 'Active' }
  if (what === 'end') return { ...next, activeUntil: last.activeUntil === null ? now + rng.whole(0, 15_000) : null }
  return { ...next, terms: plan.edited(rng) }
}
