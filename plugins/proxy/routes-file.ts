/** Schema and validation of the PROXY_ROUTES file: pass-through routes behind a key and a plan (`docs/proxy.md`). YAML or JSON. */
import { Type, type Static } from 'typebox'
import { headerFault } from '../../src/http/header-fields.ts'
import { parseMoney } from '../../src/domain/money.ts'
import { apiOf, type Api } from '../../src/domain/plans.ts'
import { parseSettingsFile } from '../../src/domain/settings-file.ts'
import { MOST_PENDING_MS } from '../../src/tasks/flat-charge.ts'
import { OURS } from './headers.ts'

const strict = { additionalProperties: false }
const PATH = '^(/[A-Za-z0-9._~-]+)+$'

const ROUTE = Type.Object(
  {
    prefix: Type.String({ pattern: PATH, maxLength: 200, description: 'The path that clients use, with everything below it.' }),
    upstream: Type.String({ maxLength: 2048, description: 'The origin of the service: http or https, host and port.' }),
    product: Type.Enum(['Media', 'Coding'], { description: 'The product whose keys are admitted; Media includes keys of Room plans.' }),
    plans: Type.Optional(
      Type.Array(Type.String({ pattern: '^[a-z0-9-]+/[a-z0-9.-]+$' }), {
        minItems: 1,
        maxItems: 1000,
        description: 'The only plans that are admitted, as namespace/name; all plans of the product when absent.',
      }),
    ),
    tokensPerRequest: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 1_000_000_000, description: 'With Coding: the tokens that a request is charged.' }),
    ),
    amountPerRequest: Type.Optional(Type.String({ description: 'With Media: the money that a request is charged, a decimal string.' })),
    rewritePrefix: Type.String({
      pattern: `^/$|${PATH}`,
      maxLength: 200,
      default: '/',
      description: 'What replaces the prefix in the path that the service gets.',
    }),
    timeoutMs: Type.Integer({
      minimum: 1,
      maximum: MOST_PENDING_MS,
      default: 60_000,
      description: 'The time until the answer begins, the longest silence within it, and the longest silence of a WebSocket.',
    }),
    maxBodyBytes: Type.Integer({ minimum: 0, maximum: 1024 ** 3, default: 10 * 1024 ** 2, description: 'The largest body of a request.' }),
    websocket: Type.Boolean({ default: false, description: 'Whether WebSocket is admitted.' }),
    headers: Type.Record(Type.String(), Type.String(), {
      default: {},
      description: 'Headers for the service, such as its own credentials.',
    }),
  },
  strict,
)

/** The PROXY_ROUTES file. Members with a default may be left out. */
export const ProxyRoutesFile = Type.Object({ routes: Type.Array(ROUTE, { maxItems: 1000 }) }, strict)

/** What a request is charged: tokens of both windows, or micro-units. */
export type Price = { api: 'coding'; tokens: number } | { api: 'media'; micro: number }

/** One route of the file. `upstream` is an origin, `rewritePrefix` has no trailing slash. */
export type ProxyRoute = Pick<
  Static<typeof ROUTE>,
  'prefix' | 'upstream' | 'rewritePrefix' | 'timeoutMs' | 'maxBodyBytes' | 'websocket' | 'headers'
> & {
  api: Api
  price: Price
  /** Ids of subscriptions; null for all of the product. */
  plans: ReadonlySet<string> | null
}

/** Parses the text of the file. `served` are the first segments of Tollgate's own paths, which no prefix may use. Throws a `SettingsFileError`. */
export function parseProxyRoutes(file: string, text: string, served: ReadonlySet<string>): ProxyRoute[] {
  const { value, fail: failAt } = parseSettingsFile('PROXY_ROUTES', file, ProxyRoutesFile, text)
  const { routes } = value
  return routes.map((route, index) => {
    const fail = (member: string, problem: string) => failAt(['routes', index, member], problem)
    const [, first = ''] = route.prefix.split('/')
    if (served.has(first)) fail('prefix', `collides with /${first}, which Tollgate serves itself`)
    if (route.prefix.split('/').some(isDots)) fail('prefix', 'must not contain dot segments')
    if (route.rewritePrefix.split('/').some(isDots)) fail('rewritePrefix', 'must not contain dot segments')
    if (routes.findIndex(({ prefix }) => prefix === route.prefix) !== index) fail('prefix', 'must be unique')
    const origin = originOf(route.upstream) ?? fail('upstream', 'must be an http or https address without user, path, query or fragment')
    const fault = headerFault(route.headers, OURS)
    if (fault) fail('headers', fault)
    const { plans, product, tokensPerRequest: _tokens, amountPerRequest: _amount, ...rest } = route
    return {
      ...rest,
      upstream: origin,
      rewritePrefix: route.rewritePrefix === '/' ? '' : route.rewritePrefix,
      api: apiOf(product),
      price: priceOf(route, fail),
      plans: plans ? new Set(plans) : null,
    }
  })
}

function priceOf(
  { product, tokensPerRequest, amountPerRequest }: Static<typeof ROUTE>,
  fail: (member: string, problem: string) => never,
): Price {
  if (product === 'Coding') {
    if (amountPerRequest !== undefined) fail('amountPerRequest', 'belongs to the product Media; Coding has tokensPerRequest')
    return { api: 'coding', tokens: tokensPerRequest ?? fail('tokensPerRequest', 'is missing') }
  }
  if (tokensPerRequest !== undefined) fail('tokensPerRequest', 'belongs to the product Coding; Media has amountPerRequest')
  const micro = parseMoney(amountPerRequest ?? fail('amountPerRequest', 'is missing'))
  return { api: 'media', micro: micro ?? fail('amountPerRequest', 'must be a decimal string with at most six decimals, such as "0.01"') }
}

const isDots = (segment: string) => segment === '.' || segment === '..'

function originOf(text: string): string | null {
  const url = URL.parse(text)
  const isOrigin =
    url && ['http:', 'https:'].includes(url.protocol) && url.pathname === '/' && !url.search && !url.hash && !url.username && !url.password
  return isOrigin ? url.origin : null
}
