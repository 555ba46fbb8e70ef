/** Plain-data world for the key decisions: applies each step as the controller would and records it. */
import { keyVersionId, type KeyVersion } from '../../../src/domain/api-keys.ts'
import { subscriptionId } from '../../../src/domain/plans.ts'
import { capOf } from '../../../src/domain/reconcile/api-key-rotation.ts'
import { reconcileKey, type FoundSecret, type GatheredKey, type KeyStep } from '../../../src/domain/reconcile/reconcile-api-key.ts'
import { reconcilePlan, type PlanStep } from '../../../src/domain/reconcile/reconcile-plan.ts'
import type { ApiKeyResource, ApiKeySpec, Condition, PlanResource, PlanSpec } from '../../../src/backends/resources/resources.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { keyVersion } from '../../contracts/store/acme.ts'

export const T0 = Date.UTC(2026, 0, 5)
export const HOUR = 3_600_000

const at = (ms: number) => new Date(ms).toISOString()

export function plan(name: string, spec: Partial<PlanSpec> = {}, metadata: Partial<PlanResource['metadata']> = {}): PlanResource {
  const coding: PlanSpec['coding'] = {
    sessionWindow: { tokens: 1000, durationSeconds: 18_000 },
    weeklyWindow: { tokens: 10_000 },
    weights: { input: 1000, cachedInput: 1000, output: 1000 },
    onAbort: 'Cancel',
    maxConcurrentRequests: 32,
    maxOutputTokens: 65_536,
  }
  const media: PlanSpec['media'] = { allowance: '100.00', maxConcurrentTasks: 4, maxQueuedTasks: 1000, attempts: 3 }
  const product = spec.product ?? 'Coding'
  return {
    apiVersion: 'tollgate.dev/v1alpha1',
    kind: 'Plan',
    metadata: { name, namespace: 'acme', uid: `plan-${name}`, generation: 1, creationTimestamp: at(T0), ...metadata },
    spec: { product, state: 'Active', requestsPerMinute: 600, keyPolicy: { maxKeys: 2, rotationOverlapSeconds: 3600 }, ...(product === 'Coding' ? { coding } : { media }), ...spec },
  }
}

export function key(name: string, spec: Partial<ApiKeySpec> = {}, metadata: Partial<ApiKeyResource['metadata']> = {}): ApiKeyResource {
  return {
    apiVersion: 'tollgate.dev/v1alpha1',
    kind: 'ApiKey',
    metadata: { name, namespace: 'acme', uid: `key-${name}`, generation: 1, creationTimestamp: at(T0), ...metadata },
    spec: { planRef: { name: 'coder' }, secretName: `${name}-key`, state: 'Active', rotationRevision: 0, ...spec },
  }
}

/** The subscription's record after the Plan was applied to `record`. */
export function applied(resource: PlanResource, record: Subscription | null = null, verdict: string | null = null, now = T0): Subscription {
  const decision = reconcilePlan({ plan: resource, record, verdict, answer: null, activeKeys: 0, status: null }, now)
  if (!decision.next) return record!
  return reduce(record, decision.next, now, subscriptionId(resource.metadata.namespace, resource.metadata.name)).record!
}

export function applyTo(record: Subscription | null, step: PlanStep, now = T0): { record: Subscription | null; answer: { outcome: string } } {
  return reduce(record, step, now, 'acme/coder')
}

export function conditions(status: { conditions: Condition[] } | null): Record<string, string> {
  return Object.fromEntries((status?.conditions ?? []).map(({ type, status: value, reason }) => [type, `${value} ${reason}`]))
}

export type World = {
  facts: GatheredKey
  now: number
  /** The steps of the last `settle`, as text. */
  done: string[]
  /** Subscriptions that were notified of a key change. */
  notified: string[]
  requeueAt: number | null
  /** A foreign Secret has the key's `secretName`. */
  isForeign: boolean
  /** Applies decisions until one is steady or waiting, or until `maxSteps` steps. Returns the steps and the conditions. */
  settle(maxSteps?: number): { done: string[]; conditions: Record<string, string> }
}

