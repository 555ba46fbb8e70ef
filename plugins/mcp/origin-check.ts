/**
 * Origin and Host checks against cross-site requests and DNS rebinding. A page from elsewhere must not reach a listener of this machine or
 * network: neither from its own origin, nor under a name of its own that resolves to this address.
 */
import { isIPv6 } from 'node:net'

export type Place = {
  /** HOST, the address of the listener. */
  host: string
  /** The local port of the request. */
  port: number | undefined
  /** PUBLIC_URL, an origin; null when it is not set. */
  publicUrl: string | null
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]']

/** True for the value of an Origin header that names PUBLIC_URL or the listener itself (RFC 6454, section 7). */
export function isOwnOrigin(origin: string, place: Place): boolean {
  if (origin === place.publicUrl) return true
  const parsed = URL.parse(origin)
  if (!parsed || parsed.origin !== origin || parsed.protocol !== 'http:') return false
  return Number(parsed.port || 80) === place.port && namesOf(place).includes(parsed.hostname)
}

/** True for a Host header that names this listener. Checked on loopback only: elsewhere proxies and DNS decide the names. */
export function isOwnHost(header: string | undefined, place: Place): boolean {
  if (!isLoopback(place.host)) return true
  const name = URL.parse(`http://${header ?? ''}`)?.hostname
  return (
    name !== undefined && (namesOf(place).includes(name) || (place.publicUrl !== null && name === URL.parse(place.publicUrl)?.hostname))
  )
}

function namesOf({ host }: Place): string[] {
  const own = isIPv6(host) ? `[${host}]` : host
  return isLoopback(host) ? [...LOOPBACK, own] : [own]
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.')
}
