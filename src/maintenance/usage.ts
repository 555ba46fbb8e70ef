/** `tollgate usage`: what each plan has used of its windows or of its allowance. Reads only. */
import { accountAt, balanceOf } from '../domain/balance.ts'
import { inactiveReason, type Subscription } from '../domain/subscription/subscription.ts'
import { viewOf, type WindowView } from '../domain/token-windows.ts'
import type { Store } from '../backends/store/store.ts'
import { readAll } from '../tasks/paged-reads.ts'

/** Times are epoch milliseconds, money is micro-units, tokens are tokens. */
export type PlanUsage = {
  /** `namespace/plan`. */
  plan: string
  product: Subscription['product']
  /** `Active`, or the reason why it is not. */
  state: string
  session?: WindowView
  weekly?: WindowView
  media?: { allowance: number; burned: number; held: number; available: number; periodEnd: number; openTasks: number }
}

/** The usage at `now` of all plans, or those of a tenant, those whose Plan was removed included. */
export async function* usageOf(store: Store, now: number, tenant: string | null): AsyncGenerator<PlanUsage> {
  for await (const record of readAll(store, 'subscriptions')) if (tenant === null || record.tenant === tenant) yield planUsage(record, now)
}

function planUsage(record: Subscription, now: number): PlanUsage {
  const { id: plan, product, coding, terms } = record
  const usage: PlanUsage = { plan, product, state: inactiveReason(record, now) ?? 'Active' }
  if (coding && terms.coding) return { ...usage, ...viewOf(coding, terms.coding, now) }
  const account = accountAt(record, now)
  if (!account) return usage
  const { granted: allowance, burned, held, available } = balanceOf(account)
  return { ...usage, media: { allowance, burned, held, available, periodEnd: account.period.end, openTasks: account.holds.count } }
}
