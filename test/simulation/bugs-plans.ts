/** Bugs about plans that are edited, removed and declared again (`plan-edits.ts`). */
import type { Bug } from './bugs.ts'

type Listed = Omit<Bug, 'scenario'>

const CHANGES = 'src/domain/subscription/plan-changes.ts'

export const PLAN_BUGS: Listed[] = [
  {
    name: 'a Plan that returns begins a new period',
    file: CHANGES, within: 50,
    from: 'if (!record.media || anchor !== record.anchor ||',
    to: 'if (!record.media || record.plan === null || anchor !== record.anchor ||',
  },
  {
    name: 'an edit of a Plan begins a new period',
    file: CHANGES, within: 50,
    from: 'period: { ...running.period, allowance: terms.allowance }',
    to: 'period: { ...firstPeriod(terms, anchor), n: running.period.n }',
  },
  {
    name: 'a removal takes whichever Plan is there',
    file: CHANGES, within: 400,
    from: 'if (record?.plan?.uid !== input.uid) return',
    to: 'if (!record?.plan) return',
  },
  {
    name: 'an older form of a Plan is applied',
    file: CHANGES, within: 400,
    from: 'incoming.generation < stored.generation',
    to: 'incoming.generation < 1',
  },
  {
    name: 'a suspended Plan holds',
    file: 'src/domain/subscription/subscription.ts', within: 50,
    from: `if (record.state === 'Suspended') return 'PlanSuspended'`,
    to: '',
  },
  {
    name: 'what is due is not decided anew by an edit of a Plan',
    file: CHANGES, within: 50,
    from: 'return { ...account, due: dueOf(account, terms) }',
    to: 'return account',
  },
]

export const CODING_PLAN_BUGS: Listed[] = [
  {
    name: 'a Plan that returns begins a new week',
    file: CHANGES, within: 50,
    from: 'if (!record.coding) {',
    to: 'if (!record.coding || record.plan === null) {',
  },
  {
    name: 'a Plan that returns begins a new session',
    file: CHANGES, within: 60,
    from: 'if (anchor === record.anchor) return record.coding',
    to: 'if (anchor === record.anchor) return record.plan ? record.coding : { ...record.coding, session: null }',
  },
  {
    name: 'a subscription without its Plan admits',
    file: 'src/domain/subscription/subscription.ts', within: 50,
    from: `if (!record?.plan) return 'PlanNotFound'`,
    to: `if (!record) return 'PlanNotFound'`,
  },
  {
    name: 'a Plan is admitted to after its end',
    file: 'src/domain/subscription/subscription.ts', within: 400,
    from: 'record.activeUntil !== null && now >= record.activeUntil',
    to: 'record.activeUntil !== null && now >= record.activeUntil + 60_000',
  },
]
