/** Validation of a tenant's URL before DNS resolution: scheme, userinfo, port, literal addresses. */
import { isIP } from 'node:net'
import { type Allow, isGlobal } from './address-policy.ts'

/** Reasons for a refusal with their public sentences. None reveals what a name resolved to. */
export const REFUSALS = {
  invalid_url: 'The address is not a valid absolute URL.',
  scheme_not_allowed: 'Only http and https addresses are allowed.',
  userinfo_not_allowed: 'The address must not carry a user name or password.',
  port_not_allowed: 'The port of the address is not allowed. Use 80, 443 or one above 1023.',
  address_not_allowed: 'The address does not lead to the public Internet.',
} as const

export type Refusal = keyof typeof REFUSALS

export type Target = {
  outcome: 'target'
  url: URL
  /** The name, lower case and without a trailing dot, or the literal address in its canonical form. */
  host: string
  port: number
  /** The addresses that need no lookup: those of a literal or of localhost. Null for a name. */
  addresses: string[] | null
}

/** The "bad ports" of WHATWG Fetch above 1023: services that could misread an HTTP request. */
const BAD_PORTS = new Set([
  1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
])

function portAllowed(port: number): boolean {
  return port === 80 || port === 443 || (port > 1023 && !BAD_PORTS.has(port))
}

/**
 * Parses a URL and refuses schemes other than http and https, userinfo, ports of other protocols, literal addresses that
 * are not public (in any spelling: the WHATWG parser makes them canonical) and localhost. Hosts that the operator allowed pass, on any port.
 */
export function readTarget(text: string, allow: Allow): Target | { outcome: 'refused'; reason: Refusal } {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(text)?.[1]?.toLowerCase()
  if (scheme === undefined) return refused('invalid_url')
  if (scheme !== 'http' && scheme !== 'https') return refused('scheme_not_allowed')
  // The WHATWG parser would repair these; another parser, or a reader of the log, could see another host.
  const authority = /^https?:\/\/([^/?#]+)/i.exec(text)?.[1]
  const url = URL.parse(text)
  if (authority === undefined || /[\s\p{Cc}\\]/u.test(text) || url === null) return refused('invalid_url')
  if (authority.includes('@')) return refused('userinfo_not_allowed')

  const host = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  if (host.length > 253 || host.split('.').includes('')) return refused('invalid_url')
  const literal = literalAddresses(host)
  const named = allow.opensName(host)
  const addresses = literal?.filter((address) => named || allow.opensAddress(address) || isGlobal(address)) ?? null
  if (addresses?.length === 0) return refused('address_not_allowed')

  const port = Number(url.port || (scheme === 'https' ? 443 : 80))
  const opened = named || (addresses?.some(allow.opensAddress) ?? false)
  if (port === 0 || (!opened && !portAllowed(port))) return refused('port_not_allowed')
  // `host.` is `host`, for the receiver as well.
  if (url.hostname.endsWith('.')) url.hostname = host
  return { outcome: 'target', url, host, port, addresses }
}

function literalAddresses(host: string): string[] | null {
  if (isIP(host) !== 0) return [host]
  // RFC 6761, section 6.3: localhost is never resolved by DNS.
  return host === 'localhost' || host.endsWith('.localhost') ? ['127.0.0.1', '::1'] : null
}

function refused(reason: Refusal): { outcome: 'refused'; reason: Refusal } {
  return { outcome: 'refused', reason }
}
