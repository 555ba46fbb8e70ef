/** Egress address policy (SSRF protection): connections go to global unicast addresses, and to entries of EGRESS_ALLOW. */
import ipaddr from 'ipaddr.js'
import { isIP } from 'node:net'

type Parsed = ipaddr.IPv4 | ipaddr.IPv6
type Range = [Parsed, number]

/** The parsed entries of `EGRESS_ALLOW`. */
export type Allow = {
  /** True if the operator listed this address, or a range that it is in. */
  opensAddress(address: string): boolean
  /** True if the operator listed exactly this name (lower case, no trailing dot). */
  opensName(name: string): boolean
}

const NAME = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/

/**
 * Parses `EGRESS_ALLOW`: addresses, CIDR ranges and host names. A name allows itself only, not its subdomains.
 * Throws a RangeError that names an invalid entry.
 */
export function parseAllow(entries: readonly string[]): Allow {
  const ranges: Range[] = []
  const names = new Set<string>()
  for (const entry of entries) {
    const text = entry.trim().toLowerCase().replace(/\.$/, '')
    const range = parseRange(text)
    if (range) ranges.push(range)
    else if (NAME.test(text) && !/(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$/.test(text)) names.add(text)
    else throw new RangeError(`"${entry}" is not an IP address, a CIDR range or a host name`)
  }
  return {
    opensAddress(address) {
      const parsed = parse(address)
      return parsed !== null && ranges.some((range) => within(parsed, range))
    },
    opensName: (name) => names.has(name),
  }
}

function parseRange(text: string): Range | null {
  const [address = '', bits, more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more !== undefined) return null
  const maxBits = family === 4 ? 32 : 128
  if (bits === undefined) return [ipaddr.parse(address), maxBits]
  return /^[0-9]{1,3}$/.test(bits) && Number(bits) <= maxBits ? [ipaddr.parse(address), Number(bits)] : null
}

/** isIP first: it accepts canonical spellings only, whereas ipaddr.js also accepts octal, hexadecimal and short ones. */
function parse(address: string): Parsed | null {
  return isIP(address) === 0 ? null : ipaddr.parse(address)
}

function within(address: Parsed, [network, bits]: Range): boolean {
  return address.kind() === network.kind() && address.match(network, bits)
}

/** RFC 4291, section 2.4: IANA assigns global unicast from this range only, which excludes ::/96, mapped, NAT64, local and multicast addresses. */
const GLOBAL_V6: Range = [ipaddr.parse('2000::'), 3]

/** A public address that inside Azure is the host's metadata service ("wire server"). */
const AZURE_WIRE_SERVER: Range = [ipaddr.parse('168.63.129.16'), 32]

/**
 * True if an address is global unicast: reachable over the Internet, and not special by IANA's registries (RFC 6890). False for 6to4 and
 * Teredo, which embed an IPv4 address, for documentation and benchmarking ranges, and for anything that is not an IP address.
 */
export function isGlobal(address: string): boolean {
  const parsed = parse(address)
  if (parsed === null || parsed.range() !== 'unicast') return false
  return parsed.kind() === 'ipv4' ? !within(parsed, AZURE_WIRE_SERVER) : within(parsed, GLOBAL_V6)
}
