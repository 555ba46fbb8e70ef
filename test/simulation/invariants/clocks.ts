/** Invariants of time: whatever a clock said, no period, week or session begins ahead, no rate limit is frozen, and nothing that was used is forgotten. */
import { heal } from '../../../src/domain/subscription/clock-healing.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { isUnmeasured } from '../clocks.ts'
import type { Report } from '../invariant-checker.ts'
import type { Step } from '../scheduler.ts'
import type { Troubles } from '../world.ts'

export function openClockChecks(report: Report, now: () => number, { aheadMs }: Troubles) {
  /** By subscription and start: what was used of a period or week. */
  const used = new Map<string, number>()

  /** The record before a write, at the store's time if the write healed it. */
  function healed(before: Subscription | undefined, after: Subscription): Subscription | undefined {
    return before && after.at < before.at ? heal(before, after.at) : before
  }

  function changed(after: Subscription, { actor }: Step): void {
    if (isUnmeasured(actor.process)) return
    checkRate(after)
    const { media, coding } = after
    const windows = [media?.period, coding?.weekly, coding?.session].filter((window) => !!window)
    for (const { start } of windows) if (start > now() + aheadMs) report(`${after.id} has a new allowance ${start - now()} ms ahead of its time`)
    if (media) checkKept(`period of ${after.id} from ${media.period.start}`, media.period.burned)
    if (coding) checkKept(`week of ${after.id} from ${coding.weekly.start}`, coding.weekly.used)
  }

  /** The debt is at most the burst: a sixth of a minute's requests, at least ten. */
  function checkRate({ id, rate, terms: { requestsPerMinute } }: Subscription): void {
    const burstMs = (Math.max(10, requestsPerMinute / 6) * 60_000) / requestsPerMinute
    const frozenMs = rate.tat - now() - burstMs
    if (frozenMs > aheadMs) report(`the rate limit of ${id} is frozen for ${Math.round(frozenMs)} ms`)
  }

  function checkKept(window: string, amount: number): void {
    const before = used.get(window) ?? 0
    if (amount < before) report(`the ${window} went back from ${before} used to ${amount}`)
    used.set(window, amount)
  }

  return { healed, changed }
}
