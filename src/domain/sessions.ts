/** Dashboard sessions: what one is, how long it lives, and how its cookie value is hashed. Randomness is an argument. */
import { hash } from 'node:crypto'

export const SESSION_MS = 12 * 3_600_000

/** One signed-in browser. Times are epoch milliseconds. */
export type Session = {
  /** SHA-256 of the value of the cookie, lower-case hex: the store never has the value itself. */
  id: string
  user: { id: string; name: string }
  signIn: 'local' | 'oidc'
  /** The tenants that the person may act for; null for all of them (`local`). */
  tenants: string[] | null
  /** The tenant that the person acts for now. */
  tenant: string
  createdAt: number
  expiresAt: number
}

/** The value of a cookie or a link from 32 random bytes. It has 256 random bits, so its hash needs neither salt nor a slow function. */
export function secretOf(random: Uint8Array): string {
  if (random.length !== 32) throw new RangeError('a secret takes 32 random bytes')
  return Buffer.from(random).toString('base64url')
}

/** The id of the session of a cookie value: SHA-256 in hexadecimal. The store never has the value itself. */
export function sessionHash(secret: string): string {
  return hash('sha256', secret)
}

/** A namespace of Kubernetes (RFC 1123 label). */
const TENANT = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/
const MAX_TENANTS = 500

/** The tenants in the value of a claim; null unless it is a list of namespaces. Doubles count once. */
export function tenantsIn(claim: unknown): string[] | null {
  if (!Array.isArray(claim) || claim.length > MAX_TENANTS) return null
  return claim.every((entry): entry is string => typeof entry === 'string' && TENANT.test(entry)) ? [...new Set<string>(claim)] : null
}
