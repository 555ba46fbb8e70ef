/**
 * Origin and Host checks against cross-site requests and DNS rebinding. A page from elsewhere must not reach a listener of this machine or
 * network: neither from its own origin, nor under a name of its own that resolves to this address.
 */
import { isIPv6 } from 'node:net'
import { isLoopback } from './setting-types.ts'

export type Place = {
  HOST: string
  /** An origin; null when it is not set. */
  PUBLIC_URL: string | null
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']

/** True for the value of an Origin header that names PUBLIC_URL or the listener itself (RFC 6454, section 7). `port` is the local one of the request. */
export function isOwnOrigin(origin: string, place: Place, port: number | undefined): boolean {
  if (origin === place.PUBLIC_URL) return true
  const parsed = URL.parse(origin)
  if (!parsed || parsed.origin !== origin || parsed.protocol !== 'http:') return false
  return Number(parsed.port || 80) === port && namesOf(place).includes(parsed.hostname)
}

/** True for a Host header that names this listener. Checked on loopback only: elsewhere proxies and DNS decide the names. */
export function isOwnHost(header: string | undefined, place: Place): boolean {
  if (!isLoopback(place.HOST)) return true
  const name = URL.parse(`http://${header ?? ''}`)?.hostname
  return (
    name !== undefined && (namesOf(place).includes(name) || (place.PUBLIC_URL !== null && name === URL.parse(place.PUBLIC_URL)?.hostname))
  )
}

function namesOf({ HOST }: Place): string[] {
  const own = isIPv6(HOST) ? `[${HOST}]` : HOST
  return isLoopback(HOST) ? [...LOOPBACK, own] : [own]
}
