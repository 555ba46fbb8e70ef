/**
 * SERVICE: the egress guard, an HTTP client for URLs of tenants. It checks every address of a name and connects to a checked one (SSRF
 * protection). No proxy of the environment, no cookie, no decompression. A connection is used again only for requests that may arrive
 * twice, and only while the name still resolves to its address.
 */
import { unlessAborted } from '../concurrency/unless-aborted.ts'
import { isGlobal, parseAllow } from './address-policy.ts'
import { dial } from './connect.ts'
import { openIdleConnections } from './idle-connections.ts'
import {
  closeConnection,
  type Connection,
  exchange,
  type Head,
  isReusable,
  type Message,
  openConnection,
  type Reading,
} from './pinned-request.ts'
import { type Lookup, openLookup } from './dns-lookup.ts'
import type { Take } from '../http/growing-buffer.ts'
import { readTarget, type Refusal, type Target } from './target-url.ts'

export type Ask = {
  url: string
  method: Message['method']
  headers?: Record<string, string>
  body?: string | Uint8Array
  /** From the call to the last byte of the answer, including lookups, connections, TLS and redirects. */
  deadlineMs: number
  maxBytes: number
  over: Reading['over']
  /** Maximum number of redirects; each target is checked like the first one. Only for GET and HEAD. */
  redirects: number
  /**
   * Uses an idle connection to the same origin and leaves its own open for the next request. Only for requests that may arrive twice:
   * if the server closes an idle connection at that moment, or sends on it what is no answer, the request is sent again over a new one.
   */
  reuse?: boolean
  /** Called once for a 2xx: its body is streamed there, and `body` of the reply is empty. */
  sink?: NonNullable<Reading['sink']>
  /** Counts the memory of a body as it arrives; `request` rejects with what it throws. */
  take?: Take
  signal?: AbortSignal
}

export type EgressFailure = 'dns' | 'connect' | 'tls' | 'reset' | 'protocol' | 'timeout' | 'too_large' | 'too_many_redirects' | 'canceled'

type Ending =
  | ({ outcome: 'answered'; body: Uint8Array } & Head)
  | { outcome: 'refused'; reason: Refusal }
  /** `status`: that of an answer that began and then failed. */
  | { outcome: 'failed'; reason: EgressFailure; status: number | null }

export type Reply = Ending & { durationMs: number }

export type Egress = {
  /** Why a URL is refused before DNS resolution, or null. The resolved addresses are checked by `request`. */
  check(url: string): Refusal | null
  /**
   * The same with the addresses that the host resolves to, for a URL that somebody else will request. `dns`: it cannot be resolved, or not
   * before the signal aborts.
   */
  vet(url: string, signal: AbortSignal): Promise<Refusal | 'dns' | null>
  /** Returns every outcome as a value, except a failure of the caller's sink or `take`, which is thrown. */
  request(ask: Ask): Promise<Reply>
  /** Closes the idle connections. */
  close(): void
}

export type EgressOptions = {
  /** `EGRESS_ALLOW`: addresses, CIDR ranges and host names that are allowed. */
  allow: readonly string[]
  /** Milliseconds, for `durationMs`. */
  clock: () => number
  lookup?: Lookup
  /** Called for each refusal, for `tollgate_egress_refused_total`. `host`: a name whose addresses were refused, which only the operator may learn. */
  refused?: (reason: Refusal, host?: string) => void
}

const HEADERS = { 'user-agent': 'tollgate', accept: '*/*', 'accept-encoding': 'identity' }
const REDIRECTS = new Set([301, 302, 303, 307, 308])

/** How long an idle connection is kept: less than the 5 s after which Node's and many other servers close theirs. */
const IDLE_MS = 4000
/** Reason of a signal that nobody waits for any more. By default each abort makes an error with a stack. */
const ENDED = Symbol('ended')

