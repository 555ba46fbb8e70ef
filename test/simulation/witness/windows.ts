/** Both token windows from write to write: what is admitted fits, every request is settled once, and only what was charged is used. */
import type { CodingAccount, Reservation, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { chargeOf } from '../../../src/domain/token-windows.ts'
import type { Asked, Step } from '../scheduler.ts'
import type { Say } from '../witness.ts'

/** One request as the record shows it. `reserved`: at its admission. */
type Request = { reserved: number; open: boolean; expired: boolean }

/** A clock may be set forward by twice its largest error while it looks whether a beat changes. */
const SURELY_ALIVE_MS = 45_000 - 20_000
/** So long may the sweep itself be frozen between taking a process for dead and acting on it. */
const STALE_MS = 200_000

const SILENT = { count: 0, at: -Infinity, revivedAt: -Infinity }

export function openWindows(say: Say, now: () => number) {
  const requests = new Map<string, Request>()
  const inFlight = new Set<string>()
  const beats = new Map<string, { count: number; at: number; revivedAt: number }>()
  /** By subscription and window: what its requests used beyond their reservations. */
  const beyond = new Map<string, number>()

  function moved(before: Subscription | null, after: Subscription, { asked }: Step): void {
    const [old, account] = [before?.coding, after.coding]
    if (!account) return
    const gone = Object.entries(old?.reservations ?? {}).filter(([id]) => !account.reservations[id])
    if (old) charged(after, old, account, gone, asked)
    let admitted = 0
    for (const [id, reservation] of Object.entries(account.reservations)) {
      const first = old?.reservations[id]
      if (first) kept(id, first, reservation, asked)
      else {
        admitted++
        opened(id, reservation, asked)
      }
    }
    bounds(after, account, admitted > 0 && asked.every(({ command }) => command.op === 'admit'))
  }

  function opened(id: string, { instance, tokens }: Reservation, asked: Asked[]): void {
    const earlier = requests.get(id)
    if (!asked.some(({ command }) => command.op === 'admit' && command.id === id && command.instance === instance)) {
      say(`request ${id} was admitted and nobody asked`)
    }
    // A process that was taken for dead in the middle of its admission asks again.
    if (earlier && !earlier.expired) say(`request ${id} was settled and admitted again`)
    requests.set(id, { reserved: tokens, open: true, expired: false })
  }

  function kept(id: string, before: Reservation, after: Reservation, asked: Asked[]): void {
    const extended = asked.some(({ command }) => command.op === 'extend' && command.id === id && command.tokens === after.tokens)
    if (after.tokens !== before.tokens && (!extended || after.tokens < before.tokens)) {
      say(`the reservation of request ${id} went from ${before.tokens} to ${after.tokens}`)
    }
    if (JSON.stringify({ ...after, tokens: 0 }) !== JSON.stringify({ ...before, tokens: 0 })) {
      say(`the reservation of request ${id} changed`)
    }
  }

  /** What a request that is gone may have been charged, by what was asked for in that write. */
  function candidates(id: string, reservation: Reservation, { terms }: Subscription, asked: Asked[]): number[] {
    const weights = terms.coding?.weights ?? { input: 0, cachedInput: 0, output: 0 }
    const extended = asked.flatMap(({ command }) => (command.op === 'extend' && command.id === id ? [command.tokens] : []))
    return asked.flatMap(({ command, actor }) => {
      if (command.op === 'settle' && command.id === id) {
        if (actor.name === 'sweep' && inFlight.has(id)) say(`request ${id} was released while it was in flight`)
        return [command.usage ? chargeOf(command.usage, weights) : 0]
      }
      if (command.op !== 'expire' || command.instance !== reservation.instance) return []
      const { at, revivedAt } = beats.get(reservation.instance) ?? SILENT
      const silentMs = now() - at
      if (silentMs < SURELY_ALIVE_MS && now() - revivedAt > STALE_MS) {
        say(`request ${id} was expired ${silentMs} ms after its process said that it lives`)
      }
      const request = requests.get(id)
      if (request) request.expired = true
      return [reservation.tokens, ...extended]
    })
  }

  function charged(after: Subscription, old: CodingAccount, account: CodingAccount, gone: [string, Reservation][], asked: Asked[]): void {
    let sums = [{ session: 0, week: 0 }]
    for (const [id, reservation] of gone) {
      const request = requests.get(id)
      if (request) request.open = false
      const amounts = candidates(id, reservation, after, asked)
      if (amounts.length === 0) say(`the reservation of request ${id} went away without being settled`)
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
      const settled = gone.map(([id]) => id).join(', ') || 'nothing'
      say(`settling ${settled} added ${session} tokens to the session and ${week} to the week, and not ${JSON.stringify(sums)}`)
    }
  }

  /**
   * The published bound: what is used and was reserved at admission passes a limit only by what requests used beyond that. An admission
   * that nothing else came with finds room even for what was extended.
   */
  function bounds({ id, terms }: Subscription, account: CodingAccount, admission: boolean): void {
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
        say(`${id} used ${used} and reserved ${reserved} of ${limit} tokens in ${name}, and only ${over} went beyond their reservations`)
      }
      const extended = mine.reduce((sum, [, { tokens }]) => sum + tokens, 0)
      if (admission && used + extended > limit) {
        say(`${id} admitted a request to ${name}, where ${used} was used and ${extended} is reserved of ${limit}`)
      }
    }
  }

  function atRest(records: Iterable<Subscription>): void {
    for (const [id, { open }] of requests) if (open) say(`request ${id} was admitted and is not settled when everything has come to rest`)
    for (const { id, coding } of records) for (const request of Object.keys(coding?.reservations ?? {})) {
      say(`${id} still reserves something for request ${request}`)
    }
  }

  function heartbeat(instance: string, count: number): void {
    const before = beats.get(instance) ?? SILENT
    if (count <= before.count) return
    const at = now()
    beats.set(instance, { count, at, revivedAt: before.count > 0 && at - before.at >= SURELY_ALIVE_MS ? at : before.revivedAt })
  }

  return { moved, atRest, inFlight, requests, heartbeat }
}
