/** Headers of pass-through requests and answers: hop-by-hop headers end here (RFC 9110, section 7.6.1), and so do credentials and what names the service. */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import type { ProxyRoute } from './routes-file.ts'

const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  'expect',
]
const CREDENTIALS = ['authorization', 'cookie', 'proxy-authorization', 'x-api-key', 'api-key']
/** What a client says about itself or its proxies: only this gateway tells the service. */
const FORWARDED = [
  'forwarded',
  'via',
  'x-real-ip',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-original-url',
  'x-rewrite-url',
]

/** What a client says about itself or a person, as proxies that sign people in do. */
const CLAIMS = /^(x-forwarded-|x-auth-request-|x-remote-|remote-|x-authenticated-|x-original-)/

const NOT_SENT = new Set([...HOP_BY_HOP, ...CREDENTIALS, ...FORWARDED])

/** Headers that HTTP or the gateway decides; the file may not set them. Credentials it may. */
export const OURS: ReadonlySet<string> = new Set([...HOP_BY_HOP, ...FORWARDED, 'host', 'content-length', 'content-type', 'x-request-id'])

const NOT_ANSWERED = new Set([
  ...HOP_BY_HOP,
  // Credentials for this origin, or questions for them.
  'set-cookie',
  'set-cookie2',
  'clear-site-data',
  'www-authenticate',
  'proxy-authenticate',
  'authentication-info',
  'proxy-authentication-info',
  // Names of the service, and policies for the whole origin.
  'server',
  'x-powered-by',
  'via',
  'alt-svc',
  'strict-transport-security',
  'public-key-pins',
  'service-worker-allowed',
  'report-to',
  'reporting-endpoints',
  'nel',
  'server-timing',
  'sourcemap',
  'x-request-id',
])
/** Shorter than any key, and longer than what would be found by chance. */
const KEY_LENGTH_MIN = 20
/** Of the token windows, which the gateway answers itself. */
const WINDOWS = /^x-(ratelimit-|codex-)/

/** The headers that the service gets: the client's without those above, the route's own, and the caller. `headers` are lower-case. */
export function requestHeaders(
  headers: IncomingHttpHeaders,
  request: FastifyRequest,
  route: ProxyRoute,
  brand: string,
): Record<string, string> {
  const named = connectionTokens(headers.connection)
  // The client's own trace ends here, where there is one of ours.
  const { traceparent } = request.span
  const isReplaced = (name: string) => traceparent !== null && (name === 'tracestate' || name === 'baggage')
  const key = headers.authorization?.split(' ').at(-1)
  const passed = Object.entries(headers).filter(([name, value]) => {
    // CGI and its like read X_SVC_Tenant and X.SVC.Tenant as X-SVC-Tenant.
    const read = name.replaceAll(/[_.]/g, '-')
    const isOurs = NOT_SENT.has(read) || CLAIMS.test(read) || read.startsWith(`x-${brand}-`)
    const hasKey = key !== undefined && key.length >= KEY_LENGTH_MIN && String(value).includes(key)
    return !isOurs && !isReplaced(read) && !named.has(name) && !hasKey
  }) as [string, string][]
  const { caller, ip, protocol, host } = request
  return {
    ...Object.fromEntries(passed),
    ...(traceparent === null ? {} : { traceparent }),
    'x-request-id': request.id,
    'x-forwarded-for': ip,
    'x-forwarded-proto': protocol,
    'x-forwarded-host': host,
    'x-forwarded-prefix': route.prefix,
    ...(caller
      ? { [`x-${brand}-tenant`]: caller.key.tenant, [`x-${brand}-plan`]: caller.key.subscription, [`x-${brand}-key`]: caller.key.keyId }
      : {}),
    ...Object.fromEntries(Object.entries(route.headers).map(([name, value]) => [name.toLowerCase(), value])),
  }
}

/**
 * The headers that the client gets. A redirect within the service leads back through the gateway; one to another path of its origin is
 * dropped, because it names it.
 */
export function answerHeaders(headers: IncomingHttpHeaders, route: ProxyRoute): IncomingHttpHeaders {
  const named = connectionTokens(headers.connection)
  const kept: IncomingHttpHeaders = {}
  for (const [name, value] of Object.entries(headers)) {
    if (NOT_ANSWERED.has(name) || WINDOWS.test(name) || named.has(name)) continue
    const sent = (name === 'location' || name === 'content-location') && typeof value === 'string' ? ownLocation(value, route) : value
    if (sent !== null) kept[name] = sent
  }
  return kept
}

function ownLocation(location: string, { upstream, prefix, rewritePrefix }: ProxyRoute): string | null {
  const url = URL.parse(location, upstream)
  if (!url) return null
  // A relative path keeps its meaning, because both sides have the same path below the prefix.
  if (!/^([a-z][a-z0-9+.-]*:|[/\\])/i.test(location)) return location
  if (url.origin !== upstream) return location
  if (url.pathname !== rewritePrefix && !url.pathname.startsWith(`${rewritePrefix}/`)) return null
  return `${prefix}${url.pathname.slice(rewritePrefix.length)}${url.search}${url.hash}`
}

function connectionTokens(connection: string | undefined): Set<string> {
  return new Set((connection ?? '').split(',').map((name) => name.trim().toLowerCase()))
}
