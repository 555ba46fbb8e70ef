/** `/dashboard/api/usage/media` and `/dashboard/api/usage/coding`: the numbers of one plan, as JSON or as CSV by day. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { accountAt, keyUse } from '../../src/domain/balance.ts'
import { Failure } from '../../src/domain/errors.ts'
import { iso } from '../../src/domain/iso-time.ts'
import { formatMoney } from '../../src/domain/money.ts'
import { refusedOn } from '../../src/domain/subscription/refusals.ts'
import type { CodingDay, MediaAccount, MediaPeriod } from '../../src/domain/subscription/subscription.ts'
import { roll, viewOf } from '../../src/domain/token-windows.ts'
import { sendCsv } from './csv.ts'
import { DASHBOARD_KEY } from './media-caller.ts'
import { allowanceOf, keyNamesOf, periodOf, planOf, plansOf, windowOf, type TenantPlan } from './plans.ts'
import { sessionOf } from './sessions.ts'

const Query = Type.Object({
  plan: Type.Optional(Type.String({ maxLength: 253 })),
  format: Type.Optional(Type.Enum(['json', 'csv'])),
  /** The first day (UTC); without it, all that are known. */
  since: Type.Optional(Type.String({ pattern: '^\\d{4}-\\d\\d-\\d\\d$' })),
})

const NO_USAGE: CodingDay = { requests: 0, input: 0, cachedInput: 0, output: 0, charged: 0 }
/** `keyId` to the name of its ApiKey; what was spent in the AI Room has no key. */
type Names = Map<string, string>

/** Registers the routes, behind a session. Amounts are decimal strings, times ISO. */
export function usageRoutes(app: FastifyInstance): void {
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()

  const namesOf = async (plans: TenantPlan[]): Promise<Names> => (await keyNamesOf(app, plans)).set(DASHBOARD_KEY, 'AI Room')

  routes.get('/usage/media', { schema: { querystring: Query } }, async (request, reply) => {
    const plans = await plansOf(app, sessionOf(request).tenant)
    const plan = planOf(plans, 'media', request.query.plan)
    const account = accountAt(plan.record, app.clock())
    if (!account) throw new Failure('plan_inactive', { message: 'The plan was never active: there is no usage yet.' })
    const archived = await app.store.periods(plan.record.id)
    if (request.query.format === 'csv')
      return sendCsv(reply, `media-${plan.name}`, periodsOf(account, archived).flatMap(mediaDays).filter(from(request.query.since)))
    return mediaUsage(plan, account, archived, await namesOf(plans), from(request.query.since))
  })

  routes.get('/usage/coding', { schema: { querystring: Query } }, async (request, reply) => {
    const plans = await plansOf(app, sessionOf(request).tenant)
    const plan = planOf(plans, 'coding', request.query.plan)
    if (!plan.record.coding || !plan.record.terms.coding)
      throw new Failure('plan_inactive', { message: 'The plan was never active: there is no usage yet.' })
    if (request.query.format === 'csv') return sendCsv(reply, `coding-${plan.name}`, codingDays(plan).filter(from(request.query.since)))
    return codingUsage(plan, await namesOf(plans), app.clock(), from(request.query.since))
  })
}

type IsShown = (day: { date: string }) => boolean

/** Whether a day is shown. */
const from =
  (since = ''): IsShown =>
  ({ date }) =>
    date >= since

/** Every known period, the earliest first. One that has ended can be in both places for a while. */
function periodsOf(account: MediaAccount, archived: MediaPeriod[]): MediaPeriod[] {
  return [...new Map([...archived, ...account.past, account.period].map((period) => [period.n, period])).values()].toSorted(
    (a, b) => a.n - b.n,
  )
}

/** The keys under each name. Those that were removed have none: they are one entry. */
function byName(keyIds: string[], names: Names): [string | null, string[]][] {
  return [...Map.groupBy(keyIds, (keyId) => names.get(keyId) ?? null)]
}

const sumOf = (keyIds: string[], usedBy: (keyId: string) => number): number => keyIds.reduce((sum, keyId) => sum + usedBy(keyId), 0)

/** Of the running period, and the sums of those before it, newest first. */
function mediaUsage({ name }: TenantPlan, account: MediaAccount, archived: MediaPeriod[], names: Names, isShown: IsShown): object {
  const periods = periodsOf(account, archived)
  // A day on which a period ended is in two of them.
  const days = [...Map.groupBy(periods.flatMap(kindDays).filter(isShown), ({ date }) => date)].map(([date, kinds]) => ({
    date,
    by: Object.fromEntries(
      [...Map.groupBy(kinds, ({ kind }) => kind)].map(([kind, parts]) => [
        kind,
        {
          count: parts.reduce((sum, part) => sum + part.count, 0),
          burned: formatMoney(parts.reduce((sum, part) => sum + part.burned, 0)),
        },
      ]),
    ),
  }))
  const ended = periods.filter(({ n }) => n !== account.period.n).toReversed()
  return {
    plan: name,
    period: periodOf(account),
    ...allowanceOf(account),
    days,
    keys: byName(Object.keys(account.keys), names).map(([name, ids]) => ({
      name,
      burned: formatMoney(sumOf(ids, (keyId) => keyUse(account, keyId).burned)),
    })),
    periods: ended.map(({ start, end, burned, allowance }) => ({
      start: iso(start),
      end: iso(end),
      burned: formatMoney(burned),
      allowance: formatMoney(allowance),
    })),
  }
}

/** Both windows now, the newest 35 days, and what each key used of the running week. */
function codingUsage({ name, record }: TenantPlan, names: Names, now: number, isShown: IsShown): object {
  const { coding, terms } = record
  if (!coding || !terms.coding) return {}
  const { session, weekly } = viewOf(coding, terms.coding, now)
  const { keys } = roll(coding, now)
  return {
    plan: name,
    session: windowOf(session),
    weekly: windowOf(weekly),
    overshoot: Math.max(0, weekly.used - weekly.limit),
    days: codingDays({ record })
      .filter(isShown)
      .map((day) => ({ ...day, refused: coding.refusals?.days[day.date] ?? {} })),
    keys: byName(Object.keys(keys), names).map(([name, ids]) => ({
      name,
      used: sumOf(ids, (keyId) => keys[keyId]?.used ?? 0),
      refusals: sumOf(ids, (keyId) => keys[keyId]?.refused ?? 0),
    })),
  }
}

function kindDays({ usage }: Pick<MediaPeriod, 'usage'>): { date: string; kind: string; count: number; burned: number }[] {
  return Object.entries(usage).flatMap(([date, kinds]) =>
    Object.entries(kinds).map(([kind, { count, burned }]) => ({ date, kind, count, burned })),
  )
}

const mediaDays = (period: Pick<MediaPeriod, 'usage'>) => kindDays(period).map((day) => ({ ...day, burned: formatMoney(day.burned) }))

/** Of each day with an answered or a refused request. */
function codingDays({ record: { coding } }: Pick<TenantPlan, 'record'>): (Record<string, string | number> & { date: string })[] {
  const refused = coding?.refusals?.days ?? {}
  const dates = [...new Set([...Object.keys(coding?.usage ?? {}), ...Object.keys(refused)])].sort()
  return dates.map((date) => {
    const { requests, input, cachedInput, output, charged } = coding?.usage[date] ?? NO_USAGE
    return { date, requests, input, cached_input: cachedInput, output, charged, refusals: refusedOn(refused[date]) }
  })
}
