import t from 'tap'
import { parsePlanLimits, planVerdict as verdictOf, type PlanLimits } from '../../src/domain/plan-limits-by-namespace.ts'
import { grantedBy } from '../../src/domain/reconcile/reconcile-plan.ts'
import type { PlanSpec } from '../../src/backends/resources/resources.ts'
import { plan } from './reconcile/reconcile-world.ts'

type Limit = PlanLimits['limits'][number]

const coding = (terms: Partial<NonNullable<PlanSpec['coding']>>) => plan('coder', { coding: { ...plan('coder').spec.coding!, ...terms } })
const media = (terms: Partial<NonNullable<PlanSpec['media']>>) => plan('studio', { product: 'Media', media: { ...plan('studio', { product: 'Media' }).spec.media!, ...terms } })

const planVerdict = (limits: PlanLimits | null, resource: ReturnType<typeof plan>) =>
  verdictOf(limits, resource.metadata, grantedBy(resource, null), (kind) => (kind === 'image' ? { kind, micro: 40_000, per: 'Job' } : null))

t.test('a plan may grant what its namespace allows, and its refusal names everything else', async (t) => {
  const table: [string, Omit<Limit, 'namespaces'>, ReturnType<typeof plan>, RegExp | null][] = [
    ['no bounds at all', {}, plan('coder'), null],
    ['a product that is allowed', { products: ['Coding'] }, plan('coder'), null],
    ['a product that is not', { products: ['Room', 'Media'] }, plan('coder'), /product may be Room or Media/],
    ['as many requests', { requestsPerMinute: 600 }, plan('coder'), null],
    ['more requests', { requestsPerMinute: 599 }, plan('coder'), /requestsPerMinute may be at most 599/],
    ['more keys', { maxKeys: 1 }, plan('coder'), /keyPolicy\.maxKeys may be at most 1/],
    ['the whole allowance', { media: { maxAllowance: '100' } }, media({ allowance: '100.000000' }), null],
    ['a micro-unit more', { media: { maxAllowance: '100' } }, media({ allowance: '100.000001' }), /media\.allowance may be at most 100\.0000/],
    ['the allowance, but every day', { media: { maxAllowance: '100' } }, media({ periodDays: 1 }), /media\.periodDays must be at least 28/],
    ['a shorter period where that is allowed', { media: { maxAllowance: '100', minPeriodDays: 1 } }, media({ periodDays: 1 }), null],
    ['a calendar month', { media: { maxAllowance: '100' } }, media({ periodMonths: 1 }), null],
    ['short periods of an allowance without bounds', { media: {} }, media({ periodDays: 1 }), null],
    ['more tasks at once', { media: { maxConcurrentTasks: 3 } }, media({}), /media\.maxConcurrentTasks may be at most 3/],
    ['more open tasks', { media: { maxQueuedTasks: 999 } }, media({}), /media\.maxQueuedTasks may be at most 999/],
    ['the service\'s price', { media: { priceFloor: 'Service' } }, media({ prices: [{ kind: 'image', amount: '0.04', per: 'Job' }] }), null],
    ['a micro-unit less', { media: { priceFloor: 'Service' } }, media({ prices: [{ kind: 'image', amount: '0.039999', per: 'Job' }] }), /media\.prices of image must be at least 0\.0400 per Job/],
    ['another unit', { media: { priceFloor: 'Service' } }, media({ prices: [{ kind: 'image', amount: '9', per: 'Megapixel' }] }), /media\.prices of image must be at least 0\.0400 per Job/],
    ['a price of what the service does not offer', { media: { priceFloor: 'Service' } }, media({ prices: [{ kind: 'video', amount: '0', per: 'Job' }] }), null],
    ['any price without a floor', { media: { priceFloor: 'None' } }, media({ prices: [{ kind: 'image', amount: '0', per: 'Job' }] }), null],
    ['the bounds of the other product', { media: { maxAllowance: '0' } }, plan('coder'), null],
    ['more tokens a session', { coding: { maxSessionTokens: 999 } }, plan('coder'), /coding\.sessionWindow\.tokens may be at most 999/],
    ['the tokens of a session, but every minute', { coding: { maxSessionTokens: 1000 } }, coding({ sessionWindow: { tokens: 1000, durationSeconds: 60 } }), /coding\.sessionWindow\.durationSeconds must be at least 18000/],
    ['shorter sessions where that is allowed', { coding: { maxSessionTokens: 1000, minSessionSeconds: 60 } }, coding({ sessionWindow: { tokens: 1000, durationSeconds: 60 } }), null],
    ['short sessions of a week with bounds', { coding: { maxWeeklyTokens: 1e6 } }, coding({ sessionWindow: { tokens: 1000, durationSeconds: 60 } }), null],
    ['more tokens a week', { coding: { maxWeeklyTokens: 1 } }, plan('coder'), /coding\.weeklyWindow\.tokens may be at most 1/],
    ['more requests at once', { coding: { maxConcurrentRequests: 31 } }, plan('coder'), /coding\.maxConcurrentRequests may be at most 31/],
    ['tokens that count for nothing', { coding: { maxWeeklyTokens: 1e6 } }, coding({ weights: { input: 1000, cachedInput: 0, output: 1000 } }), /coding\.weights\.cachedInput must be at least 1000/],
    ['light tokens where that is allowed', { coding: { maxWeeklyTokens: 1e6, minWeight: 100 } }, coding({ weights: { input: 100, cachedInput: 100, output: 100 } }), null],
    ['light tokens where no window is bounded', { coding: {} }, coding({ weights: { input: 0, cachedInput: 0, output: 0 } }), null],
  ]
  for (const [why, limit, resource, verdict] of table) {
    const said = planVerdict({ limits: [{ namespaces: ['*'], ...limit }] }, resource)
    if (verdict === null) t.equal(said, null, why)
    else t.match(said, verdict, why)
  }
  t.match(planVerdict({ limits: [{ namespaces: ['*'], maxKeys: 1, requestsPerMinute: 1 }] }, plan('coder')), /requestsPerMinute.*; keyPolicy\.maxKeys/)
})

