/**
 * Sign-in of the mode `local`: a one-time link, as notebook servers print it. It reaches this machine only, so whoever can read the
 * terminal is the operator.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { rename, rm, writeFile } from 'node:fs/promises'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { embeddedPaths } from '../../src/config/config.ts'
import { secretOf, sessionHash } from '../../src/domain/sessions.ts'
import { returnPath } from './return-path.ts'
import { cookieFor, readCookie, setCookie } from './session-cookie.ts'
import { sendPage } from './sign-in-page.ts'
import { allTenants, type Sessions } from './sessions.ts'

const USE_LINK =
  'Open the sign-in link that the program printed at its start. Each link works once, and then the program prints the next one. To see the present one, run `npx tollgate sign-in` in the folder of the program.'
/** How long the browser keeps the page to which the link shall lead. */
const RETURN_MS = 10 * 60_000
const QUERY = Type.Object({ token: Type.Optional(Type.String({ maxLength: 200 })), return: Type.Optional(Type.String()) })

/**
 * Registers the sign-in, and keeps the link in a file for `tollgate sign-in` while the program listens. Returns the function that gives the
 * link that is valid now.
 */
export function openLocalSignIn(app: FastifyInstance, sessions: Sessions): () => string {
  let secret = secretOf(randomBytes(32))
  const returnCookie = () => cookieFor(app.publicUrl(), 'tollgate_return', '/dashboard/sign-in')
  const link = () => `${app.publicUrl()}/dashboard/sign-in?token=${secret}`

  /** True once for each link: the next one takes its place before anything else happens. */
  function use(token: string): boolean {
    const isRight = timingSafeEqual(Buffer.from(sessionHash(token)), Buffer.from(sessionHash(secret)))
    if (isRight) secret = secretOf(randomBytes(32))
    return isRight
  }

  const file = embeddedPaths(app.config.DATA_DIR).signInLink

  /** Whoever can read DATA_DIR can read the store and its sealing key as well. */
  async function writeLink(): Promise<void> {
    try {
      await writeFile(`${file}.new`, `${link()}\n`, { mode: 0o600 })
      await rename(`${file}.new`, file)
    } catch (err) {
      app.log.warn({ event: 'sign_in_link_unwritten', err }, 'sign-in link cannot be written to DATA_DIR')
    }
  }

  app.addHook('onListen', writeLink)
  app.addHook('onClose', () => rm(file, { force: true }))
  app
    .withTypeProvider<TypeBoxTypeProvider>()
    .get('/sign-in', { exposeHeadRoute: false, schema: { querystring: QUERY } }, async (request, reply) => {
      const { token } = request.query
      if (token === undefined) {
        if (request.query.return !== undefined) setCookie(reply, returnCookie(), returnPath(request.query.return), RETURN_MS)
        return sendPage(reply, 200, { title: 'Sign in', sentence: USE_LINK })
      }
      if (!use(token)) return sendPage(reply, 403, { title: 'This link is not valid any more', sentence: USE_LINK })
      app.log.info({ event: 'sign_in_link', url: link() }, 'next sign-in link')
      if (app.server.listening) await writeLink()
      const tenants = await allTenants(app.store)
      await sessions.open(request, reply, { user: { id: 'local', name: 'Operator' }, tenants: null, tenant: tenants[0] ?? 'default' })
      const wanted = readCookie(request, returnCookie().name)
      if (wanted !== null) setCookie(reply, returnCookie(), '', 0)
      return reply.header('cache-control', 'no-store').redirect(returnPath(wanted), 303)
    })
  return link
}
