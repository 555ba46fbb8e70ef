/** Simulated clients of the Media API: they retry with the same Idempotency-Key at any gateway, and cancel. */
import { Failure, overLimit, Unavailable } from '../../../src/domain/errors.ts'
import type { Creating, Stale } from '../../../src/domain/subscription/commands.ts'
import { planInactive } from '../../../src/domain/subscription/subscription.ts'
import { createTask, replay, type Created, type NewTask } from '../../../src/tasks/create-task.ts'
import { cancel } from '../../../src/tasks/run-outcome.ts'
import type { Task } from '../../../src/domain/task.ts'
import { Crashed, type Machine, type World } from '../world.ts'
import { ACCOUNTS, type Account } from './accounts.ts'
import { LINKS, PNG } from './files.ts'
import { UNSERVED } from './worker.ts'

type Body = Pick<NewTask, 'object' | 'kind' | 'input' | 'estimatedCost' | 'extendableTo' | 'quotedCost' | 'webhookUrl' | 'idempotency'>

const RECEIVERS = ['good', 'flaky', 'dead', 'slow', 'slow']
const TIMEOUT_MS = 25_000

/** Returns the program of a client: a few tasks, some requested twice, some canceled. */
export function clientOf(world: World): (name: string) => Promise<void> {
  const { rng, checker } = world
  const bodies = new Map<string, Body>()
  const keysVersions = new WeakMap<Machine, Map<string, number>>()
  /** How far the requests are apart, and the probability that one is sent twice. */
  const spreadMs = rng.pick([1_000, 10_000, 60_000])
  const duplicateRate = rng.pick([0.2, 0.9])

  /** As `plugins/auth`: uses cached facts of the key, and reads them again when they are stale. */
  function creatingFor(machine: Machine, { subscription, keyId, cap }: Account): Creating {
    const known = keysVersions.get(machine) ?? new Map<string, number>()
    keysVersions.set(machine, known)
    return async (run) => {
      for (let tries = 0; tries < 5; tries++) {
        const answer = await run(subscription, { keyId, keyCap: cap, keysVersion: known.get(subscription) ?? 0 })
        if (answer.outcome !== 'stale') return answer as Exclude<typeof answer, Stale>
        known.set(subscription, (answer as { outcome: string } as Stale).keysVersion)
      }
      throw overLimit('key_changes', { retryAfterSeconds: 1 })
    }
  }

  /** An Idempotency-Key always has the same body, except for a few mistaken requests. */
  function bodyFor({ tenant }: Account): Body {
    const key = rng.chance(0.75) ? `k${rng.whole(1, 3)}` : null
    const known = key === null ? undefined : bodies.get(`${tenant} ${key}`)
    if (known) return rng.chance(0.05) ? { ...known, idempotency: { key: key ?? '', bodyHash: 'another' } } : known
    const estimatedCost = rng.pick([0, 50, 120, 200, 350])
    const body: Body = {
      ...(rng.chance(0.3) ? operation() : { object: 'generation', kind: rng.chance(0.06) ? UNSERVED : rng.pick(['image', 'video']), input: { prompt: 'a lighthouse' } }),
      estimatedCost,
      ...(rng.chance(0.3) && { extendableTo: estimatedCost + 400, quotedCost: estimatedCost }),
      webhookUrl: rng.chance(0.7) ? `https://${rng.pick(RECEIVERS)}.test/hook` : null,
      idempotency: key === null ? null : { key, bodyHash: 'one' },
    }
    if (key !== null) bodies.set(`${tenant} ${key}`, body)
    return body
  }

  /** An operation on an upload, a result, or an address, which may vanish between two attempts. */
  function operation(): Pick<Body, 'object' | 'kind' | 'input'> {
    const results = [...checker.seen.tasks.values()].flatMap(({ outcome }) => (outcome?.outcome === 'completed' ? [`${LINKS}${outcome.result.file}`] : []))
    const kind = rng.pick(results.length > 0 ? ['upload', 'address', 'result'] : ['upload', 'address'])
    const address = kind === 'result' ? rng.pick(results) : `https://source.test/${rng.whole(1, 1e9)}`
    if (kind === 'address') world.files.vanishing.set(address, rng.chance(0.4) ? world.scheduler.now() + rng.whole(0, 40_000) : Infinity)
    if (kind === 'result' && rng.chance(0.2)) void world.sleep(rng.whole(0, 20_000)).then(() => expire(address.slice(LINKS.length)))
    return { object: 'operation', kind: 'upscale', input: { media_url: kind === 'upload' ? { content_type: 'image/png', bytes: PNG.length } : address } }
  }

  function expire(file: string): void {
    world.files.stored.delete(file)
    world.files.expired.add(file)
  }

  /** As `submit` in `src/tasks`, with a fixed quote. */
  async function submit(machine: Machine, name: string, account: Account, body: Body): Promise<Created> {
    const backends = machine.tasks(machine.actor(name))
    const creating = creatingFor(machine, account)
    const { tenant, subscription, keyId, keyVersionId } = account
    const record = await backends.store.subscription(subscription)
    if (!record) throw planInactive('PlanNotActive')
    const known = await replay(backends, creating, tenant, body.idempotency, record)
    if (known) return known
    const price = { kind: body.kind, micro: body.estimatedCost, per: 'Job' as const }
    const owner = { tenant, subscription, keyId, keyVersionId }
    const uploads = typeof body.input['media_url'] === 'object' ? [{ field: 'media_url' as const, bytes: PNG }] : []
    return createTask(backends, creating, { id: backends.uuid(), ...owner, ...body, metadata: {}, price, cancelPercent: 40, maxAttempts: account.terms.media?.attempts ?? 1 }, record, uploads)
  }

  /** Sends a request to any gateway, with a timeout. Null: no answer, or a retryable one. */
  async function send<T>(work: (machine: Machine) => Promise<T>): Promise<T | null> {
    const gateways = world.machines.filter(({ process }) => process.name.startsWith('gateway'))
    if (gateways.length === 0) return null
    const machine = rng.pick(gateways)
    const timeout = world.scheduler.sleep(null, TIMEOUT_MS)
    try {
      return await Promise.race([machine.serve(() => work(machine)), timeout.done.then(() => null)])
    } catch (error) {
      const again = error instanceof Unavailable || error instanceof Crashed || (error instanceof Failure && error.code === 'unavailable')
      if (again) return null
      throw error
    } finally {
      timeout.wake()
    }
  }

  async function create(name: string, account: Account, body: Body): Promise<Task | null> {
    for (let tries = rng.whole(1, 3); tries > 0; tries--) {
      const created = await send((machine) => submit(machine, name, account, body))
      if (created) {
        checker.answered({ what: 'accepted', task: created.task, key: body.idempotency?.key ?? null })
        return created.task
      }
      await world.sleep(rng.whole(100, 5_000))
    }
    return null
  }

  async function cancelLater(name: string, { tenant, id }: Task): Promise<void> {
    await world.sleep(rng.whole(0, 12_000))
    if (world.hasProvider) await waitingWithJob(id)
    const canceled = await send(async (machine) => {
      const backends = machine.tasks(machine.actor(name))
      const task = await backends.store.task(tenant, id)
      return task && cancel(backends, task)
    })
    if (canceled) checker.answered({ what: 'canceled', task: canceled, key: null })
  }

  /** Waits, for a while, until the task waits for another run with the job of one before: seldom by chance, and when it is canceled then it is charged. */
  async function waitingWithJob(id: string): Promise<void> {
    const isWaiting = () => checker.seen.tasks.get(id)?.state === 'queued' && checker.seen.tasks.get(id)?.job !== null
    for (let looks = 0; looks < 40 && !isWaiting(); looks++) await world.sleep(500)
  }

  async function one(name: string): Promise<void> {
    const account = rng.pick(ACCOUNTS)
    const body = bodyFor(account)
    const copies = body.idempotency && rng.chance(duplicateRate) ? 2 : 1
    const attempts = Array.from({ length: copies }, async (_, i) => {
      if (i > 0) await world.sleep(rng.whole(0, 3_000))
      return create(`${name}${'ab'[i] ?? ''}`, account, body)
    })
    const task = (await Promise.all(attempts)).find((found) => found !== null)
    if (task && rng.chance(world.hasProvider ? 0.7 : 0.3)) await cancelLater(name, task)
  }

  return async (name) => {
    for (let tasks = rng.whole(1, 2); tasks > 0; tasks--) {
      await world.sleep(rng.whole(0, spreadMs))
      // A refusal is an expected answer.
      await one(name).catch((error: unknown) => {
        if (!(error instanceof Failure)) throw error
      })
    }
  }
}
