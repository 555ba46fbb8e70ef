/** Invariants of token windows: admissions fit, every request is settled once, and only charges count as used. */
import type { Terms } from '../../../src/domain/plans.ts'
import type { CodingAccount, Lease, Reservation, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { chargeOf, reservedIn, WEEK_MS, type WindowsView } from '../../../src/domain/token-windows.ts'
import type { PendingCommand, Step } from '../scheduler.ts'
import type { Report } from '../invariant-checker.ts'

/** State of a request by the records. `reserved`: at its admission. */
type Request = { reserved: number; open: boolean; expired: boolean }

/** Time to declare a process dead, less twice the maximum clock skew. */
const SURELY_ALIVE_MS = 45_000 - 20_000
/** How long a sweep may be frozen between declaring a process dead and expiring its reservations. */
const STALE_MS = 200_000

const NO_WEIGHTS = { input: 0, cachedInput: 0, output: 0 }
const NO_HEARTBEAT = { count: 0, at: -Infinity, revivedAt: -Infinity }

function isActive({ plan, state }: Subscription): boolean {
  return plan !== null && state === 'Active'
}

export function openTokenWindowChecks(report: Report, now: () => number) {
  const requests = new Map<string, Request>()
  const inFlight = new Set<string>()
  /** Instances of a process that alone wrote the store, and ended. */
  const dead = new Set<string>()
  const heartbeats = new Map<string, { count: number; at: number; revivedAt: number }>()
  /** By subscription and window: tokens used beyond reservations. */
  const beyond = new Map<string, number>()

  function changed(before: Subscription | null, after: Subscription, { commands }: Step): void {
    const [old, account] = [before?.coding, after.coding]
    if (!account) return
    const removed = Object.entries(old?.reservations ?? {}).filter(([id]) => !account.reservations[id])
    if (before && old) checkCharges(before, after, old, account, removed, commands)
    let admitted = 0
    for (const [id, reservation] of Object.entries(account.reservations)) {
      const first = old?.reservations[id]
      if (first) checkUnchanged(id, first, reservation, commands)
      else {
        admitted++
        checkOpened(id, reservation, commands)
        if (before && !isActive(before) && !isActive(after)) report(`request ${id} was admitted by ${after.id}, which is not active`)
      }
    }
    checkLeases(after, account, old?.leases ?? {})
    if (commands.some(({ command }) => command.op === 'applyPlan')) allowed(after)
    checkLimits(after, account, admitted > 0 && commands.every(({ command }) => command.op === 'admit'))
  }

  function checkOpened(id: string, { instance, tokens }: Reservation, commands: PendingCommand[]): void {
    const earlier = requests.get(id)
    if (!commands.some(({ command }) => command.op === 'admit' && command.id === id && command.instance === instance)) {
      report(`request ${id} was admitted without a command`)
    }
    // A process that was declared dead during its admission repeats it.
    if (earlier && !earlier.expired) report(`request ${id} was settled and admitted again`)
    requests.set(id, { reserved: tokens, open: true, expired: false })
  }

  function checkUnchanged(id: string, before: Reservation, after: Reservation, commands: PendingCommand[]): void {
    const extended = commands.some(({ command }) => command.op === 'extend' && command.id === id && command.tokens === after.tokens)
    if (after.tokens !== before.tokens && (!extended || after.tokens < before.tokens)) {
      report(`the reservation of request ${id} went from ${before.tokens} to ${after.tokens}`)
    }
    if (JSON.stringify({ ...after, tokens: 0 }) !== JSON.stringify({ ...before, tokens: 0 })) {
      report(`the reservation of request ${id} changed`)
    }
  }

  /** Possible charges of a removed request, by the commands of that write. */
  function candidates(id: string, reservation: Reservation, terms: Terms[], commands: PendingCommand[]): number[] {
    const extended = commands.flatMap(({ command }) => (command.op === 'extend' && command.id === id ? [command.tokens] : []))
    return commands.flatMap(({ command, actor }) => {
      if (command.op === 'settle' && command.id === id) {
        if (actor.name === 'sweep' && inFlight.has(id)) report(`request ${id} was released while it was in flight`)
        const { usage } = command
        return usage ? [...new Set(terms.map(({ coding }) => chargeOf(usage, coding?.weights ?? NO_WEIGHTS)))] : [0]
      }
      if (command.op !== 'expire' || command.instance !== reservation.instance) return []
      const { at, revivedAt } = heartbeats.get(reservation.instance) ?? NO_HEARTBEAT
      const silentMs = now() - at
      if (silentMs < SURELY_ALIVE_MS && now() - revivedAt > STALE_MS && !dead.has(reservation.instance)) {
        report(`request ${id} was expired ${silentMs} ms after a heartbeat of its process`)
      }
      const request = requests.get(id)
      if (request) request.expired = true
      return [reservation.tokens, ...extended]
    })
  }

  function checkCharges(before: Subscription, after: Subscription, old: CodingAccount, account: CodingAccount, removed: [string, Reservation][], commands: PendingCommand[]): void {
    let sums = [{ session: 0, week: 0 }]
    for (const [id, reservation] of removed) {
      const request = requests.get(id)
      if (request) request.open = false
      const amounts = candidates(id, reservation, [before.terms, after.terms], commands)
      if (amounts.length === 0) report(`the reservation of request ${id} disappeared without a settlement`)
      const inSession = account.session?.start === reservation.session
      const inWeek = account.weekly.n === reservation.week
      const plus = (amount: number) => ({ session, week }: { session: number; week: number }) => ({
        session: session + (inSession ? amount : 0),
        week: week + (inWeek ? amount : 0),
      })
      sums = amounts.flatMap((amount) => sums.map(plus(amount)))
      const most = Math.max(0, ...amounts) - (request?.reserved ?? 0)
      for (const window of [`${after.id} session ${reservation.session}`, `${after.id} week ${reservation.week}`]) {
        beyond.set(window, (beyond.get(window) ?? 0) + Math.max(0, most))
      }
    }
    const session = (account.session?.used ?? 0) - (account.session && account.session.start === old.session?.start ? old.session.used : 0)
    const week = account.weekly.used - (account.weekly.n === old.weekly.n ? old.weekly.used : 0)
    if (!sums.some((sum) => sum.session === session && sum.week === week)) {
      const settled = removed.map(([id]) => id).join(', ') || 'nothing'
      report(`settling ${settled} added ${session} tokens to the session and ${week} to the week, and not ${JSON.stringify(sums)}`)
    }
  }

  /**
   * The published bound: usage plus the reservations at admission exceed a limit only by what requests used beyond their reservations. A
   * write of admissions alone leaves room even for extended reservations.
   */
  function checkLimits({ id, terms }: Subscription, account: CodingAccount, admission: boolean): void {
    if (!terms.coding) return
    const open = Object.entries(account.reservations)
    const windows = [
      {
        name: `session ${account.session?.start}`,
        used: account.session?.used ?? 0,
        limit: terms.coding.sessionTokens,
        mine: open.filter(([, { session }]) => session === account.session?.start),
      },
      {
        name: `week ${account.weekly.n}`,
        used: account.weekly.used,
        limit: terms.coding.weeklyTokens,
        mine: open.filter(([, { week }]) => week === account.weekly.n),
      },
    ]
    for (const { name, used, limit, mine } of windows) {
      const reserved = mine.reduce((sum, [request]) => sum + (requests.get(request)?.reserved ?? 0), 0)
      const over = beyond.get(`${id} ${name}`) ?? 0
      if (used + reserved > limit + over) {
        report(`${id} used ${used} and reserved ${reserved} of ${limit} tokens in ${name}, and only ${over} went beyond their reservations`)
      }
      const extended = mine.reduce((sum, [, { tokens }]) => sum + tokens, 0)
      if (admission && mine.length > terms.coding.maxConcurrentRequests) report(`${id} admitted ${mine.length} requests, where ${terms.coding.maxConcurrentRequests} may be in flight`)
      if (admission && used + extended > limit) {
        report(`${id} admitted a request to ${name}, where ${used} was used and ${extended} is reserved of ${limit}`)
      }
    }
  }

  /** A record was healed, and what was used in windows ahead counts in the running ones; or limits were edited. What is used and reserved may then be above them. */
  function allowed({ id, coding, terms }: Subscription): void {
    if (!coding || !terms.coding) return
    const reserved = Object.values(coding.reservations).reduce((sum, one) => sum + one.tokens, 0)
    const over = [[`session ${coding.session?.start}`, (coding.session?.used ?? 0) - terms.coding.sessionTokens], [`week ${coding.weekly.n}`, coding.weekly.used - terms.coding.weeklyTokens]] as const
    for (const [name, tokens] of over) beyond.set(`${id} ${name}`, Math.max(beyond.get(`${id} ${name}`) ?? 0, tokens + reserved))
  }

  /** A lease that is taken or renewed leaves everything that is reserved and leased within the limits. */
  function checkLeases({ id, at, terms }: Subscription, account: CodingAccount, before: NonNullable<CodingAccount['leases']>): void {
    const running = Object.entries(account.leases ?? {}).filter(([, { until }]) => until > at)
    if (!terms.coding || running.every(([instance, lease]) => JSON.stringify(lease) === JSON.stringify(before[instance]))) return
    const leased = (of: (lease: Lease) => number) => running.reduce((sum, [, lease]) => sum + of(lease), 0)
    const reserved = reservedIn(account, null)
    const tokens = leased((lease) => lease.tokens)
    const windows = { session: [account.session?.used ?? 0, reserved.session, terms.coding.sessionTokens], week: [account.weekly.used, reserved.weekly, terms.coding.weeklyTokens] } as const
    for (const [name, [used, held, limit]] of Object.entries(windows)) {
      if (used + held + tokens > limit) report(`${id} leased ${tokens} tokens in all, where ${used} are used and ${held} reserved of ${limit} in the ${name}`)
    }
    const requests = leased((lease) => lease.requests)
    if (reserved.count + requests > terms.coding.maxConcurrentRequests) report(`${id} leased ${requests} requests in all, where ${reserved.count} of ${terms.coding.maxConcurrentRequests} are in flight`)
  }

  function checkFinal(records: Iterable<Subscription>): void {
    for (const [id, { open }] of requests) if (open) report(`request ${id} was admitted and is not settled after the recovery`)
    for (const { id, coding } of records) for (const request of Object.keys(coding?.reservations ?? {})) {
      report(`${id} still reserves something for request ${request}`)
    }
  }

  function heartbeat(instance: string, count: number): void {
    const before = heartbeats.get(instance) ?? NO_HEARTBEAT
    if (count <= before.count) return
    const at = now()
    heartbeats.set(instance, { count, at, revivedAt: before.count > 0 && at - before.at >= SURELY_ALIVE_MS ? at : before.revivedAt })
  }

  /** A client was refused by these windows: what was used in them is stored. `record`: as it is stored. */
  function refused({ id, coding }: Subscription, { session, weekly }: WindowsView): void {
    if (coding?.session && coding.session.end === session.resetsAt && coding.session.used < session.used) report(`${id} refused by ${session.used} tokens of a session, of which ${coding.session.used} are stored`)
    if (coding && coding.weekly.start + WEEK_MS === weekly.resetsAt && coding.weekly.used < weekly.used) report(`${id} refused by ${weekly.used} tokens of a week, of which ${coding.weekly.used} are stored`)
  }

  return { changed, healed: allowed, refused, checkFinal, inFlight, dead, requests, heartbeat }
}
