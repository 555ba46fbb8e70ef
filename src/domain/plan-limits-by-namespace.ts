/**
 * PLAN_LIMITS: limits by namespace on what a Plan may grant, for installations where tenants write Plans. Pure. The first entry whose
 * `namespaces` match applies; a plan in a namespace without a match has no limits. Limits on all plans of a namespace together count what
 * `granted-allowances.ts` finds.
 */
import { Type, type Static } from 'typebox'
import { formatMoney, parseMoney } from './money.ts'
import { grantsBefore, type Grant } from './granted-allowances.ts'
import { subscriptionId, type Price, type Terms } from './plans.ts'
import type { Product } from '../backends/resources/resources.ts'
import { parseSettingsFile } from './settings-file.ts'

const strict = { additionalProperties: false }
const count = (most: number) => Type.Optional(Type.Integer({ minimum: 0, maximum: most }))
const TOKENS = 1e12
const MIN_PERIOD_DAYS = 28
const MIN_SESSION_SECONDS = 18_000
const MIN_WEIGHT = 1000
const AMOUNT = Type.String({ pattern: '^(0|[1-9][0-9]{0,8})(\\.[0-9]{1,6})?$' })

const Limit = Type.Object(
  {
    /** Names, in which `*` stands for any characters. */
    namespaces: Type.Array(Type.String({ minLength: 1, maxLength: 63 }), { minItems: 1, maxItems: 1000 }),
    products: Type.Optional(Type.Array(Type.Enum(['Room', 'Media', 'Coding']))),
    /** Plan names in one namespace, removed ones of the running period included. */
    maxPlans: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
    media: Type.Optional(
      Type.Object(
        {
          maxAllowance: Type.Optional(AMOUNT),
          /** Of all plans of one namespace together, removed ones of the running period included. */
          maxAllowanceOfNamespace: Type.Optional(AMOUNT),
          /** Shortest period, 28 days unless given: an allowance is granted anew each period, so short periods would defeat its limit. */
          minPeriodDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 366 })),
          /** `Service`: no price of the plan may be below the service's price, or per another unit. */
          priceFloor: Type.Optional(Type.Enum(['Service', 'None'])),
          maxConcurrentTasks: count(100),
          maxQueuedTasks: count(10_000),
        },
        strict,
      ),
    ),
    coding: Type.Optional(
      Type.Object(
        {
          maxSessionTokens: count(TOKENS),
          /** Shortest session, 5 hours unless given: the tokens are granted anew each session, so short sessions would defeat their limit. */
          minSessionSeconds: Type.Optional(Type.Integer({ minimum: 60, maximum: 604_800 })),
          maxWeeklyTokens: count(TOKENS),
          /** Lowest weight per kind of token in permille, 1000 unless given: a weight of 0 would never fill a window. */
          minWeight: Type.Optional(Type.Integer({ minimum: 0, maximum: 100_000 })),
          maxConcurrentRequests: count(1000),
        },
        strict,
      ),
    ),
    requestsPerMinute: count(1_000_000),
    maxKeys: count(100),
  },
  strict,
)

const Limits = Type.Object({ limits: Type.Array(Limit, { maxItems: 1000 }) }, strict)

export type PlanLimits = Static<typeof Limits>
type Limit = PlanLimits['limits'][number]

/** Parses the text of the file. Throws a `SettingsFileError`. */
export function parsePlanLimits(file: string, text: string): PlanLimits {
  return parseSettingsFile('PLAN_LIMITS', file, Limits, text).value
}

/** The service's own price of a kind or operation, or null when it does not offer that. */
export type ServicePrice = (kind: string) => Price | null

/** Whether the plans of a namespace have limits together. */
export function limitsTogether(limits: PlanLimits | null, namespace: string): boolean {
  const limit = limitOf(limits, namespace)
  return limit?.maxPlans !== undefined || limit?.media?.maxAllowanceOfNamespace !== undefined
}

function limitOf(limits: PlanLimits | null, namespace: string): Limit | undefined {
  return limits?.limits.find(({ namespaces }) => namespaces.some((pattern) => matches(pattern, namespace)))
}

/** What a plan grants: as declared, or as in force. */
export type Granted = { product: Product; terms: Terms }

/** Why a plan exceeds its limits, as a sentence for its author; null when it does not. `grants`: of its namespace, its own included. */
export function planVerdict(
  limits: PlanLimits | null,
  { namespace, name }: { namespace: string; name: string },
  { product, terms }: Granted,
  servicePrice: ServicePrice,
  grants: Grant[] = [],
): string | null {
  const limit = limitOf(limits, namespace)
  if (!limit) return null
  const faults = [
    limit.products && !limit.products.includes(product) ? `product may be ${limit.products.join(' or ') || 'none'}` : null,
    above('requestsPerMinute', terms.requestsPerMinute, limit.requestsPerMinute),
    above('keyPolicy.maxKeys', terms.maxKeys, limit.maxKeys),
    ...mediaFaults(terms, limit.media ?? {}, servicePrice),
    ...namespaceFaults(subscriptionId(namespace, name), terms, limit, grants),
    ...codingFaults(terms, limit.coding ?? {}),
  ].filter((fault) => fault !== null)
  return faults.length === 0 ? null : `Not allowed in this namespace: ${faults.join('; ')}.`
}

