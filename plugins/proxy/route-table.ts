/** Finds the pass-through route of a request by its decoded path. Pure. */
import type { ProxyRoute } from './routes-file.ts'

/** `path` is what the service gets. Null: the path is one that two servers may read differently, so it is refused. */
export type Match = { route: ProxyRoute; path: string | null }

export type RouteTable = (url: string) => Match | null

/** `url` is a request target: a path and a query. */
export function routeTable(routes: readonly ProxyRoute[]): RouteTable {
  const byLength = routes
    .map((route) => ({ route, segments: route.prefix.split('/') }))
    .sort((a, b) => b.segments.length - a.segments.length)
  return (url) => {
    const [path = '', ...query] = url.split('?')
    // Prefixes are compared decoded: otherwise %61 for an a would lead around a longer prefix with fewer plans.
    const raw = path.split('/')
    const decoded = raw.map(decode)
    const found = byLength.find(({ segments }) => segments.every((segment, i) => segment === decoded[i]))
    if (!found) return null
    const { route, segments } = found
    if (decoded.includes(null) || !isPlain(path, decoded)) return { route, path: null }
    const rest = raw.slice(segments.length).join('/')
    const below = raw.length > segments.length ? `${route.rewritePrefix}/${rest}` : route.rewritePrefix || '/'
    return { route, path: query.length > 0 ? `${below}?${query.join('?')}` : below }
  }
}

function decode(segment: string): string | null {
  try {
    return decodeURIComponent(segment)
  } catch {
    return null
  }
}

/** No dot segments, empty segments, backslashes, control characters, or encoded separators. */
function isPlain(path: string, decoded: (string | null)[]): boolean {
  // oxlint-disable-next-line no-control-regex
  if (path.includes('//') || /[\\\u0000-\u0020\u007f]/.test(path)) return false
  // oxlint-disable-next-line no-control-regex
  return decoded.every((segment) => segment !== '.' && segment !== '..' && !/[/\\\u0000-\u001f\u007f]/.test(segment ?? ''))
}
