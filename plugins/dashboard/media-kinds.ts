/** `GET /kinds`: the kinds and operations of this service with their limits, and the prices of each plan, so that the page offers what works and says why the rest is not offered. */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { Offer } from '../../src/backends/engines/engine.ts'
import { Failure } from '../../src/domain/errors.ts'
import { KINDS, priceOf, unitsOf } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { formatMoney } from '../../src/domain/money.ts'
import { planNameOf } from '../../src/domain/plans.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { mediaPlans } from './paying-plan.ts'

export type MediaKindsOptions = {
  /** Whoever signs in runs this program, and may read what is missing on its machine. */
  explains?: boolean
}

const UNAVAILABLE = 'This service does not offer it.'

async function mediaKinds(app: FastifyInstance, { explains = false }: MediaKindsOptions): Promise<void> {
  const { engines } = app.tasks

  app.get('/kinds', { config: { problem: true } }, async ({ session }) => {
    if (!session) throw new Failure('not_signed_in')
    const plans = await mediaPlans(app.store, session.tenant)
    const states = explains ? await app.engines.routes() : []
    const missing = (verb: string) => states.find((state) => state.verb === verb)?.missing ?? UNAVAILABLE
    const verbs = [...KINDS.map((verb) => ({ verb, object: 'generation' })), ...OPERATIONS.map((verb) => ({ verb, object: 'operation' }))]
    return {
      object: 'list',
      data: verbs.map(({ verb, object }) => {
        const offer = engines.offer(verb)
        return offer ? { verb, object, available: true, reason: null, ...termsOf(verb, offer) } : { verb, object, available: false, reason: missing(verb) }
      }),
      prices: plans.flatMap((plan) => verbs.flatMap(({ verb }) => priceIn(plan, engines.offer(verb)))),
    }
  })
}

/** What a request may have, as `ENGINES` sets it. */
function termsOf(verb: string, { route: { max, defaults }, formats }: Offer): Record<string, unknown> {
  const isTimed = unitsOf(verb).includes('Second')
  return {
    formats,
    max: { megapixels: max.pixels / 1_000_000, seconds: isTimed ? max.durationMs / 1000 : null, bytes: max.bytes },
    defaults: { size: verb === 'image' || verb === 'video' ? defaults.size : null, seconds: verb === 'video' || verb === 'music' ? defaults.durationMs / 1000 : null },
  }
}

function priceIn(plan: Subscription, offer: Offer | null): Record<string, unknown>[] {
  if (!offer) return []
  const { verb, micro, per } = priceOf(offer.route, plan.terms.media?.prices ?? [])
  return [{ plan: planNameOf(plan.id), verb, amount: formatMoney(micro), per }]
}

export default fp(mediaKinds, { name: 'media-kinds', fastify: '5.x', encapsulate: true, decorators: { fastify: ['tasks', 'engines', 'store'] } })