/** Opens the egress guard. Throws a RangeError that names an invalid entry of `allow`. */
export function openEgress(options: EgressOptions): Egress {
  const allow = parseAllow(options.allow)
  const lookup = options.lookup ?? openLookup(allow)
  const onRefused = options.refused ?? (() => {})
  const idle = openIdleConnections()

  /**
   * The checked addresses of a target; none when it has none, or one that is not allowed, whichever would be dialled. A tenant must not
   * learn which of both: it would tell the names of an internal network from those that do not exist.
   */
  async function checkedAddresses(target: Target, signal: AbortSignal): Promise<string[]> {
    if (target.addresses) return target.addresses
    // getaddrinfo cannot be stopped, and must not outlast the deadline.
    const found = await unlessAborted(
      lookup(target.host, signal).catch(() => []),
      signal,
    )
    const allowed = allow.opensName(target.host) || found.every((address) => isGlobal(address) || allow.opensAddress(address))
    if (!allowed) onRefused('address_not_allowed', target.host)
    return allowed ? found : []
  }

  async function hop(target: Target, ask: Ask, headers: Record<string, string>, signal: AbortSignal): Promise<Ending> {
    signal.throwIfAborted()
    const addresses = await checkedAddresses(target, signal)
    if (addresses.length === 0) return failed('dns')
    const message = { url: target.url, method: ask.method, headers: { ...HEADERS, ...headers }, body: ask.body ?? null }
    return send(target, addresses, message, ask, signal)
  }

  async function send(target: Target, addresses: readonly string[], message: Message, ask: Ask, signal: AbortSignal): Promise<Ending> {
    const reading = { maxBytes: ask.maxBytes, over: ask.over, sink: ask.sink ?? null, take: ask.take ?? (() => {}) }
    const { host, port, url } = target
    const over = async (connection: Connection): Promise<Ending> => {
      try {
        const ending = await exchange(connection, message, reading, { last: !ask.reuse, signal })
        return ending.outcome === 'answered' ? ending : { ...ending, reason: ending.reason === 'aborted' ? aborted(ask) : ending.reason }
      } finally {
        if (ask.reuse && isReusable(connection)) idle.keep(url.origin, connection)
        else closeConnection(connection)
      }
    }
    const kept = ask.reuse ? idle.take(url.origin, addresses) : null
    if (kept !== null) {
      const ending = await over(kept)
      // The server closed it meanwhile, or sent more than the last answer, such as the body of a 204.
      const hadNoAnswer =
        ending.outcome === 'failed' && (ending.reason === 'reset' || ending.reason === 'protocol') && ending.status === null
      if (!hadNoAnswer) return ending
    }
    const dialled = await dial({ addresses, port, host, secure: url.protocol === 'https:', signal })
    if (dialled.outcome === 'failed') {
      signal.throwIfAborted()
      return failed(dialled.reason)
    }
    return over(openConnection(url.origin, { ...dialled, idleMs: IDLE_MS }))
  }

  async function follow(ask: Ask, signal: AbortSignal): Promise<Ending> {
    let target = readTarget(ask.url, allow)
    let headers = ask.headers ?? {}
    const maxRedirects = ask.method === 'POST' ? 0 : ask.redirects
    for (let followed = 0; ; followed++) {
      if (target.outcome === 'refused') return target
      const ending = await hop(target, ask, headers, signal)
      if (ending.outcome !== 'answered' || maxRedirects === 0) return ending
      const next = redirection(ending, target.url)
      if (next === null) return ending
      if (followed === maxRedirects) return { outcome: 'failed', reason: 'too_many_redirects', status: ending.status }
      // The caller's headers, such as credentials, are for one origin only. A range is no secret.
      const { range } = headers
      if (next.origin !== target.url.origin) headers = range === undefined ? {} : { range }
      target = readTarget(next.href, allow)
    }
  }

  return {
    check(url) {
      const target = readTarget(url, allow)
      if (target.outcome === 'target') return null
      onRefused(target.reason)
      return target.reason
    },

    async vet(url, signal) {
      const target = readTarget(url, allow)
      if (target.outcome === 'target') return (await checkedAddresses(target, signal).catch(() => [])).length > 0 ? null : 'dns'
      onRefused(target.reason)
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
        if (ending.outcome === 'refused') onRefused(ending.reason)
        return { ...ending, durationMs: Math.max(0, options.clock() - startedAt) }
      } finally {
        clearTimeout(timer)
        // Node keeps a composite signal and what listens to it for as long as none of its sources aborted.
        deadline.abort(ENDED)
      }
    },

    close: idle.close,
  }
}

function failed(reason: EgressFailure): { outcome: 'failed'; reason: EgressFailure; status: null } {
  return { outcome: 'failed', reason, status: null }
}

function aborted(ask: Ask): 'canceled' | 'timeout' {
  return ask.signal?.aborted ? 'canceled' : 'timeout'
}

/** The target of a redirect, or null if the answer is none or has no valid Location. */
function redirection(head: Head, from: URL): URL | null {
  const { location } = head.headers
  return REDIRECTS.has(head.status) && typeof location === 'string' ? URL.parse(location, from) : null
}
