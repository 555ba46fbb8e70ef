/** `/dashboard/api/session` and sign-out. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import about from '../../package.json' with { type: 'json' }
import { managesKeys, type DashboardMode } from '../../src/config/dashboard-mode.ts'
import { Failure, FAILURES } from '../../src/domain/errors.ts'
import { sessionOf, type Sessions } from './sessions.ts'

const TenantChoice = Type.Object({ tenant: Type.String({ minLength: 1, maxLength: 63 }) }, { additionalProperties: false })

/** The address at which the browser signs out at the provider too; null when it has none. */
export type EndSession = () => Promise<string | null>

/** Registers the routes; `endSession` is called when a person signs out. */
export function sessionRoutes(app: FastifyInstance, sessions: Sessions, mode: DashboardMode, endSession: EndSession): void {
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()
  const { config } = app

  async function described(request: FastifyRequest): Promise<object> {
    const { session, tenant } = sessionOf(request)
    const isAllowed = app.hasDecorator('resources') && (config.ROLE === 'all' || managesKeys(config))
    return {
      user: session.user,
      tenant,
      tenants: await sessions.tenants(session),
      sign_in: mode,
      key_management: isAllowed ? { allowed: true } : { allowed: false, reason: FAILURES.key_management_off[2] },
      key_reveal: app.hasDecorator('sealingKeys'),
      public_url: app.publicUrl(),
      brand: config.BRAND,
      model: 'svc-code',
      version: about.version,
    }
  }

  routes.get('/session', described)
  routes.put('/session/tenant', { schema: { body: TenantChoice } }, async (request) => {
    const { session } = sessionOf(request)
    if (!(await sessions.tenants(session)).includes(request.body.tenant)) throw new Failure('tenant_not_allowed')
    const changed = await app.store.switchTenant(session.id, request.body.tenant)
    if (!changed) throw new Failure('not_signed_in')
    request.session = { session: changed, tenant: changed.tenant }
    return described(request)
  })
  routes.post('/sign-out', async (request, reply) => {
    await sessions.end(request, reply)
    const url = await endSession()
    return url === null ? reply.code(204).send() : { end_session_url: url }
  })
}
