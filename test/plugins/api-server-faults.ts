/** Faults between a controller and its API server, injected per request and per watch event. */
import type { Api } from '../servers/kube/api.ts'
import type { Fate, Proxy, Telling } from '../servers/kube/proxy.ts'

/** A request. Requests of one `kind` are the same operation on the same object. */
export type ApiRequest = { sort: 'list' | 'next page' | 'watch' | 'get' | 'post' | 'put' | 'patch' | 'status' | 'delete'; kind: string; path: string; isWrite: boolean }

export type ApiFault = {
  fate?: (request: ApiRequest) => Fate | Promise<Fate>
  tells?: (event: string) => Telling
  /** The sorts of requests that the fault must have hit, or the test proves nothing. */
  strikes: (ApiRequest['sort'] | 'event' | 'cut' | 'unanswered' | 'halved')[]
  /** Responses that the server must have sent, as `METHOD status`, for the same reason. */
  answers?: string[]
}

type Making = { api: Api; random: () => number }

/** `path` is without its query. */
function read(method: string, url: string, body: string): ApiRequest {
  const [path = '', query = ''] = url.split('?')
  const { sort, name = '' } = sortOf(method, path, new URLSearchParams(query), body)
  return { sort, kind: `${sort} ${path} ${name}`, path, isWrite: method !== 'GET' }
}

function sortOf(method: string, path: string, query: URLSearchParams, body: string): { sort: ApiRequest['sort']; name?: string } {
  if (method === 'POST') return { sort: 'post', name: JSON.parse(body).metadata.name }
  if (method === 'PATCH') return { sort: path.endsWith('/status') ? 'status' : 'patch' }
  if (method === 'PUT' || method === 'DELETE') return { sort: method === 'PUT' ? 'put' : 'delete' }
  if (query.has('watch')) return { sort: 'watch' }
  return { sort: query.has('continue') ? 'next page' : query.has('limit') ? 'list' : 'get' }
}

/** After so many requests of a kind none is hit any more, so that no client whose requests come in step with the alternation fails for ever. */
const MAX_STRUCK = 10

/** True for the first, the third and so on of each kind. */
function openAlternation(): (kind: string) => boolean {
  const counts = new Map<string, number>()
  return (kind) => {
    const count = (counts.get(kind) ?? 0) + 1
    counts.set(kind, count)
    return count % 2 === 1 && count < MAX_STRUCK
  }
}

const FAILED = { status: 500, reason: 'InternalError' }
const CONFLICT = { status: 409, reason: 'Conflict' }
const EXPIRED = { status: 410, reason: 'Expired' }

export const API_FAULTS: Record<string, (making: Making) => ApiFault> = {
  'a conflict on the first try of every write of every object'() {
    const isStruck = openAlternation()
    return { fate: ({ isWrite, kind }) => (isWrite && isStruck(kind) ? CONFLICT : 'passes'), strikes: ['post', 'put', 'patch', 'status', 'delete'] }
  },
  'another client that writes to every object just before the controller'({ api }) {
    const isStruck = openAlternation()
    let writes = 0
    return {
      async fate({ sort, kind, path }): Promise<Fate> {
        const touch = { metadata: { annotations: { touched: `${++writes}` } } }
        // Only these have a resource version: a status is applied by server-side apply, and creations and deletions have none.
        if ((sort === 'put' || sort === 'patch') && isStruck(kind)) await api.request('PATCH', path, touch, 'application/merge-patch+json')
        return 'passes'
      },
      strikes: [],
      answers: ['PUT 409', 'PATCH 409'],
    }
  },
  'a server that does every write and loses its first response'() {
    const isStruck = openAlternation()
    return { fate: ({ isWrite, kind }) => (isWrite && isStruck(kind) ? 'unanswered' : 'passes'), strikes: ['post', 'put', 'patch', 'status', 'delete'] }
  },
  'a server that fails the first try of every request, lists and their pages included'() {
    const isStruck = openAlternation()
    return { fate: ({ kind }) => (isStruck(kind) ? FAILED : 'passes'), strikes: ['list', 'next page', 'watch', 'get', 'post', 'put', 'patch', 'status', 'delete'] }
  },
  'a server that expires the version of a watch, then fails the list and its pages'() {
    const isStruck = openAlternation()
    const fates: Partial<Record<ApiRequest['sort'], (isFirst: boolean) => Fate>> = {
      'watch': (isFirst) => (isFirst ? 'passes' : EXPIRED),
      'list': (isFirst) => (isFirst ? FAILED : 'passes'),
      'next page': (isFirst) => (isFirst ? EXPIRED : 'passes'),
    }
    return { fate: ({ sort, kind }) => fates[sort]?.(isStruck(kind)) ?? 'passes', strikes: ['watch', 'list', 'next page'] }
  },
  'connections cut at random, before the request, before the response and within it'({ random }) {
    const fates = ['cut', 'unanswered', 'halved'] as const
    return { fate: () => fates[Math.floor(random() * 3 * fates.length)] ?? 'passes', strikes: ['cut', 'unanswered', 'halved'] }
  },
  'watches that break or end at random, also within an event'({ random }) {
    return { tells: (event) => random() > 0.4 || { bytes: Math.floor(random() * (event.length + 2)), isBroken: random() < 0.5 }, strikes: ['event'] }
  },
}

/** Injects the fault into the requests of the proxy. Returns the sorts of requests that it has hit so far, and how. */
export function inject(proxy: Proxy, { fate, tells }: ApiFault): () => Set<string> {
  const struck = new Set<string>()
  if (fate) {
    proxy.fate = async (method, url, body) => {
      const request = read(method, url, body)
      const wanted = await fate(request)
      // A watch has no response body that could be halved.
      const decided = wanted === 'halved' && request.sort === 'watch' ? 'unanswered' : wanted
      if (decided !== 'passes') struck.add(request.sort)
      if (typeof decided === 'string') struck.add(decided)
      return decided
    }
  }
  if (tells) {
    proxy.tells = (event) => {
      const telling = tells(event)
      if (telling !== true) struck.add('event')
      return telling
    }
  }
  return () => struck
}
