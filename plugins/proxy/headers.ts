/** Headers of pass-through requests and answers: hop-by-hop headers end here (RFC 9110, section 7.6.1), and so do credentials and what names the service. */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { hasKey, keyOf } from './client-key.ts'
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
/** Names, and beginnings of names, in which proxies tell a service who asks and for what. Only this gateway tells it. */
const CLAIMS = new RegExp(
  `^(${[
    '(forwarded|via|client-ip|(true|fastly|x|x-cluster)-client-ip)$',
    '(x-)?(remote|ssl|tailscale|impersonate|consumer)-',
    '(x-)?client-(cert|dn|verify)',
    'x-(forwarded|real|original|rewrite|auth-request|authenticated|webauth|envoy|pomerium|authentik|vouch)-',
    'cf-',
    'x-amzn-(oidc|mtls)-',
    'x-goog-(authenticated|iap)-',
    'x-ms-client-principal',
    'x-(anonymous-consumer|credential-identifier|userinfo|arr-clientcert)$',
    'x-(endpoint-api|apigateway-api)-userinfo',
  ].join('|')})`,
)

const NOT_SENT = new Set([...HOP_BY_HOP, ...CREDENTIALS])

/** Headers that HTTP or the gateway sets; the file may not. Credentials it may, and those that name a person. */
export const OURS: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'forwarded',
  'via',
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-forwarded-host',
  'x-forwarded-prefix',
  'host',
  'content-length',
  'content-type',
  'x-request-id',
])

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
  // A client that reads it asks the service itself.
  'refresh',
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
  const key = keyOf(request)
  const { caller, ip, protocol, host } = request
  const set: Record<string, string> = {
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
  const ours = new Set(Object.keys(set).map(asRead))
  const passed = Object.entries(headers).filter(([name, value]) => {
    const read = asRead(name)
    const isOurs = ours.has(read) || NOT_SENT.has(read) || CLAIMS.test(read) || read.startsWith(`x-${brand}-`)
    return !isOurs && !isReplaced(read) && !named.has(name) && !hasKey(String(value), key)
  }) as [string, string][]
  return { ...Object.fromEntries(passed), ...set }
}

/** A name as CGI and its like read it: to them, X_SVC_Tenant and X.SVC.Tenant are X-SVC-Tenant. */
function asRead(name: string): string {
  return name.replaceAll(/[_.]/g, '-')
}

/**
 * The headers that the client gets. A location or link within the service leads back through the gateway. One that names the service in any
 * other way is dropped: another path, port or scheme of it, or several locations, of which clients choose different ones.
 */
export function answerHeaders(headers: IncomingHttpHeaders, route: ProxyRoute, brand: string): IncomingHttpHeaders {
  const named = connectionTokens(headers.connection)
  const kept: IncomingHttpHeaders = {}
  for (const [name, value] of Object.entries(headers)) {
    const read = asRead(name)
    if (NOT_ANSWERED.has(read) || WINDOWS.test(read) || read.startsWith(`x-${brand}-`) || named.has(name)) continue
    const rewritten = REWRITTEN[name]
    const sent = rewritten && value !== undefined ? rewritten(value, route) : value
    if (sent !== null) kept[name] = sent
  }
  return kept
}

const REWRITTEN: Record<string, (value: string | string[], route: ProxyRoute) => string | null> = {
  location: (value, route) => (typeof value === 'string' ? ownLocation(value, route) : null),
  'content-location': (value, route) => (typeof value === 'string' ? ownLocation(value, route) : null),
  link: ownLinks,
}

/** Of a header `Link` (RFC 8288, section 3). */
function ownLinks(value: string | string[], route: ProxyRoute): string | null {
  let isDropped = false
  const links = String(Array.isArray(value) ? value.join(', ') : value).replaceAll(
    /<([^>]*)>|(;\s*anchor\s*=\s*)("?)([^";,]*)\3|"(?:[^"\\]|\\.)*"/gi,
    (whole: string, target?: string, name?: string, quote?: string, anchor?: string) => {
      const place = target ?? anchor
      if (place === undefined) return whole
      const own = ownLocation(place, route)
      if (own === null) isDropped = true
      return name === undefined ? `<${own}>` : `${name}${quote}${own}${quote}`
    },
  )
  return isDropped ? null : links
}

function ownLocation(location: string, { upstream, prefix, rewritePrefix }: ProxyRoute): string | null {
  const url = URL.parse(location, upstream)
  if (!url) return null
  // A relative path keeps its meaning, because both sides have the same path below the prefix. Clients leave these characters out.
  if (!/^([a-z][a-z0-9+.-]*:|[/\\])/i.test(location.replaceAll(/[\t\r\n]/g, ''))) return location
  const service = new URL(upstream)
  if (url.hostname.replace(/\.$/, '') !== service.hostname.replace(/\.$/, '')) return location
  if (url.protocol !== service.protocol || url.port !== service.port) return null
  if (url.pathname !== rewritePrefix && !url.pathname.startsWith(`${rewritePrefix}/`)) return null
  return `${prefix}${url.pathname.slice(rewritePrefix.length)}${url.search}${url.hash}`
}

function connectionTokens(connection: string | undefined): Set<string> {
  return new Set((connection ?? '').split(',').map((name) => name.trim().toLowerCase()))
}
