/**
 * Sessions of the dashboard: opened at sign-in under a new id, found by the cookie of a request, ended at sign-out. They are in the store:
 * any replica serves them.
 */
import { randomBytes } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { DashboardMode } from '../../src/config/dashboard-mode.ts'
import { Failure } from '../../src/domain/errors.ts'
import { secretOf, SESSION_MS, sessionHash, type Session } from '../../src/domain/sessions.ts'
import { idsOf, type Store } from '../../src/backends/store/store.ts'
import { cookieFor, readCookie, setCookie } from './session-cookie.ts'

const SECRET = /^[A-Za-z0-9_-]{43}$/
const MAX_TENANTS = 500

/** `tenant` is the one that every read and write of the request is for. */
export type SessionRequest = { session: Session; tenant: string }

export type Sessions = {
  /** The session of the request's cookie. Throws `not_signed_in`. */
  of(request: FastifyRequest): Promise<SessionRequest>
  /** Opens a session under a new id and ends the one that the browser had before: an id that somebody planted there is worth nothing. */
  open(request: FastifyRequest, reply: FastifyReply, person: Pick<Session, 'user' | 'tenants' | 'tenant'>): Promise<void>
  end(request: FastifyRequest, reply: FastifyReply): Promise<void>
  /** The tenants that a person may act for. */
  tenants(session: Session): Promise<string[]>
}

export function openSessions(app: FastifyInstance, mode: Exclude<DashboardMode, 'off'>): Sessions {
  const cookie = () => cookieFor(app.publicUrl(), 'tollgate_session', '/dashboard')

  function idOf(request: FastifyRequest): string | null {
    const secret = readCookie(request, cookie().name)
    return secret !== null && SECRET.test(secret) ? sessionHash(secret) : null
  }

  return {
    async of(request) {
      const id = idOf(request)
      const session = id === null ? null : await app.store.session(id)
      // A session of another mode has rights that this mode does not give.
      if (!session || session.expiresAt <= app.clock() || session.signIn !== mode) throw new Failure('not_signed_in')
      return { session, tenant: session.tenant }
    },
    async open(request, reply, person) {
      const before = idOf(request)
      if (before !== null) await app.store.endSession(before)
      const secret = secretOf(randomBytes(32))
      const now = app.clock()
      await app.store.openSession({ ...person, id: sessionHash(secret), signIn: mode, createdAt: now, expiresAt: now + SESSION_MS }, now)
      setCookie(reply, cookie(), secret, SESSION_MS)
    },
    async end(request, reply) {
      const id = idOf(request)
      if (id !== null) await app.store.endSession(id)
      setCookie(reply, cookie(), '', 0)
      // What the browser kept of the pages, should anything have been stored against no-store.
      reply.header('clear-site-data', '"cache"')
    },
    tenants: async ({ tenants }) => tenants ?? allTenants(app.store),
  }
}

/** Every tenant with a plan, in alphabetical order. */
export async function allTenants(store: Store): Promise<string[]> {
  const found: string[] = []
  for (let after = ''; found.length < MAX_TENANTS;) {
    const [record] = await store.subscriptionsWith('plan', after, 1)
    if (!record) break
    found.push(record.tenant)
    after = idsOf(record.tenant)[1]
  }
  return found
}

/** The session of a request to `/dashboard/api`. */
export function sessionOf({ session }: FastifyRequest): SessionRequest {
  if (!session) throw new Failure('not_signed_in')
  return session
}
