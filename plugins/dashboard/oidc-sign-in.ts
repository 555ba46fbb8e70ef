/**
 * Sign-in of the mode `oidc`: `/dashboard/sign-in` and `/dashboard/callback`. What belongs to one sign-in is in a sealed cookie of the
 * browser that began it, so that any replica completes it.
 */
import { randomBytes } from 'node:crypto'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { overLimit } from '../../src/domain/errors.ts'
import type { Limit } from '../../src/domain/limits.ts'
import { open, seal } from '../../src/domain/api-keys.ts'
import { openRates } from '../../src/domain/rate-limit.ts'
import { secretOf, sessionHash, tenantsIn } from '../../src/domain/sessions.ts'
import { NAMES, openOidcClient, SignInRefused, type Claims, type SignInSecrets } from './oidc-client.ts'
import { returnPath } from './return-path.ts'
import { cookieFor, readCookie, setCookie } from './session-cookie.ts'
import type { EndSession } from './session-routes.ts'
import { sendPage, SIGN_IN_AGAIN } from './sign-in-page.ts'
import type { Sessions } from './sessions.ts'

const SIGN_IN_MS = 10 * 60_000
/** What the sealed cookie is bound to: a text that was sealed for anything else does not open as one. */
const PURPOSE = 'dashboard sign-in'
const MAX_NAME = 100
/** Of one address, without a session: behind each are two writes of the store and a request to the provider. */
const CALLBACKS_PER_MINUTE = 120
const MAX_ADDRESSES = 10_000
/** Callbacks of all addresses that wait for the provider together. */
const MAX_WAITING = 16

type SignIn = SignInSecrets & { returnTo: string; expiresAt: number }

/** Registers the sign-in. Returns the function that ends the session at the provider. */
export function openOidcSignIn(app: FastifyInstance, sessions: Sessions): EndSession {
  const { config } = app
  const client = openOidcClient({ ...config, issuer: config.OIDC_ISSUER ?? '' })
  const count = openRates('sign_ins', CALLBACKS_PER_MINUTE, MAX_ADDRESSES)
  let waiting = 0
  const callback = () => `${app.publicUrl()}/dashboard/callback`
  const cookie = () => cookieFor(app.publicUrl(), 'tollgate_sign_in', '/dashboard/callback')
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()

  routes.get(
    '/sign-in',
    { exposeHeadRoute: false, schema: { querystring: Type.Object({ return: Type.Optional(Type.String()) }) } },
    async (request, reply) => {
      const [state, nonce, verifier] = [secretOf(randomBytes(32)), secretOf(randomBytes(32)), secretOf(randomBytes(32))]
      const signIn: SignIn = { state, nonce, verifier, returnTo: returnPath(request.query.return), expiresAt: app.clock() + SIGN_IN_MS }
      return answered(request, reply, async () => {
        const url = await client.authorizationUrl(callback(), signIn)
        setCookie(reply, cookie(), seal(JSON.stringify(signIn), PURPOSE, app.derivedKeys.signIns, randomBytes(12)), SIGN_IN_MS)
        return reply.header('cache-control', 'no-store').redirect(url, 302)
      })
    },
  )

  app.get('/callback', { exposeHeadRoute: false }, async (request, reply) => {
    return answered(request, reply, async () => {
      count(request.ip, app.clock())
      const signIn = begun(request)
      setCookie(reply, cookie(), '', 0)
      const claims = signIn && (await claimsOf(request, signIn))
      if (!signIn || !claims) {
        throw new SignInRefused('The sign-in was not begun in this browser, took longer than ten minutes, or was completed before.')
      }
      const tenants = tenantsIn(claims[config.OIDC_TENANT_CLAIM] ?? [])
      const [tenant] = tenants ?? []
      if (tenants === null || tenant === undefined) {
        request.log.warn(
          { event: 'sign_in_without_tenant', claim: config.OIDC_TENANT_CLAIM, isList: tenants !== null, user: claims.sub },
          'sign-in refused: no tenant in the claim',
        )
        throw new SignInRefused('Your account has no tenant here. Whoever manages the sign-in provider can give it one.')
      }
      await sessions.open(request, reply, { user: { id: claims.sub, name: nameOf(claims) }, tenants, tenant })
      request.log.info({ event: 'signed_in', user: claims.sub, tenant }, 'signed in')
      return reply.header('cache-control', 'no-store').redirect(signIn.returnTo, 303)
    })
  })

  /** The claims about the person whose sign-in `request` completes; null where it was completed before. */
  async function claimsOf(request: FastifyRequest, signIn: SignIn): Promise<Claims | null> {
    if (waiting >= MAX_WAITING) throw overLimit('waiting_sign_ins', { retryAfterSeconds: 5 })
    waiting++
    try {
      if (!(await app.store.useOnce(sessionHash(signIn.state), signIn.expiresAt, app.clock()))) return null
      const address = new URL(callback())
      address.search = new URL(request.url, address).search
      return await client.claims(address, signIn)
    } finally {
      waiting--
    }
  }

  function begun(request: FastifyRequest): SignIn | null {
    const text = open(readCookie(request, cookie().name), PURPOSE, app.derivedKeys.signIns)
    const signIn = text === null ? null : (JSON.parse(text) as SignIn)
    return signIn && signIn.expiresAt > app.clock() ? signIn : null
  }

  return () => client.endSessionUrl(`${app.publicUrl()}/dashboard/`)
}

/** What a person reads of a limit. */
const CAUSES: Partial<Record<Limit, string>> = {
  sign_ins: 'Too many sign-ins come from your network address.',
  waiting_sign_ins: 'Too many people sign in at once.',
  backend: 'The sign-in provider does not answer. API keys work as before.',
}

/** Answers with a page where a limit, the provider or the store refuses. */
async function answered(request: FastifyRequest, reply: FastifyReply, work: () => Promise<FastifyReply>): Promise<FastifyReply> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof SignInRefused) {
      request.log.info(
        { event: 'sign_in_refused', reason: error.message, cause: (error.cause as { code?: unknown } | undefined)?.code },
        'sign-in refused',
      )
      return sendPage(reply, 403, { title: 'You are not signed in', sentence: error.message, link: SIGN_IN_AGAIN })
    }
    const { code, status, facts } = request.server.errors.of(error)
    const { limit, retryAfterSeconds, cause } = facts
    if (!limit) throw error
    request.failed = { code, limit }
    if (cause) request.log.error({ event: 'sign_in_unavailable', err: cause }, 'sign-in unavailable')
    reply.headers({ 'retry-after': String(retryAfterSeconds), [`x-${request.server.config.BRAND.toLowerCase()}-limit`]: limit })
    return sendPage(reply, status, {
      title: 'Sign-in is not available at the moment',
      sentence: `${CAUSES[limit] ?? 'The service is not available.'} Try again in a moment.`,
      link: SIGN_IN_AGAIN,
    })
  }
}

/** A name to show. */
function nameOf(claims: Claims): string {
  const name = NAMES.map((claim) => claims[claim]).find((one) => typeof one === 'string' && one !== '')
  return String(name ?? claims.sub).slice(0, MAX_NAME)
}
