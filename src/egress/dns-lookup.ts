/** DNS lookup of tenants' host names: by the DNS servers only, or by the system resolver for names of EGRESS_ALLOW. */
import { lookup as systemLookup, Resolver } from 'node:dns/promises'
import type { Allow } from './address-policy.ts'

/** Resolves a name to all of its addresses, possibly none. Rejects when the lookup fails or the signal aborts. */
export type Lookup = (name: string, signal: AbortSignal) => Promise<string[]>

/**
 * Queries the DNS servers directly: without the search domains of our network, and without getaddrinfo, whose few
 * threads an unresponsive name server could block. Names that the operator allowed are resolved by the system, hosts file included.
 *
 * @param options `servers`: DNS servers as `address:port`, instead of the system's.
 */
export function openLookup(allow: Allow, options: { servers?: readonly string[] } = {}): Lookup {
  return async (name, signal) => {
    if (allow.opensName(name)) return (await systemLookup(name, { all: true, order: 'verbatim' })).map((found) => found.address)
    const resolver = new Resolver({ timeout: 2000, tries: 2 })
    if (options.servers) resolver.setServers(options.servers)
    const cancel = (): void => resolver.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
      if (v4.status === 'rejected' && v6.status === 'rejected') throw v4.reason
      return [v4, v6].flatMap((found) => (found.status === 'fulfilled' ? found.value : []))
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
}
