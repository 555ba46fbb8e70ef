/** Fixtures of the store contract: plans, requests, tasks, deliveries and keys of the tenant acme, with members that a test may override. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { KeyVersion } from '../../../src/domain/api-keys.ts'
import type { CodingTerms, MediaTerms, Terms } from '../../../src/domain/plans.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import type { Delivery, LoggedEvent, Task } from '../../../src/domain/task.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

export const ID = 'acme/code'
export const T0 = Date.UTC(2026, 0, 5)

/** Limits that no test reaches by accident. */
const CODING: CodingTerms = {
  sessionTokens: 1_000_000,
  sessionMs: 5 * 3600 * 1000,
  weeklyTokens: 10_000_000,
  weights: { input: 1000, cachedInput: 1000, output: 1000 },
  onAbort: 'Cancel',
  maxConcurrentRequests: 1000,
  maxOutputTokens: 65_536,
}
const MEDIA: MediaTerms = {
  allowance: 1_000_000,
  period: { unit: 'days', count: 30 },
  maxConcurrentTasks: 100,
  maxQueuedTasks: 2000,
  attempts: 3,
  prices: [],
}
const TERMS: Terms = { displayName: 'Code', requestsPerMinute: 1_000_000, maxKeys: 5, rotationOverlapMs: 0, media: null, coding: CODING }

export function plan(facts: Partial<In<'applyPlan'>> = {}, coding: Partial<CodingTerms> = {}): In<'applyPlan'> {
  return {
    op: 'applyPlan',
    plan: { uid: 'plan-1', createdAt: T0, generation: 1 },
    product: 'Coding',
    terms: { ...TERMS, coding: { ...CODING, ...coding } },
    state: 'Active',
    activeFrom: null,
    activeUntil: null,
    verdict: null,
    ...facts,
  }
}

export function mediaPlan(media: Partial<MediaTerms> = {}, facts: Partial<In<'applyPlan'>> = {}): In<'applyPlan'> {
  return plan({ product: 'Media', terms: { ...TERMS, media: { ...MEDIA, ...media } }, ...facts })
}

/** Every due task, earliest first within a tenant. */
export async function allDue(store: Store, now: number): Promise<Task[]> {
  const states = ['pending', 'queued', 'processing', 'settling', 'completed', 'failed', 'canceled'] as const
  return (await store.tasksDue(now, [{ states, after: '', limit: 1000, perTenant: 1000 }])).flat()
}

/** A UUID v7: the `n`th of its millisecond. */
export function taskId(n: number, at = T0): string {
  const time = at.toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${String(n).padStart(12, '0')}`
}

export function hold(id: string, kind = 'image'): In<'hold'> {
  return { op: 'hold', task: id, kind, amount: 1, keyId: 'key-1', keyCap: null, keysVersion: 1 }
}

export function task(n: number, facts: Partial<Task> = {}): Task {
  return {
    id: taskId(n),
    tenant: 'acme',
    subscription: 'acme/studio',
    keyId: 'key-1',
    keyVersionId: 'key-1-0',
    object: 'generation',
    kind: 'image',
    input: { prompt: 'A lighthouse' },
    webhookUrl: 'https://hooks.example/acme',
    metadata: {},
    idempotency: null,
    price: { kind: 'image', micro: 40_000, per: 'Job' },
    estimatedCost: 40_000,
    maxAttempts: 3,
    state: 'pending',
    epoch: 0,
    progress: 0,
    attempts: 0,
    lostLeases: 0,
    job: null,
    outcome: null,
    actualCost: null,
    refundAmount: null,
    createdAt: T0,
    startedAt: null,
    endedAt: null,
    sweepAt: T0 + 60_000,
    outbox: [],
    ...facts,
  }
}

/** The delivery of `event` of the `n`th task, due at once. */
export function delivery(n: number, facts: Partial<Delivery> = {}): Delivery {
  const event = facts.event ?? 'task.completed'
  return {
    id: `${taskId(n)}.${event}`,
    taskId: taskId(n),
    tenant: 'acme',
    keyVersionId: 'key-1-0',
    event,
    url: 'https://hooks.example/acme',
    host: 'hooks.example',
    body: '{}',
    state: 'pending',
    nextAttemptAt: T0,
    epoch: 0,
    leaseUntil: null,
    attempts: [],
    createdAt: T0,
    ...facts,
  }
}

/** The logged `event` of the `n`th task. */
export function logged(n: number, facts: Partial<LoggedEvent> = {}): LoggedEvent {
  const event = facts.event ?? 'task.completed'
  return { id: `${taskId(n)}.${event}`, tenant: 'acme', taskId: taskId(n), event, body: '{}', loggedAt: T0, ...facts }
}

/** A request that reserves `tokens`. */
export function admit(id: string, tokens: number, facts: Partial<In<'admit'>> = {}): In<'admit'> {
  const key = { keyId: 'key-1', keyCap: null, keysVersion: 1 }
  return { op: 'admit', id, ...key, instance: 'gateway-1', promptBytes: 0, maxOutputTokens: tokens, ...facts }
}

/** The end of a request that used `tokens`. */
export function settle(id: string, tokens: number): In<'settle'> {
  return { op: 'settle', id, usage: { input: 0, cachedInput: 0, output: tokens }, estimated: false }
}

/** Tokens of the running session. */
export function sessionOf(record: Subscription | null): { used: number; reserved: number } {
  const reservations = Object.values(record?.coding?.reservations ?? {})
  return { used: record?.coding?.session?.used ?? 0, reserved: reservations.reduce((sum, { tokens }) => sum + tokens, 0) }
}

export function keyVersion(keyId: string, revision: number, facts: Partial<KeyVersion> = {}): KeyVersion {
  return {
    id: `${keyId}-${revision}`,
    keyId,
    revision,
    tenant: 'acme',
    name: 'ci',
    subscription: ID,
    product: 'Coding',
    hash: `hash of ${keyId}-${revision}`,
    sealed: 'v1.sealed',
    prefix: 'svc_live_abcdef',
    state: 'pending',
    cap: null,
    issuedAt: T0,
    expiresAt: null,
    endedAt: null,
    overlapUntil: null,
    secretName: null,
    tell: [],
    ...facts,
  }
}

/** The same numbers from 0 to 1 for the same seed (Marsaglia's xorshift32). */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 32
  }
}