t.test('the first entry whose namespaces match counts, and without one nothing is bounded', async (t) => {
  const matching = (...namespaces: string[]) => planVerdict({ limits: [{ namespaces, maxKeys: 1 }] }, plan('coder')) !== null
  for (const pattern of ['acme', '*', 'a*', '*e', 'a*e', 'ac*me', '*cm*', '*a*c*m*e*', '**']) t.ok(matching(pattern), pattern)
  for (const pattern of ['acm', 'cme', 'acme-2', '*x*', 'a*a', 'acme*acme', 'a.me', 'a?me', '*acme*e']) t.notOk(matching(pattern), pattern)
  t.ok(matching('other', 'ac*'))
  const first = { limits: [{ namespaces: ['acme'] }, { namespaces: ['*'], maxKeys: 1 }] }
  t.equal(planVerdict(first, plan('coder')), null)
  t.equal(planVerdict({ limits: [] }, plan('coder')), null)
  t.equal(planVerdict(null, plan('coder')), null)
})

t.test('the file of limits is read as YAML or JSON, and a mistake in it is named', async (t) => {
  const text = 'limits:\n  - namespaces: ["acme*"]\n    products: [Media]\n    media: { maxAllowance: "50.00", priceFloor: Service, maxQueuedTasks: 10 }\n    maxKeys: 3\n'
  t.match(parsePlanLimits('l.yaml', text), { limits: [{ namespaces: ['acme*'], maxKeys: 3 }] })
  t.same(parsePlanLimits('l.json', '{"limits": []}'), { limits: [] })
  for (const wrong of ['', 'limits: [', 'limits: {}', 'limits: [{}]', 'limits: [{ namespaces: [] }]', 'limits: [{ namespaces: ["*"], maxKey: 1 }]', 'limits: [{ namespaces: ["*"], media: { maxAllowance: 50 } }]', 'limits: [{ namespaces: ["*"], products: [Video] }]'])
    t.throws(() => parsePlanLimits('l.yaml', wrong), { name: 'SettingsFileError', message: /^PLAN_LIMITS l\.yaml, line \d+: .{10,}\.$/ }, wrong)
})
