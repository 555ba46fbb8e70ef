/** From the body of a request to its task: the one way in for the Media API and for MCP. */
import type { KeyVersion } from '../domain/api-keys.ts'
import type { Creating, Stale } from '../domain/subscription/commands.ts'
import { planInactive, type Subscription } from '../domain/subscription/subscription.ts'
import { createTask, KeyMoved, replay, type Created, type NewTask } from './create-task.ts'
import { idempotencyOf } from './idempotency-key.ts'
import { quote, type QuoteContext, type TaskBody } from './quote.ts'
import { traced } from '../telemetry/tracing.ts'
import type { TaskContext } from './task-context.ts'

export type SubmitContext = TaskContext & QuoteContext

/** The key of a caller, or what stands for one in the dashboard. */
export type CallerKey = Pick<KeyVersion, 'id' | 'keyId' | 'tenant' | 'subscription' | 'product' | 'cap'>

/** The caller, as `plugins/auth` makes it by a key and `plugins/dashboard` by a session. `creating` brings `key` up to date. */
export type Submitter = { key: CallerKey; creating: Creating }

/**
 * The present record of the submitter's subscription. Its version also proves the key, which may come from a cache: a key that changed since is read anew, and its failure
 * thrown. Throws `plan_inactive` when there is no record, which could prove no key.
 */
export async function currentRecord({ store }: Pick<TaskContext, 'store'>, { creating }: Submitter): Promise<Subscription> {
  const { record } = await creating(
    async (subscription, { keysVersion }): Promise<Stale | { outcome: 'current'; record: Subscription }> => {
      const record = await store.subscription(subscription)
      if (!record) throw planInactive('PlanNotActive')
      return record.keysVersion === keysVersion ? { outcome: 'current', record } : { outcome: 'stale', keysVersion: record.keysVersion }
    },
  )
  return record
}

/** A key may move to another plan during a creation, but not every time. */
const MOVES_MAX = 3

/** Creates the task of a body, made by the request `requestId`, or answers the task of its Idempotency-Key; under the key's new plan if the key moved meanwhile. Throws what `quote` and `createTask` throw. */
export async function submit(
  context: SubmitContext,
  submitter: Submitter,
  body: TaskBody,
  idempotencyKey: string | null,
  requestId: string,
): Promise<Created> {
  for (let moves = 1; ; moves++) {
    try {
      return await traced('submit task', { within: true }, ({ traceparent }) =>
        submitOnce(context, submitter, body, idempotencyKey, { requestId, ...(traceparent === null ? {} : { traceparent }) }),
      )
    } catch (error) {
      if (!(error instanceof KeyMoved) || moves === MOVES_MAX) throw error
    }
  }
}

async function submitOnce(
  context: SubmitContext,
  submitter: Submitter,
  body: TaskBody,
  idempotencyKey: string | null,
  origin: Pick<NewTask, 'requestId' | 'traceparent'>,
): Promise<Created> {
  const current = await currentRecord(context, submitter)
  const { key, creating } = submitter
  const idempotency = idempotencyOf(idempotencyKey, body)
  const known = await replay(context, creating, key.tenant, idempotency, current)
  if (known) return known
  const { object, kind, input, uploads, price, cancelPercent, estimatedCost, extendableTo, record } = await quote(context, body, current)
  const task: NewTask = {
    id: context.uuid(),
    tenant: key.tenant,
    subscription: record.id,
    keyId: key.keyId,
    keyVersionId: key.id,
    object,
    kind,
    input,
    webhookUrl: body.webhook_url ?? null,
    metadata: body.metadata ?? {},
    idempotency,
    ...origin,
    price,
    ...(cancelPercent > 0 ? { cancelPercent } : {}),
    estimatedCost,
    ...(extendableTo === null ? {} : { extendableTo, quotedCost: estimatedCost }),
    maxAttempts: record.terms.media?.attempts ?? 1,
  }
  return createTask(context, creating, task, record, uploads)
}
