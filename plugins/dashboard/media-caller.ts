/**
 * The caller of the Media API's routes behind a session: `request.session` → `request.caller`, as `plugins/auth` makes it from a key. Its
 * holds and tasks carry the key id `dashboard`, which is no ApiKey's uid.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Failure, overLimit } from '../../src/domain/errors.ts'
import { openRates } from '../../src/domain/rate-limit.ts'
import type { Stale } from '../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { mediaPlans, payingPlan } from './paying-plan.ts'

/** In place of the ids of a key and of its version. */
export const DASHBOARD_KEY = 'dashboard'

/** Per session and replica, as of a key. Creations count in the plan's own rate as well. */
const REQUESTS_PER_MINUTE = 6_000
const SESSIONS_MAX = 10_000
/** Keys of the subscription can change between the read of its record and its use. */
const STALE_ATTEMPTS_MAX = 5

async function mediaCaller(app: FastifyInstance): Promise<void> {
  const count = openRates('session_requests', REQUESTS_PER_MINUTE, SESSIONS_MAX)

  function callerOf(plan: Subscription, countedBy: string, isValid: () => Promise<boolean>): NonNullable<FastifyRequest['caller']> {
    let { keysVersion } = plan
    const { id: subscription, tenant, product } = plan
    return {
      key: { id: DASHBOARD_KEY, keyId: DASHBOARD_KEY, tenant, subscription, product, cap: null },
      countedBy,
      isValid,
      async creating(run) {
        for (let attempts = 0; attempts < STALE_ATTEMPTS_MAX; attempts++) {
          const answer = await run(subscription, { keyId: DASHBOARD_KEY, keyCap: null, keysVersion })
          if (answer.outcome !== 'stale') return answer as Exclude<typeof answer, Stale>
          keysVersion = (answer as { outcome: string } as Stale).keysVersion
        }
        throw overLimit('key_changes', { retryAfterSeconds: 1, cause: new Error('the keys of the plan changed at every attempt') })
      },
      // The hook below has counted the request, and refused a creation whose plan is not active.
      creatingNow: () => null,
      countRead: () => {},
      earlierFailure: async () => null,
    }
  }

  app.decorateRequest('caller', null)
  app.addHook('onRequest', async (request) => {
    if (!request.session) throw new Failure('not_signed_in')
    const { session, tenant } = request.session
    count(session.id, app.clock())
    const plans = await mediaPlans(app.store, tenant)
    const { plan } = request.query as { plan?: unknown }
    const payer = request.routeOptions.config.creates
      ? payingPlan(plans, typeof plan === 'string' ? plan : undefined, app.clock())
      : plans[0]
    request.caller = callerOf(payer, session.id, async () => {
      const current = await app.store.session(session.id)
      return current !== null && current.tenant === tenant && current.expiresAt > app.clock()
    })
  })
}

export default fp(mediaCaller, { name: 'media-caller', fastify: '5.x', decorators: { fastify: ['store', 'clock'] } })
