/** Clients of the Media API: impatient, with Idempotency-Keys that they use again, at whichever gateway answers. */
import { Failure, Unavailable } from '../../../src/domain/errors.ts'
import type { Creating, Stale } from '../../../src/domain/subscription/commands.ts'
import { planInactive } from '../../../src/domain/subscription/subscription.ts'
import { createTask, replay, type Created, type NewTask } from '../../../src/tasks/create-task.ts'
import { cancel } from '../../../src/tasks/settle-and-cancel.ts'
import type { Task } from '../../../src/domain/task.ts'
import { Gone, type Machine, type World } from '../world.ts'
import { ACCOUNTS, VERBS, type Account } from './accounts.ts'

type Body = Pick<NewTask, 'verb' | 'estimatedCost' | 'webhookUrl' | 'idempotency'>

const RECEIVERS = ['good', 'flaky', 'dead', 'slow', 'slow']
const PATIENCE_MS = 25_000

/** Makes the life of a client: a few tasks, some of them asked for twice, some canceled. */
export function clientOf(world: World): (name: string) => Promise<void> {
  const { dice, witness } = world
  const bodies = new Map<string, Body>()
  const keysVersions = new WeakMap<Machine, Map<string, number>>()
  /** All at once, or one after the other; and how likely a task is asked for twice. */
  const rushMs = dice.pick([1_000, 10_000, 60_000])
  const impatience = dice.pick([0.2, 0.9])

  /** As `plugins/auth`: what is remembered of a key is tried, and read anew when it is stale. */
  function creatingFor(machine: Machine, { subscription, keyId, cap }: Account): Creating {
    const known = keysVersions.get(machine) ?? new Map<string, number>()
    keysVersions.set(machine, known)
    return async (run) => {
      for (let tries = 0; tries < 5; tries++) {
        const answer = await run(subscription, { keyId, keyCap: cap, keysVersion: known.get(subscription) ?? 0 })
        if (answer.outcome !== 'stale') return answer as Exclude<typeof answer, Stale>
        known.set(subscription, (answer as { outcome: string } as Stale).keysVersion)
      }
      throw new Failure('unavailable', { retryAfterSeconds: 1 })
    }
  }

  /** One key always comes with one body, but for a client that is mistaken. */
  function bodyFor({ tenant }: Account): Body {
    const key = dice.chance(0.75) ? `k${dice.whole(1, 3)}` : null
    const known = key === null ? undefined : bodies.get(`${tenant} ${key}`)
    if (known) return dice.chance(0.05) ? { ...known, idempotency: { key: key ?? '', bodyHash: 'another' } } : known
    const body: Body = {
      verb: dice.pick(VERBS),
      estimatedCost: dice.pick([0, 50, 120, 200, 350]),
      webhookUrl: dice.chance(0.7) ? `https://${dice.pick(RECEIVERS)}.test/hook` : null,
      idempotency: key === null ? null : { key, bodyHash: 'one' },
    }
    if (key !== null) bodies.set(`${tenant} ${key}`, body)
    return body
  }

  /** As `submit` in `src/tasks`, with a quote that is known. */
  async function submit(machine: Machine, name: string, account: Account, body: Body): Promise<Created> {
    const backends = machine.tasks(machine.actor(name))
    const creating = creatingFor(machine, account)
    const { tenant, subscription, keyId, keyVersionId } = account
    const record = await backends.store.subscription(subscription)
    if (!record) throw planInactive('PlanNotActive')
    const known = await replay(backends, creating, tenant, body.idempotency, record)
    if (known) return known
    const price = { verb: body.verb, micro: body.estimatedCost, per: 'Job' as const }
    const owner = { tenant, subscription, keyId, keyVersionId }
    const asked = { object: 'generation' as const, input: { prompt: 'a lighthouse' }, metadata: {}, price }
    return createTask(backends, creating, { id: backends.uuid(), ...owner, ...asked, ...body, maxAttempts: account.terms.media?.attempts ?? 1 }, record)
  }

  /** Asks any gateway and waits so long. Null: no answer, or one that says to come again. */
  async function ask<T>(work: (machine: Machine) => Promise<T>): Promise<T | null> {
    const gateways = world.machines.filter(({ process }) => process.name.startsWith('gateway'))
    if (gateways.length === 0) return null
    const machine = dice.pick(gateways)
    const patience = world.scheduler.sleep(null, PATIENCE_MS)
    try {
      return await Promise.race([machine.serve(() => work(machine)), patience.done.then(() => null)])
    } catch (error) {
      const again = error instanceof Unavailable || error instanceof Gone || (error instanceof Failure && error.code === 'unavailable')
      if (again) return null
      throw error
    } finally {
      patience.wake()
    }
  }

  async function create(name: string, account: Account, body: Body): Promise<Task | null> {
    for (let tries = dice.whole(1, 3); tries > 0; tries--) {
      const created = await ask((machine) => submit(machine, name, account, body))
      if (created) {
        witness.answered({ what: 'accepted', task: created.task, key: body.idempotency?.key ?? null })
        return created.task
      }
      await world.sleep(dice.whole(100, 5_000))
    }
    return null
  }

  async function giveUp(name: string, { tenant, id }: Task): Promise<void> {
    await world.sleep(dice.whole(0, 12_000))
    const canceled = await ask(async (machine) => {
      const backends = machine.tasks(machine.actor(name))
      const task = await backends.store.task(tenant, id)
      return task && cancel(backends, task)
    })
    if (canceled) witness.answered({ what: 'canceled', task: canceled, key: null })
  }

  async function one(name: string): Promise<void> {
    const account = dice.pick(ACCOUNTS)
    const body = bodyFor(account)
    const copies = body.idempotency && dice.chance(impatience) ? 2 : 1
    const asked = Array.from({ length: copies }, async (_, i) => {
      if (i > 0) await world.sleep(dice.whole(0, 3_000))
      return create(`${name}${'ab'[i] ?? ''}`, account, body)
    })
    const task = (await Promise.all(asked)).find((found) => found !== null)
    if (task && dice.chance(0.3)) await giveUp(name, task)
  }

  return async (name) => {
    for (let tasks = dice.whole(1, 2); tasks > 0; tasks--) {
      await world.sleep(dice.whole(0, rushMs))
      // A refusal is an answer like another.
      await one(name).catch((error: unknown) => {
        if (!(error instanceof Failure)) throw error
      })
    }
  }
}