export function world(facts: Partial<GatheredKey> = {}): World {
  const coder = facts.plan === undefined ? plan('coder') : facts.plan
  const self: World = {
    facts: { key: key('ci'), plan: coder, record: coder && applied(coder), isAdmitted: true, versions: [], secret: null, obstacle: null, status: null, ...facts },
    now: T0,
    done: [],
    notified: [],
    requeueAt: null,
    isForeign: false,
    settle(maxSteps = 50) {
      self.done = []
      self.facts.obstacle = null
      while (self.done.length < maxSteps) {
        const decision = reconcileKey(self.facts, self.now)
        if (decision.outcome === 'waiting') return { done: [...self.done, 'waiting'], conditions: {} }
        if (decision.outcome === 'steady') {
          self.facts.status = decision.status
          self.requeueAt = decision.requeueAt
          return { done: self.done, conditions: conditions(decision.status) }
        }
        self.done.push(textOf(decision.next))
        apply(self, decision.next)
      }
      return { done: self.done, conditions: {} }
    },
  }
  return self
}

function textOf(step: KeyStep): string {
  if (step.step === 'set') return [`set ${step.id}`, ...Object.entries(step.change).map(([field, value]) => `${field}=${typeof value === 'number' && value > T0 / 2 ? `T0+${(value - T0) / 1000}s` : value}`)].join(' ')
  if (step.step === 'mint' || step.step === 'restoreFromSecret') return `${step.step} ${step.revision}`
  return step.step === 'putSecret' ? `putSecret ${step.version.id}` : step.step === 'notify' ? `notify ${step.version.tell.join(' ')}` : step.step
}

export function version(resource: ApiKeyResource, revision: number, facts: Partial<KeyVersion> = {}): KeyVersion {
  const { uid, namespace, name } = resource.metadata
  const id = keyVersionId(uid, revision)
  const subscription = subscriptionId(namespace, resource.spec.planRef.name)
  return keyVersion(uid, revision, { id, tenant: namespace, name, subscription, hash: `hash-${id}`, sealed: '', state: 'active', issuedAt: T0, ...facts })
}

export function secretOf({ id, hash }: Pick<KeyVersion, 'id' | 'hash'>): FoundSecret {
  return { keyId: id, hash, isProven: true }
}

function apply(self: World, step: KeyStep): void {
  const { facts } = self
  const { key: resource, plan: named } = facts
  const replace = (id: string, change: Partial<KeyVersion>) => {
    facts.versions = facts.versions.map((old) => (old.id === id ? { ...old, ...change } : old))
  }
  if (step.step === 'notify') {
    self.notified.push(...step.version.tell)
    replace(step.version.id, { tell: [] })
  } else if (step.step === 'set') {
    const old = facts.versions.find(({ id }) => id === step.id)
    replace(step.id, { ...step.change, tell: [...(old?.tell ?? []), ...step.notify] })
  } else if (step.step === 'mint' || step.step === 'restoreFromSecret') {
    const product = named?.spec.product ?? 'Coding'
    const minted = version(resource, step.revision, { state: 'pending', product, cap: capOf(facts, product), issuedAt: self.now })
    facts.versions = [minted, ...facts.versions].sort((a, b) => b.revision - a.revision)
  } else if (step.step === 'putSecret') {
    if (self.isForeign) facts.obstacle = { reason: 'SecretConflict' }
    else facts.secret = secretOf(step.version)
  } else {
    facts.secret = null
  }
}

export const iso = (ms: number) => new Date(ms).toISOString()
export const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }
export const ISSUE = ['mint 0', 'putSecret key-ci-0', 'set key-ci-0 state=active']

/** A world whose key is issued. */
export function issued(facts: Parameters<typeof world>[0] = {}) {
  const self = world(facts)
  self.settle()
  return self
}

/** Edits the plan and applies it to its record. */
export function edit(self: ReturnType<typeof world>, spec: Partial<PlanResource['spec']>): void {
  const { metadata } = self.facts.plan!
  self.facts.plan = plan(metadata.name, spec, { generation: metadata.generation + 1 })
  self.facts.record = applied(self.facts.plan, self.facts.record, null, self.now)
}

/** Edits the key and pauses it. */
export function pause(self: ReturnType<typeof world>, spec: Parameters<typeof key>[1] = {}): void {
  respec(self, spec)
  self.facts.key.metadata.annotations = { 'tollgate.dev/paused': 'true' }
}

/** Edits the key. */
export function respec(self: ReturnType<typeof world>, spec: Parameters<typeof key>[1]): void {
  const { metadata } = self.facts.key
  self.facts.key = key(metadata.name, spec, { generation: metadata.generation + 1 })
}
