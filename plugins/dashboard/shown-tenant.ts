/** The tenant that a page shows, against that of its session: another tab of the same browser may have switched since. */
import type { FastifyInstance } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'
import { sessionOf } from './sessions.ts'

/**
 * Refuses every request of the scope that names another tenant than the session's in `X-Tollgate-Tenant`, or as a link does in the query as
 * `tenant`, with `tenant_changed`. One that names none is for the session's tenant.
 */
export function refuseOtherTenants(app: FastifyInstance): void {
  app.addHook('onRequest', async (request) => {
    const { tenant } = request.query as { tenant?: unknown }
    const shown = [request.headers['x-tollgate-tenant'], tenant]
    if (shown.some((one) => one !== undefined && one !== sessionOf(request).tenant)) throw new Failure('tenant_changed')
  })
}
