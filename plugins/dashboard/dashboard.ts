/**
 * The dashboard at `/dashboard` (`docs/dashboard.md`): sign-in, and the HTTP interface of its pages under `/dashboard/api`. It lies outside
 * key authentication: a session takes the place of the API key. Mode `off` registers nothing.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { dashboardMode } from '../../src/config/dashboard-mode.ts'
import { Failure } from '../../src/domain/errors.ts'
import { openRates } from '../../src/domain/rate-limit.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { refuseForgedRequests } from './csrf.ts'
import { keyRoutes } from './key-routes.ts'
import { openLocalSignIn } from './local-sign-in.ts'
import { pageRoutes } from './page.ts'
import { planRoutes } from './plans.ts'
import { requestListRoute } from './request-list.ts'
import { roomRoutes, type RoomOptions } from './ai-room-routes.ts'
import { securityHeaders } from './security-headers.ts'
import { sessionRoutes, type EndSession } from './session-routes.ts'
import { openSessions, sessionOf, type SessionRequest } from './sessions.ts'
import { refuseOtherTenants } from './shown-tenant.ts'
import { iconRoute, styleRoute } from './sign-in-page.ts'
import { usageRoutes } from './usage-routes.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** The address at which clients reach this process. */
    publicUrl: () => string
    /** The one-time sign-in link of the mode `local` that is valid now; null in other modes. */
    signInLink: () => string | null
  }
  interface FastifyRequest {
    /** The session of a request to `/dashboard/api`; null elsewhere. */
    session: SessionRequest | null
  }
}

const BODY_BYTES = 16 * 1024
/** Of the account's routes, per session and replica: some ask the API server of Kubernetes. */
const REQUESTS_PER_MINUTE = 600
const MAX_SESSIONS = 10_000

export type DashboardOptions = Pick<RoomOptions, 'mediaRoutes'>

async function dashboard(app: FastifyInstance, { mediaRoutes }: DashboardOptions): Promise<void> {
  const mode = dashboardMode(app.config)
  app.decorateRequest('session', null)
  let signInLink: () => string | null = () => null
  app.decorate('signInLink', () => signInLink())
  if (mode === 'off') return
  const sessions = openSessions(app, mode)
  const count = openRates('session_requests', REQUESTS_PER_MINUTE, MAX_SESSIONS)
  // For a person who types the address of the service. To a program there is nothing here.
  app.get('/', { exposeHeadRoute: false }, async (request, reply) => {
    if (!(request.headers.accept ?? '').includes('text/html')) throw new Failure('not_found')
    return reply.headers({ 'cache-control': 'no-store', vary: 'accept' }).redirect('/dashboard/', 302)
  })
  iconRoute(app)
  await app.register(
    async (pages) => {
      securityHeaders(pages, mode)
      styleRoute(pages)
      let endSession: EndSession = async () => null
      await pageRoutes(pages)
      if (mode === 'local') signInLink = openLocalSignIn(pages, sessions)
      else endSession = (await import('./oidc-sign-in.ts')).openOidcSignIn(pages, sessions)
      await pages.register(
        async (api) => {
          // Every failure of the interface has the problem form (RFC 9457).
          api.addHook('onRoute', (route) => void (route.config = { ...route.config, problem: true }))
          api.addHook('onRequest', async (request, reply) => {
            reply.header('cache-control', 'no-store')
            refuseForgedRequests(app, request)
            request.session = await sessions.of(request)
            request.log.setBindings({ tenant: request.session.session.tenant })
          })
          api.setValidatorCompiler(strictValidator)
          app.errors.own(api, { problem: true })
          await api.register(async (account) => {
            account.addHook('onRoute', (route) => void (route.bodyLimit ??= BODY_BYTES))
            account.addHook('onRequest', async (request) => count(sessionOf(request).session.id, app.clock()))
            sessionRoutes(account, sessions, mode, endSession)
            await account.register(async (tenant) => {
              refuseOtherTenants(tenant)
              planRoutes(tenant)
              keyRoutes(tenant)
              usageRoutes(tenant)
              requestListRoute(tenant)
            })
          })
          await api.register(roomRoutes, { mediaRoutes, explains: mode === 'local' })
        },
        { prefix: '/api' },
      )
    },
    { prefix: '/dashboard' },
  )
}

export default fp(dashboard, {
  name: 'dashboard',
  fastify: '5.x',
  dependencies: ['errors'],
  decorators: { fastify: ['clock', 'config', 'derivedKeys', 'engines', 'errors', 'publicUrl', 'store', 'tasks'], request: ['failed'] },
})
