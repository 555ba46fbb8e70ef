/** Plan terms: the spec of a Plan converted to the units of the records (micro-units, milliseconds, permille). Pure. */
import { parseMoney } from './money.ts'
import type { PlanResource, PlanSpec, Product } from '../backends/resources/resources.ts'

/** A price per unit in micro-units. `kind` is the media kind or operation, as in a task. */
export type Price = { kind: string; micro: number; per: 'Job' | 'Second' | 'Megapixel' }

export type MediaTerms = {
  /** Micro-units granted per period. */
  allowance: number
  period: { unit: 'days' | 'months'; count: number }
  maxConcurrentTasks: number
  maxQueuedTasks: number
  /** Attempts before a task fails. */
  attempts: number
  prices: Price[]
}

export type CodingTerms = {
  sessionTokens: number
  sessionMs: number
  weeklyTokens: number
  /** Permille: 1000 counts a token once. */
  weights: { input: number; cachedInput: number; output: number }
  onAbort: 'Cancel' | 'Drain'
  maxConcurrentRequests: number
  maxOutputTokens: number
}

export type Terms = {
  displayName: string
  requestsPerMinute: number
  maxKeys: number
  rotationOverlapMs: number
  media: MediaTerms | null
  coding: CodingTerms | null
}

/** The product whose API a plan unlocks: Room and Media plans both unlock the Media API (specification, section 1). */
export type Api = 'media' | 'coding'

/** The API that keys of a product open. */
export function apiOf(product: Product): Api {
  return product === 'Coding' ? 'coding' : 'media'
}

/** A subscription's id: a tenant's Plan by name. */
export function subscriptionId(namespace: string, planName: string): string {
  return `${namespace}/${planName}`
}

/** The tenant of a subscription's id. */
export function tenantOf(subscription: string): string {
  return subscription.slice(0, subscription.indexOf('/'))
}

/** The name of the Plan in a subscription's id. */
export function planNameOf(subscription: string): string {
  return subscription.slice(subscription.indexOf('/') + 1)
}

/** Converts a valid spec with defaults. Throws a TypeError if the spec did not pass the CRD's validation. */
export function termsOf(plan: PlanResource): Terms {
  const { spec } = plan
  return {
    displayName: spec.displayName ?? plan.metadata.name,
    requestsPerMinute: spec.requestsPerMinute,
    maxKeys: spec.keyPolicy.maxKeys,
    rotationOverlapMs: spec.keyPolicy.rotationOverlapSeconds * 1000,
    media: spec.media ? mediaTerms(spec.media) : null,
    coding: spec.coding ? codingTerms(spec.coding) : null,
  }
}

function mediaTerms(media: NonNullable<PlanSpec['media']>): MediaTerms {
  return {
    allowance: micro(media.allowance),
    period:
      media.periodMonths === undefined ? { unit: 'days', count: media.periodDays ?? 30 } : { unit: 'months', count: media.periodMonths },
    maxConcurrentTasks: media.maxConcurrentTasks,
    maxQueuedTasks: media.maxQueuedTasks,
    attempts: media.attempts,
    prices: (media.prices ?? []).map((price) => ({
      kind: price.kind ?? price.operation ?? '',
      micro: micro(price.amount),
      per: price.per,
    })),
  }
}

function codingTerms(coding: NonNullable<PlanSpec['coding']>): CodingTerms {
  return {
    sessionTokens: coding.sessionWindow.tokens,
    sessionMs: coding.sessionWindow.durationSeconds * 1000,
    weeklyTokens: coding.weeklyWindow.tokens,
    weights: coding.weights,
    onAbort: coding.onAbort,
    maxConcurrentRequests: coding.maxConcurrentRequests,
    maxOutputTokens: coding.maxOutputTokens,
  }
}

function micro(text: string): number {
  const amount = parseMoney(text)
  if (amount === null) throw new TypeError(`not an amount: ${text}`)
  return amount
}
