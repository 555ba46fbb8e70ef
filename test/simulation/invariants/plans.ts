/**
 * Invariants of plans: an edit, a removal and a return move no window and refill nothing, a late one is not applied, and without an active plan nothing new is
 * held or reserved.
 */
import type { Command } from '../../../src/domain/subscription/commands.ts'
import { entriesOf } from '../../../src/domain/subscription/holds.ts'
import type { CodingAccount, MediaAccount, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import type { Report } from '../invariant-checker.ts'
import type { Step } from '../scheduler.ts'

type Plan = Subscription['plan']

export function openPlanChecks(report: Report) {
  const declared = new Map<string, Plan>()

  /** `before`: at the store's time if the write healed it. */
  function changed(before: Subscription, after: Subscription, step: Step): void {
    const commands = step.commands.map(({ command }) => command)
    const fail = (sentence: string): void => report(`${after.id} ${sentence}`)
    if (before.anchor !== null && after.anchor !== before.anchor) fail(`counts its windows from ${after.anchor} and no longer from ${before.anchor}`)
    checkApplied(before.plan, after.plan, commands, fail)
    checkRate(before, after, commands, fail)
    if (before.media && after.media) checkMedia(before.media, after.media, fail)
    else if (before.media) fail('lost its media account')
    if (before.coding && after.coding) checkCoding(before.coding, after.coding, after.at, fail)
    else if (before.coding) fail('lost its coding account')
    if (!commands.some(({ op }) => op === 'applyPlan' || op === 'removePlan')) checkActive(before, after, fail)
  }

  function checkFinal(records: Iterable<Subscription>): void {
    for (const { id, plan } of records) {
      const expected = declared.get(id)
      if (expected !== undefined && JSON.stringify(plan) !== JSON.stringify(expected)) {
        report(`${id} has Plan ${JSON.stringify(plan)} after the recovery, and ${JSON.stringify(expected)} is declared`)
      }
    }
  }

  return { changed, checkFinal, declared: (id: string, plan: Plan) => void declared.set(id, plan) }
}

type Fail = (sentence: string) => void

function checkApplied(before: Plan, after: Plan, commands: Command[], fail: Fail): void {
  if (JSON.stringify(before) === JSON.stringify(after)) return
  const isRemoved = commands.some((command) => command.op === 'removePlan' && (command.uid === before?.uid || before === null))
  const applied = commands.flatMap((command) => (command.op === 'applyPlan' ? [command.plan] : []))
  if (after === null) {
    const uids = [before?.uid, ...applied.map(({ uid }) => uid)]
    if (!commands.some((command) => command.op === 'removePlan' && uids.includes(command.uid))) fail(`lost its Plan ${before?.uid} to the removal of another`)
    return
  }
  if (!applied.some(({ uid, generation }) => uid === after.uid && generation === after.generation)) fail(`got Plan ${after.uid} without a command`)
  if (before === null || isRemoved) return
  const isOlder = before.uid === after.uid ? after.generation < before.generation : after.createdAt < before.createdAt
  if (isOlder) fail(`got Plan ${after.uid} of generation ${after.generation} after ${before.uid} of generation ${before.generation}`)
}

function checkRate(before: Subscription, after: Subscription, commands: Command[], fail: Fail): void {
  const isEdited = commands.some((command) => command.op === 'applyPlan' && command.terms.requestsPerMinute !== before.terms.requestsPerMinute)
  if (after.rate.tat < before.rate.tat && !isEdited) fail('forgot the debt of its rate')
}

function checkMedia(before: MediaAccount, after: MediaAccount, fail: Fail): void {
  const [old, next] = [before.period, after.period]
  if (next.n === old.n) {
    if (next.start !== old.start || next.end !== old.end) fail(`moved period ${old.n}`)
    for (const [key, { period, burned }] of Object.entries(before.keys)) {
      const now = after.keys[key]
      if (period === old.n && (now?.period !== old.n || now.burned < burned)) fail(`forgot what ${key} burned in period ${old.n}`)
    }
  } else if (next.start < old.end) fail(`began period ${next.n} before the end of period ${old.n}`)
  const kept = [...after.past, next].find(({ n }) => n === old.n)
  if (!kept || kept.burned < old.burned) fail(`forgot what was burned in period ${old.n}`)
}

function checkCoding(before: CodingAccount, after: CodingAccount, now: number, fail: Fail): void {
  const [old, next] = [before.weekly, after.weekly]
  if (next.start !== old.start + (next.n - old.n) * WEEK_MS || next.n < old.n) fail(`moved week ${old.n} from ${old.start} to week ${next.n} from ${next.start}`)
  if (next.n === old.n && next.used < old.used) fail(`forgot what was used in week ${old.n}`)
  for (const [key, { week, used }] of Object.entries(before.keys)) {
    const now = after.keys[key]
    if (week === next.n && (now?.week !== week || now.used < used)) fail(`forgot what ${key} used in week ${week}`)
  }
  const { session } = before
  if (session && after.session?.start === session.start && (after.session.end !== session.end || after.session.used < session.used)) fail('changed what was used in its session, or its end')
  if (session && after.session === null && now < session.end) fail(`ended its session ${session.end - now} ms too early`)
  if (session && after.session && after.session.start !== session.start && after.session.start < session.end) fail('began a session in another')
}

/** What was opened, under a plan that no command of the write changed. */
function checkActive(before: Subscription, after: Subscription, fail: Fail): void {
  const isActive = after.plan !== null && after.state === 'Active' && after.verdict === null
  // By its own time: commands of one write may have times before and after the end of the plan.
  const isInTime = ({ at }: { at: number }) => isActive && (after.activeUntil === null || at < after.activeUntil)
  const held = new Set(entriesOf(before.media?.holds).map(([id]) => id))
  const opened = [
    ...entriesOf(after.media?.holds).filter(([id]) => !held.has(id)),
    ...Object.entries(after.coding?.reservations ?? {}).filter(([id]) => !before.coding?.reservations[id]),
  ]
  for (const [id, one] of opened) if (!isInTime(one)) fail(`admitted ${id} without an active plan`)
}
