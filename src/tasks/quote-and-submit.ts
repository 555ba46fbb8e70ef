/** From a client's body to a task or a quote: the one way in for the Media API and for MCP. */
import { createHash } from 'node:crypto'
import { availableToKey, rollPeriod } from '../domain/balance.ts'
import type { Engines } from '../backends/engines/engine.ts'
import { Failure } from '../domain/errors.ts'
import { costOf, generationOf, priceOf, type GenerationBody, type GenerationRequest, type Kind } from '../domain/generations.ts'
import type { KeyVersion } from '../domain/api-keys.ts'
import { formatMoney, parseMoney } from '../domain/money.ts'
import type { Price } from '../domain/plans.ts'
import type { Creating, Stale } from '../domain/subscription/commands.ts'
import { inactiveReason, planInactive, type Subscription } from '../domain/subscription/subscription.ts'
import { invalid } from '../domain/request-validation.ts'
import { createTask, KeyMoved, replay, type Created, type NewTask } from './create-task.ts'
import type { TaskContext } from './task-context.ts'

export type SubmitContext = TaskContext & {
  engines: Engines
  /** Why an address that a tenant gave is refused as it stands, in public words; null when it is not. */
  refusedUrl: (url: string) => string | null
}

/** Who asks: `plugins/auth` makes it. `creating` brings `key` up to date. */
export type Submitter = { key: KeyVersion; creating: Creating }

/** A body that passed its schema. */
export type NewGeneration = GenerationBody & { kind: Kind; webhook_url?: string; metadata?: Record<string, string>; max_cost?: string }

export type Quote = { request: GenerationRequest; price: Price; estimatedCost: number; record: Subscription }

/**
 * The record of the submitter's subscription as it is now. By its version it proves the key as well, which may have been remembered: a key that changed since is
 * read anew, and its failure thrown. Throws `plan_inactive` when there is no record, and nothing that could prove a key.
 */
export async function currentRecord({ store }: SubmitContext, { creating }: Submitter): Promise<Subscription> {
  const { record } = await creating(async (subscription, { keysVersion }): Promise<Stale | { outcome: 'current'; record: Subscription }> => {
    const record = await store.subscription(subscription)
    if (!record) throw planInactive('PlanNotActive')
    return record.keysVersion === keysVersion ? { outcome: 'current', record } : { outcome: 'stale', keysVersion: record.keysVersion }
  })
  return record
}

/**
 * Says what a generation would cost under `record`, which `currentRecord` read. Throws `not_supported` when no engine makes it, `invalid_request` with every faulty
 * field, `url_not_allowed`, `plan_inactive`, and `max_cost_exceeded`. Stores nothing.
 */
export function quote(context: SubmitContext, body: NewGeneration, record: Subscription): Quote {
  const offer = context.engines.offer(body.kind)
  if (!offer) throw new Failure('not_supported', { param: 'kind' })
  const asked = generationOf(body.kind, body, offer.route, offer.formats)
  if (asked.outcome === 'invalid') throw invalid(asked.errors)
  const most = body.max_cost === undefined ? null : parseMoney(body.max_cost)
  if (body.max_cost !== undefined && most === null) {
    throw invalid([{ path: '/max_cost', code: 'format', message: 'must be a decimal string with at most six decimals, such as "0.10"' }])
  }
  checkUrl(context, 'webhook_url', body.webhook_url)
  const reason = inactiveReason(record, context.clock())
  if (reason || !record.terms.media) throw planInactive(reason ?? 'PlanNotActive')
  const price = priceOf(offer.route, record.terms.media.prices)
  const estimatedCost = costOf(price, offer.quote(asked.request))
  if (most !== null && estimatedCost > most) throw new Failure('max_cost_exceeded', { beside: { required: formatMoney(estimatedCost) } })
  return { request: asked.request, price, estimatedCost, record }
}

/** Names are resolved when they are used, never here: an answer would tell a stranger what our resolver knows. */
function checkUrl(context: SubmitContext, field: string, url: string | undefined): void {
  const message = url === undefined ? null : context.refusedUrl(url)
  if (message) throw new Failure('url_not_allowed', { message, param: field, errors: [{ path: `/${field}`, code: 'url_not_allowed', message }] })
}

/** Nobody moves a key at every moment. */
const MOVES = 3

/** Creates the task of a generation, or answers the one that its Idempotency-Key made; under the key's new plan where it moved meanwhile. Throws what `quote` and `createTask` throw. */
export async function submit(context: SubmitContext, submitter: Submitter, body: NewGeneration, idempotencyKey: string | null): Promise<Created> {
  for (let moves = 1; ; moves++) {
    try {
      return await submitOnce(context, submitter, body, idempotencyKey)
    } catch (error) {
      if (!(error instanceof KeyMoved) || moves === MOVES) throw error
    }
  }
}

async function submitOnce(context: SubmitContext, submitter: Submitter, body: NewGeneration, idempotencyKey: string | null): Promise<Created> {
  const current = await currentRecord(context, submitter)
  const { key, creating } = submitter
  const idempotency = idempotencyKey === null ? null : { key: idempotencyKey, bodyHash: bodyHash(body) }
  const known = await replay(context, creating, key.tenant, idempotency, current)
  if (known) return known
  const { request, price, estimatedCost, record } = quote(context, body, current)
  const { verb, ...input } = request
  const draft: NewTask = {
    id: context.uuid(),
    tenant: key.tenant,
    subscription: record.id,
    keyId: key.keyId,
    keyVersionId: key.id,
    object: 'generation',
    verb,
    input,
    webhookUrl: body.webhook_url ?? null,
    metadata: body.metadata ?? {},
    idempotency,
    price,
    estimatedCost,
    maxAttempts: record.terms.media?.attempts ?? 1,
  }
  return createTask(context, creating, draft, record)
}

/** SHA-256 over the body with its members in order, so that another spelling of the same body is the same request. */
function bodyHash(body: unknown): string {
  return createHash('sha256').update(JSON.stringify(sorted(body))).digest('hex')
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, member]) => [name, sorted(member)]),
  )
}

/** What a dry run answers: the price, and whether it could be paid now. */
export function publicQuote({ request, estimatedCost, record }: Quote, { key }: Submitter, now: number, estimatedWaitSeconds: number | null): Record<string, unknown> {
  const { media } = record.terms
  const available = record.media && media && record.anchor !== null ? availableToKey(rollPeriod(record.media, media, record.anchor, now), key) : 0
  const waiting = Object.values(record.media?.holds ?? {}).filter(({ run }) => run === null).length
  return {
    object: 'quote',
    kind: request.verb,
    estimated_cost: formatMoney(estimatedCost),
    available: formatMoney(available),
    affordable: estimatedCost <= available,
    queue_position: waiting + 1,
    estimated_wait_seconds: estimatedWaitSeconds,
  }
}
