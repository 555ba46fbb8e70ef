/** What goes wrong between a controller and its API server, request by request and event by event; each is named by what it does. */
import type { Api } from '../servers/kube/api.ts'
import type { Fate, Proxy, Telling } from '../servers/kube/proxy.ts'

/** Requests of one sort are alike to the server; those of one `kind` ask the same of the same object. */
export type Asked = { sort: 'list' | 'next page' | 'watch' | 'get' | 'post' | 'put' | 'patch' | 'status' | 'delete'; kind: string; path: string; isWrite: boolean }

export type Trouble = {
  fate?: (asked: Asked) => Fate | Promise<Fate>
  tells?: (event: string) => Telling
  /** What must have been struck, or the test has shown nothing. */
  strikes: (Asked['sort'] | 'event' | 'cut' | 'unanswered' | 'halved')[]
  /** What the server itself must have answered, as `METHOD status`, for the same reason. */
  answers?: string[]
}

type Making = { api: Api; random: () => number }

/** `path` is without its query. */
function read(method: string, url: string, body: string): Asked {
  const [path = '', query = ''] = url.split('?')
  const { sort, name = '' } = sortOf(method, path, new URLSearchParams(query), body)
  return { sort, kind: `${sort} ${path} ${name}`, path, isWrite: method !== 'GET' }
}

function sortOf(method: string, path: string, query: URLSearchParams, body: string): { sort: Asked['sort']; name?: string } {
  if (method === 'POST') return { sort: 'post', name: JSON.parse(body).metadata.name }
  if (method === 'PATCH') return { sort: path.endsWith('/status') ? 'status' : 'patch' }
  if (method === 'PUT' || method === 'DELETE') return { sort: method === 'PUT' ? 'put' : 'delete' }
  if (query.has('watch')) return { sort: 'watch' }
  return { sort: query.has('continue') ? 'next page' : query.has('limit') ? 'list' : 'get' }
}

/** After so many of a kind nothing is struck any more, so that nobody whose requests fall in step with the turns fails for ever. */
const LAST_TURN = 10

/** Tells the first, the third and so on of each kind from the others. */
function openTurns(): (kind: string) => boolean {
  const counts = new Map<string, number>()
  return (kind) => {
    const count = (counts.get(kind) ?? 0) + 1
    counts.set(kind, count)
    return count % 2 === 1 && count < LAST_TURN
  }
}

const FAILED = { status: 500, reason: 'InternalError' }
const CONFLICT = { status: 409, reason: 'Conflict' }
const EXPIRED = { status: 410, reason: 'Expired' }

export const TROUBLES: Record<string, (making: Making) => Trouble> = {
  'a conflict at the first try of every write of every object'() {
    const isTurn = openTurns()
    return { fate: ({ isWrite, kind }) => (isWrite && isTurn(kind) ? CONFLICT : 'passes'), strikes: ['post', 'put', 'patch', 'status', 'delete'] }
  },
  'somebody who writes to every object just before we do'({ api }) {
    const isTurn = openTurns()
    let writes = 0
    return {
      async fate({ sort, kind, path }): Promise<Fate> {
        const touch = { metadata: { annotations: { touched: `${++writes}` } } }
        // A status is applied whatever else changed, and what is made or deleted has no version to be wrong about.
        if ((sort === 'put' || sort === 'patch') && isTurn(kind)) await api.request('PATCH', path, touch, 'application/merge-patch+json')
        return 'passes'
      },
      strikes: [],
      answers: ['PUT 409', 'PATCH 409'],
    }
  },
  'a server that does every write and does not say so at the first time'() {
    const isTurn = openTurns()
    return { fate: ({ isWrite, kind }) => (isWrite && isTurn(kind) ? 'unanswered' : 'passes'), strikes: ['post', 'put', 'patch', 'status', 'delete'] }
  },
  'a server that fails whatever it is asked at the first time, lists and their pages included'() {
    const isTurn = openTurns()
    return { fate: ({ kind }) => (isTurn(kind) ? FAILED : 'passes'), strikes: ['list', 'next page', 'watch', 'get', 'post', 'put', 'patch', 'status', 'delete'] }
  },
  'a server that forgets where a watch was, and then fails in the list and amid its pages'() {
    const isTurn = openTurns()
    const fates: Partial<Record<Asked['sort'], (isFirst: boolean) => Fate>> = {
      'watch': (isFirst) => (isFirst ? 'passes' : EXPIRED),
      'list': (isFirst) => (isFirst ? FAILED : 'passes'),
      'next page': (isFirst) => (isFirst ? EXPIRED : 'passes'),
    }
    return { fate: ({ sort, kind }) => fates[sort]?.(isTurn(kind)) ?? 'passes', strikes: ['watch', 'list', 'next page'] }
  },
  'connections that are cut off at random, before the server was asked, after it has done it, and amid its answer'({ random }) {
    const fates = ['cut', 'unanswered', 'halved'] as const
    return { fate: () => fates[Math.floor(random() * 3 * fates.length)] ?? 'passes', strikes: ['cut', 'unanswered', 'halved'] }
  },
  'open watches that break off or end at random, also amid an event'({ random }) {
    return { tells: (event) => random() > 0.4 || { bytes: Math.floor(random() * (event.length + 2)), isBroken: random() < 0.5 }, strikes: ['event'] }
  },
}

/** Lets the trouble loose on what passes the proxy. Returns what it has struck so far, and how. */
export function trouble(proxy: Proxy, { fate, tells }: Trouble): () => Set<string> {
  const struck = new Set<string>()
  if (fate) {
    proxy.fate = async (method, url, body) => {
      const asked = read(method, url, body)
      const wanted = await fate(asked)
      // A watch has no answer of which half could arrive.
      const decided = wanted === 'halved' && asked.sort === 'watch' ? 'unanswered' : wanted
      if (decided !== 'passes') struck.add(asked.sort)
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