function mediaFaults({ media }: Terms, limit: NonNullable<Limit['media']>, servicePrice: ServicePrice): (string | null)[] {
  if (!media) return []
  const most = limit.maxAllowance === undefined ? null : parseMoney(limit.maxAllowance)
  const isBounded = most !== null || limit.maxAllowanceOfNamespace !== undefined
  const least = limit.minPeriodDays ?? MIN_PERIOD_DAYS
  const days = media.period.unit === 'days' ? media.period.count : media.period.count * MIN_PERIOD_DAYS
  return [
    most !== null && media.allowance > most ? `media.allowance may be at most ${formatMoney(most)}` : null,
    isBounded && days < least ? `media.periodDays must be at least ${least}` : null,
    above('media.maxConcurrentTasks', media.maxConcurrentTasks, limit.maxConcurrentTasks),
    above('media.maxQueuedTasks', media.maxQueuedTasks, limit.maxQueuedTasks),
    ...(limit.priceFloor === 'Service' ? media.prices.map((price) => belowFloor(price, servicePrice(price.kind))) : []),
  ]
}

/** The limits on all plans of the namespace together, of which older plans get their part first. */
function namespaceFaults(id: string, { media }: Terms, limit: Limit, grants: Grant[]): (string | null)[] {
  const allowance = media?.allowance ?? 0
  const before = grantsBefore(grants, id, allowance)
  // A name that counts already is no further one, whatever its plan wants.
  const names = grantsBefore(grants, id, 0).length
  const together = limit.media?.maxAllowanceOfNamespace
  const most = together === undefined ? null : parseMoney(together)
  const granted = before.reduce((sum, { micro }) => sum + micro, 0)
  const left = Math.max(0, (most ?? 0) - granted)
  return [
    limit.maxPlans !== undefined && names >= limit.maxPlans
      ? `a namespace may have at most ${limit.maxPlans} plans, removed ones included until their period ends`
      : null,
    most !== null && allowance > left
      ? `media.allowance may be at most ${formatMoney(left)}: the plans of a namespace may grant ${formatMoney(most)} together, removed ones included until their period ends`
      : null,
  ]
}

/** Prices per different units cannot be compared, so a floor keeps the service's unit. */
function belowFloor({ kind, micro, per }: Price, floor: Price | null): string | null {
  if (!floor || (per === floor.per && micro >= floor.micro)) return null
  return `media.prices of ${kind} must be at least ${formatMoney(floor.micro)} per ${floor.per}`
}

function codingFaults({ coding }: Terms, limit: NonNullable<Limit['coding']>): (string | null)[] {
  if (!coding) return []
  const seconds = limit.minSessionSeconds ?? MIN_SESSION_SECONDS
  const isShort = limit.maxSessionTokens !== undefined && coding.sessionMs < seconds * 1000
  const isBounded = limit.maxSessionTokens !== undefined || limit.maxWeeklyTokens !== undefined
  const least = isBounded ? (limit.minWeight ?? MIN_WEIGHT) : (limit.minWeight ?? 0)
  return [
    above('coding.sessionWindow.tokens', coding.sessionTokens, limit.maxSessionTokens),
    isShort ? `coding.sessionWindow.durationSeconds must be at least ${seconds}` : null,
    above('coding.weeklyWindow.tokens', coding.weeklyTokens, limit.maxWeeklyTokens),
    above('coding.maxConcurrentRequests', coding.maxConcurrentRequests, limit.maxConcurrentRequests),
    ...Object.entries(coding.weights).map(([kind, weight]) => (weight < least ? `coding.weights.${kind} must be at least ${least}` : null)),
  ]
}

function above(place: string, value: number, most: number | undefined): string | null {
  return most !== undefined && value > most ? `${place} may be at most ${most}` : null
}

/** Matches a glob in which `*` stands for any characters, in linear time whatever the pattern. */
function matches(pattern: string, name: string): boolean {
  const [first = '', ...rest] = pattern.split('*')
  if (rest.length === 0) return name === pattern
  if (!name.startsWith(first)) return false
  let at = first.length
  const last = rest.pop() ?? ''
  for (const part of rest) {
    const found = name.indexOf(part, at)
    if (found === -1) return false
    at = found + part.length
  }
  return name.length - last.length >= at && name.endsWith(last)
}
