/** A simulated dispatcher, as `plugins/dispatcher`, with its real `deliver`; and webhook receivers: good, flaky, dead or slow. */
import { deliver, type DeliveryContext } from '../../../plugins/dispatcher/delivery-attempt.ts'
import type { Ask, Egress, Reply } from '../../../src/egress/egress.ts'
import { seal, type SealingKeys } from '../../../src/domain/api-keys.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Delivery } from '../../../src/domain/task.ts'
import type { WebhookEvent } from '../../../src/domain/webhooks.ts'
import type { Machine, World } from '../world.ts'
import type { Account } from './accounts.ts'

const SEALING: SealingKeys = [Buffer.alloc(32, 1)]
/** Retry schedule of the specification, section 8. */
const DELAYS_MS = [0, 30_000, 120_000, 600_000, 3_600_000]
const TIMEOUT_MS = 30_000
const TICK_MS = 4_000
export const capsOf = ({ perQueue }: World) => ({ limit: 8, perHost: 4, perTenant: 6, perQueue })
export const DELIVERY_LEASE_MS = 60_000

export async function mintKeys(store: Store, accounts: Account[]): Promise<void> {
  for (const { tenant, subscription, keyId, keyVersionId: id, cap } of accounts) {
    const sealed = seal(`svc_live_${tenant}`, id, SEALING, Buffer.alloc(12, 2))
    const times = { issuedAt: 0, expiresAt: null, endedAt: null, overlapUntil: null }
    const key = { hash: `hash-${tenant}`, sealed, prefix: 'svc_live_', state: 'active' as const, cap, secretName: null, tell: [] }
    await store.mintKey({ id, keyId, revision: 1, tenant, name: 'ci', subscription, product: 'Media', ...key, ...times })
  }
}

export function dispatcher(world: World, machine: Machine): void {
  machine.go('poll', async () => {
    const store = machine.store(machine.actor('poll'))
    let wake = (): void => {}
    world.broker.consume({ process: machine.process, kinds: ['webhook'], takes: () => true, received: async () => wake() })
    while (!world.recovering) {
      const now = machine.clock()
      const claimed = await store.claimDeliveries(now, now + DELIVERY_LEASE_MS, capsOf(world)).catch(() => [])
      for (const delivery of claimed) machine.go('deliver', async () => void (await deliverOne(world, machine, delivery)))
      const timer = world.scheduler.sleep(machine.process, TICK_MS)
      wake = timer.wake
      await timer.done
    }
  })
}

export async function deliverOne(world: World, machine: Machine, delivery: Delivery): Promise<void> {
  const log = { error: () => {} } as unknown as DeliveryContext['log']
  const store = machine.store(machine.actor(`deliver ${delivery.event}`))
  const schedule = { brand: 'SVC', delaysMs: DELAYS_MS, timeoutMs: TIMEOUT_MS }
  const given = { clock: machine.clock, random: world.rng.random, sealingKeys: SEALING, log }
  const backends = { store, egress: egressOf(world, machine), ...given, ...schedule }
  await deliver(backends, delivery, new AbortController().signal)
}

/** The webhook receivers. */
function egressOf({ rng, checker, scheduler, recovering }: World, machine: Machine): Egress {
  async function request({ url, headers, body }: Ask): Promise<Reply> {
    const event = headers?.['X-SVC-Event'] as WebhookEvent
    const { data } = JSON.parse(String(body)) as { data: { task_id: string } }
    scheduler.log(machine.process.name, `sends ${event} of ${data.task_id} to ${url}`)
    const ended = checker.sent(data.task_id, event)
    const receiver = new URL(url).hostname.split('.', 1)[0] ?? ''
    const durationMs = receiver === 'slow' ? rng.whole(5_000, 35_000) : rng.whole(1, 500)
    await machine.sleep(Math.min(durationMs, TIMEOUT_MS))
    ended()
    if (durationMs > TIMEOUT_MS) return { outcome: 'failed', reason: 'timeout', status: null, durationMs: TIMEOUT_MS }
    const fails = receiver === 'dead' || (receiver === 'flaky' && !recovering && rng.chance(0.5))
    return { outcome: 'answered', status: fails ? 500 : 200, headers: {}, body: new Uint8Array(), durationMs } as unknown as Reply
  }
  return { check: () => null, vet: async () => null, request, close() {} }
}
