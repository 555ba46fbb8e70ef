/**
 * SERVICE: the egress guard, a fetch for addresses that a tenant gave. It vets every address of a name and connects to a vetted one.
 * No proxy of the environment, no cookie, no decompression, no connection used twice.
 */
import { isGlobal, parseAllow } from './address-policy.ts'
import { dial } from './connect.ts'
import { exchange, type Head, type Message, type Reading } from './http-exchange.ts'
import { type Lookup, openLookup } from './dns-lookup.ts'
import { readTarget, type Refusal, type Target } from './target-url.ts'

export type Ask = {
  url: string
  method: Message['method']
  headers?: Record<string, string>
  body?: string | Uint8Array
  /** From the call to the last byte of the answer: names, connections, TLS and redirects included. */
  deadlineMs: number
  maxBytes: number
  over: Reading['over']
  /** How many redirects are followed; each is vetted like the first address. Only for GET and HEAD. */
  redirects: number
  /** Called once, when a 2xx came: its body is streamed there, and `body` of the reply is empty. */
  sink?: NonNullable<Reading['sink']>
  signal?: AbortSignal
}

export type EgressFailure = 'dns' | 'connect' | 'tls' | 'reset' | 'protocol' | 'timeout' | 'too_large' | 'too_many_redirects' | 'canceled'

type Ending =
  | ({ outcome: 'answered'; body: Uint8Array } & Head)
  | { outcome: 'refused'; reason: Refusal }
  /** `status`: of an answer that began and did not end well. */
  | { outcome: 'failed'; reason: EgressFailure; status: number | null }

export type Reply = Ending & { durationMs: number }

export type Egress = {
  /** Why a URL is refused as it stands, or null. Resolves nothing: what a name leads to is judged when it is used. */
  check(url: string): Refusal | null
  /** Every ending is a value, except a failure of the caller's own sink, which is thrown. */
  request(ask: Ask): Promise<Reply>
}

export type EgressOptions = {
  /** `EGRESS_ALLOW`: addresses, CIDR ranges and host names that are opened. */
  allow: readonly string[]
  /** Milliseconds, for `durationMs`. */
  clock: () => number
  lookup?: Lookup
  /** Told of each refusal, for `tollgate_egress_refused_total`. */
  refused?: (reason: Refusal) => void
}

const HEADERS = { 'user-agent': 'tollgate', accept: '*/*', 'accept-encoding': 'identity' }
const REDIRECTS = new Set([301, 302, 303, 307, 308])

/** Opens the guarded fetch. Throws a RangeError that names the entry of `allow` which makes no sense. It holds nothing open, so it has no close. */
export function openEgress(options: EgressOptions): Egress {
  const allow = parseAllow(options.allow)
  const lookup = options.lookup ?? openLookup(allow)
  const tell = options.refused ?? (() => {})

  /** All addresses of a target, each vetted: one that is not allowed spoils the name, whichever of them would be dialled. */
  async function vetted(target: Target, signal: AbortSignal): Promise<string[] | 'dns' | 'address_not_allowed'> {
    if (target.addresses) return target.addresses
    const found = await unlessAborted(lookup(target.host, signal).catch(() => []), signal)
    if (found.length === 0) return 'dns'
    const allowed = allow.opensName(target.host) || found.every((address) => isGlobal(address) || allow.opensAddress(address))
    return allowed ? found : 'address_not_allowed'
  }

  async function hop(target: Target, ask: Ask, headers: Record<string, string>, signal: AbortSignal): Promise<Ending> {
    signal.throwIfAborted()
    const addresses = await vetted(target, signal)
    if (addresses === 'dns') return failed('dns')
    if (addresses === 'address_not_allowed') return { outcome: 'refused', reason: addresses }
    const { host, port, url } = target
    const dialled = await dial({ addresses, port, host, secure: url.protocol === 'https:', signal })
    signal.throwIfAborted()
    if (dialled.outcome === 'failed') return failed(dialled.reason)
    const message = { url, method: ask.method, headers: { ...HEADERS, ...headers }, body: ask.body ?? null }
    const ending = await exchange(dialled.socket, message, { maxBytes: ask.maxBytes, over: ask.over, sink: ask.sink ?? null }, signal)
    if (ending.outcome === 'answered') return ending
    return { ...ending, reason: ending.reason === 'aborted' ? aborted(ask) : ending.reason }
  }

  async function follow(ask: Ask, signal: AbortSignal): Promise<Ending> {
    let target = readTarget(ask.url, allow)
    let headers = ask.headers ?? {}
    const most = ask.method === 'POST' ? 0 : ask.redirects
    for (let followed = 0; ; followed++) {
      if (target.outcome === 'refused') return target
      const ending = await hop(target, ask, headers, signal)
      if (ending.outcome !== 'answered' || most === 0) return ending
      const next = redirection(ending, target.url)
      if (next === null) return ending
      if (followed === most) return { outcome: 'failed', reason: 'too_many_redirects', status: ending.status }
      // What the caller said was said to one origin.
      if (next.origin !== target.url.origin) headers = {}
      target = readTarget(next.href, allow)
    }
  }

  return {
    check(url) {
      const target = readTarget(url, allow)
      if (target.outcome === 'target') return null
      tell(target.reason)
      return target.reason
    },

    async request(ask) {
      const startedAt = options.clock()
      const deadline = new AbortController()
      const timer = setTimeout(() => deadline.abort(), ask.deadlineMs)
      const signal = ask.signal ? AbortSignal.any([deadline.signal, ask.signal]) : deadline.signal
      try {
        const ending = await follow(ask, signal).catch((error: unknown) => {
          if (signal.aborted) return failed(aborted(ask))
          throw error
        })
        if (ending.outcome === 'refused') tell(ending.reason)
        return { ...ending, durationMs: Math.max(0, options.clock() - startedAt) }
      } finally {
        clearTimeout(timer)
      }
    },
  }
}

function failed(reason: EgressFailure): { outcome: 'failed'; reason: EgressFailure; status: null } {
  return { outcome: 'failed', reason, status: null }
}

function aborted(ask: Ask): 'canceled' | 'timeout' {
  return ask.signal?.aborted ? 'canceled' : 'timeout'
}

/** Where an answer sends us, or null if it does not, or to nothing that is a URL. */
function redirection(head: Head, from: URL): URL | null {
  const { location } = head.headers
  return REDIRECTS.has(head.status) && typeof location === 'string' ? URL.parse(location, from) : null
}

/** A lookup that cannot be stopped (getaddrinfo) must not outlast the deadline. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
    work.then(resolve, reject)
  })
}
