/**
 * Leases: slices of a plan's room that gateways take with each write of its record, so that they admit requests without another write. A lease is at most a quarter of what
 * is left: slices get smaller as a window fills, and near its end each request is admitted by the record alone. Every admission is decided again when it is written, so that a
 * lease saves time and decides nothing: what is used and reserved is bounded as without leases.
 */
import { rateLeft } from '../rate-limit.ts'
import type { CodingLedger } from './coding-ledger.ts'
import type { Answer, Command } from './commands.ts'
import { inactiveReason, type Lease } from './subscription.ts'

/** A lease is at most this part of what is left beside other leases. */
const SHARE = 4
/** A lease of fewer requests saves no write. */
const FEWEST_REQUESTS = 2

/** Gives a gateway its lease anew, as of `now`; none where little is left, or nothing wanted. `usedBy`: tokens of the week that a key has used. */
export function renewLease(
  ledger: CodingLedger,
  { instance, wanted, forMs }: Extract<Command, { op: 'lease' }>,
  now: number,
  usedBy: (keyId: string) => number,
): Answer<'lease'> {
  const lease = inactiveReason(ledger.record, now) === null ? leaseOf(ledger, instance, wanted, now, usedBy) : null
  const leased = lease && { ...lease, until: now + forMs }
  ledger.setLease(instance, leased, now)
  return leased ? { outcome: 'leased', lease: leased } : { outcome: 'none' }
}

function leaseOf(
  ledger: CodingLedger,
  instance: string,
  wanted: Extract<Command, { op: 'lease' }>['wanted'],
  now: number,
  usedBy: (keyId: string) => number,
): Omit<Lease, 'until'> | null {
  const { terms, record, session, weekly } = ledger
  if (!terms) return null
  const reserved = ledger.reserved('')
  const others = ledger.leasedBesides(instance, null, now)
  const tokensLeft = Math.min(
    terms.sessionTokens - (session?.used ?? 0) - reserved.session,
    terms.weeklyTokens - weekly.used - reserved.weekly,
  )
  const { remaining } = rateLeft(ledger.rate, record.terms.requestsPerMinute, now)
  const tokens = shareOf(wanted.tokens, tokensLeft - others.tokens)
  const requests = shareOf(wanted.requests, Math.min(terms.maxConcurrentRequests - reserved.count, remaining) - others.requests)
  if (requests < FEWEST_REQUESTS || tokens < (FEWEST_REQUESTS * wanted.tokens) / wanted.requests) return null
  const keys = Object.entries(wanted.keys).map(([keyId, { tokens: most, cap }]): [string, number] => {
    const left = cap - usedBy(keyId) - ledger.reserved(keyId).key - ledger.leasedBesides(instance, keyId, now).key
    return [keyId, shareOf(most, left)]
  })
  return { tokens, requests, keys: Object.fromEntries(keys) }
}

function shareOf(wanted: number, left: number): number {
  return Math.max(0, Math.min(wanted, Math.floor(left / SHARE)))
}
