/** The only caller of `/dashboard/api`. */
import { signal } from '@preact/signals'
import { setClock } from '../clock.ts'

const API = '/dashboard/api'
/** A read that takes longer has lost its connection. */
const READ_MS = 30_000
/** Proves that same-origin script made a request that changes something. */
const CSRF_HEADER = { 'x-tollgate-csrf': '1' }

/** A refusal of the server (RFC 9457), or a failure to reach it: `code` is then `unreachable`. */
export class Problem extends Error {
  readonly status: number
  readonly code: string
  readonly members: Record<string, unknown>

  constructor(status: number, code: string, message: string, members: Record<string, unknown> = {}) {
    super(message)
    this.status = status
    this.code = code
    this.members = members
  }
}

/** How to sign in again, once the server no longer knows the session. */
export const signedOut = signal<{ reason: 'expired' | 'left' } | null>(null)

/**
 * The tenant that the page shows. Requests name it, and are refused once another tab has switched: nothing of one tenant appears or changes
 * under the name of another.
 */
export const shownTenant = signal<string | null>(null)

/** How many requests were refused because the session acts for another tenant. */
export const tenantRefusals = signal(0)

/** Headers of every request of the page. */
export function pageHeaders(method: string): Record<string, string> {
  const tenant = shownTenant.peek()
  return { ...(method === 'GET' ? {} : CSRF_HEADER), ...(tenant === null ? {} : { 'x-tollgate-tenant': tenant }) }
}

/** Why the page may show what it has read before; null while the server answers. */
export const outage = signal<'unreachable' | 'unavailable' | null>(null)

export type Query = Record<string, string | number | boolean | undefined>
export type Options = {
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  body?: unknown
  query?: Query
  headers?: Record<string, string>
  signal?: AbortSignal
}

/** The address of an API path, for links and streams. */
export function apiUrl(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(
    (entry): entry is [string, string | number | boolean] => entry[1] !== undefined && entry[1] !== '',
  )
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return `${API}${path}${search === '' ? '' : `?${search}`}`
}

/** The address of a file to download, which names the tenant of the page in place of the header. */
export function downloadUrl(path: string, query: Query): string {
  return apiUrl(path, { ...query, tenant: shownTenant.value ?? '' })
}

/** Calls the API and returns its JSON; `undefined` for 204. Throws a `Problem`. */
export async function api<Answer>(path: string, { method = 'GET', body, query, headers, signal: abort }: Options = {}): Promise<Answer> {
  const init: RequestInit = {
    method,
    headers: {
      accept: 'application/json',
      ...pageHeaders(method),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
  }
  if (body !== undefined) init.body = JSON.stringify(body)
  if (method === 'GET') init.signal = AbortSignal.any([...(abort ? [abort] : []), AbortSignal.timeout(READ_MS)])
  else if (abort) init.signal = abort
  let response: Response
  try {
    response = await fetch(apiUrl(path, query), init)
  } catch (error) {
    if (abort?.aborted) throw error
    outage.value = 'unreachable'
    throw new Problem(0, 'unreachable', 'The service does not answer. The page tries again by itself.')
  }
  setClock(response.headers.get('date'))
  outage.value = response.status === 503 ? 'unavailable' : null
  if (response.ok) return (response.status === 204 ? undefined : await response.json()) as Answer
  throw await problemOf(response)
}

/** The problem that a response carries. A missing session also shows the signed-out page. */
async function problemOf(response: Response): Promise<Problem> {
  const members = ((await response.json().catch(() => null)) ?? {}) as Record<string, unknown>
  const text = (name: string): string | null => (typeof members[name] === 'string' ? members[name] : null)
  const { code = null } = (members['error'] ?? {}) as { code?: string }
  if (response.status === 401) signedOut.value ??= { reason: 'expired' }
  if (code === 'tenant_changed') tenantRefusals.value++
  return new Problem(
    response.status,
    code ?? text('code') ?? 'internal',
    text('detail') ?? text('title') ?? `The server answered with status ${response.status}.`,
    members,
  )
}
