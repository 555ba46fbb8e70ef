/** Sign-in of the mode `local`: a one-time link, as notebook servers print it. It reaches this machine only, so whoever can read the terminal is the operator. */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { secretOf, sessionHash } from '../../src/domain/sessions.ts'
import { sendPage } from './sign-in-page.ts'
import { allTenants, type Sessions } from './sessions.ts'

const USE_LINK = 'Open the sign-in link that the program printed at its start. A link works once; after it was used, the program prints the next one.'

/** Registers the sign-in. Returns the function that gives the link that is valid now. */
export function openLocalSignIn(app: FastifyInstance, sessions: Sessions): () => string {
  let secret = secretOf(randomBytes(32))
  const link = () => `${app.publicUrl()}/dashboard/sign-in?token=${secret}`

  /** True once for each link: the next one takes its place before anything else happens. */
  function use(token: string): boolean {
    const isRight = timingSafeEqual(Buffer.from(sessionHash(token)), Buffer.from(sessionHash(secret)))
    if (isRight) secret = secretOf(randomBytes(32))
    return isRight
  }

  app.withTypeProvider<TypeBoxTypeProvider>().get('/sign-in', { exposeHeadRoute: false, schema: { querystring: Type.Object({ token: Type.Optional(Type.String({ maxLength: 200 })) }) } }, async (request, reply) => {
    const { token } = request.query
    if (token === undefined) return sendPage(reply, 200, { title: 'Sign in', sentence: USE_LINK })
    if (!use(token)) return sendPage(reply, 403, { title: 'This link is not valid any more', sentence: USE_LINK })
    app.log.info({ event: 'sign_in_link', url: link() }, 'next sign-in link')
    const tenants = await allTenants(app.store)
    await sessions.open(request, reply, { user: { id: 'local', name: 'Operator' }, tenants: null, tenant: tenants[0] ?? 'default' })
    return reply.header('cache-control', 'no-store').redirect('/dashboard/', 303)
  })
  return link
}
