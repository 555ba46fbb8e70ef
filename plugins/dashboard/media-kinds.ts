/**
 * `GET /kinds`: the kinds and operations of this service with their limits, and the prices of each plan, so that the page offers what works
 * and says why the rest is not offered.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Type, type TProperties } from 'typebox'
import type { Offer } from '../../src/backends/engines/engine.ts'
import { Failure } from '../../src/domain/errors.ts'
import { defaultQuality, GENERATION_FIELDS, KINDS, priceOf, type GenerationOption } from '../../src/domain/media-generations.ts'
import { OPERATION_DEFINITIONS, OPERATIONS, type Operation } from '../../src/domain/media-operations.ts'
import { formatMoney } from '../../src/domain/money.ts'
import type { OperationDefinition } from '../../src/domain/operations/operation.ts'
import { planNameOf } from '../../src/domain/plans.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { publicLimits } from '../../src/tasks/capabilities.ts'
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
    const missing = (kind: string) => states.find((state) => state.kind === kind)?.missing ?? UNAVAILABLE
    const kinds = [...KINDS.map((kind) => ({ kind, object: 'generation' })), ...OPERATIONS.map((kind) => ({ kind, object: 'operation' }))]
    return {
      object: 'list',
      data: kinds.map(({ kind, object }) => {
        const offer = engines.offer(kind)
        return offer
          ? { name: kind, object, available: true, reason: null, ...termsOf(kind, offer), ...formOf(kind, offer) }
          : { name: kind, object, available: false, reason: missing(kind), ...formOf(kind, null) }
      }),
      prices: plans.flatMap((plan) => kinds.flatMap(({ kind }) => priceIn(plan, engines.offer(kind)))),
    }
  })
}

/** The form: what the file of the operation says, or of a generation what it takes beside the usual fields, as JSON Schema. */
function formOf(kind: string, offer: Offer | null): Record<string, unknown> {
  if (!(kind in OPERATION_DEFINITIONS)) {
    const fieldOf = (option: GenerationOption) =>
      option === 'quality' ? { ...GENERATION_FIELDS.quality, enum: Object.keys(offer?.route.qualities ?? {}) } : GENERATION_FIELDS[option]
    return { fields: Object.fromEntries((offer?.options ?? []).map((option) => [option, fieldOf(option)])) }
  }
  const definition: unknown = OPERATION_DEFINITIONS[kind as Operation]
  const { title, reads, fields, defaults } = definition as OperationDefinition<TProperties, object, object>
  const { properties, required = [] } = Type.Object(fields)
  return { title, reads, fields: properties, required, values: defaults({}) }
}

/** What a request may have, as `ENGINES` sets it. */
function termsOf(kind: string, { route: { max, defaults }, formats, engine }: Offer): Record<string, unknown> {
  return {
    engine,
    formats,
    max: publicLimits(kind, max),
    defaults: {
      size: kind === 'image' || kind === 'video' ? defaults.size : null,
      seconds: kind === 'video' || kind === 'music' ? defaults.durationMs / 1000 : null,
    },
  }
}

function priceIn(plan: Subscription, offer: Offer | null): Record<string, unknown>[] {
  if (!offer) return []
  const { kind, micro, per } = priceOf(offer.route, plan.terms.media?.prices ?? [], defaultQuality(offer.route, offer.options))
  return [{ plan: planNameOf(plan.id), kind, amount: formatMoney(micro), per }]
}

export default fp(mediaKinds, {
  name: 'media-kinds',
  fastify: '5.x',
  encapsulate: true,
  decorators: { fastify: ['tasks', 'engines', 'store'] },
})
