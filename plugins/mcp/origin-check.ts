/**
 * Which web origins and Host names are our own. A page that a browser opened elsewhere must not speak to a listener that only this machine, or only this network,
 * can reach: neither from its own origin nor under a name of its own that it let point here (DNS rebinding).
 */
import { isIPv6 } from 'node:net'

export type Place = {
  /** HOST, where we listen. */
  host: string
  /** The port that the request came to. */
  port: number | undefined
  /** PUBLIC_URL, an origin, or null. */
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

/** True for a Host header that names us. It is only asked on loopback: elsewhere names are given by those who route to us. */
export function isOwnHost(header: string | undefined, place: Place): boolean {
  if (!isLoopback(place.host)) return true
  const name = URL.parse(`http://${header ?? ''}`)?.hostname
  return name !== undefined && (namesOf(place).includes(name) || (place.publicUrl !== null && name === URL.parse(place.publicUrl)?.hostname))
}

function namesOf({ host }: Place): string[] {
  const own = isIPv6(host) ? `[${host}]` : host
  return isLoopback(host) ? [...LOOPBACK, own] : [own]
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.')
}
