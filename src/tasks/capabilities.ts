/** What the service makes for a plan, and on what terms: `GET /api/v1/capabilities`. */
import { Type } from 'typebox'
import type { Engines, Offer } from '../backends/engines/engine.ts'
import { Failure } from '../domain/errors.ts'
import { defaultQuality, GENERATION_OPTIONS, KINDS, priceOf, unitsOf, type Limits } from '../domain/media-generations.ts'
import { OPERATION_DEFINITIONS, OPERATIONS } from '../domain/media-operations.ts'
import { formatMoney } from '../domain/money.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import type { UploadLimits } from './receive-upload.ts'

const terms = {
  formats: Type.Array(Type.String(), {
    description: 'Values of output_format; the first is the default, but WAV, FLAC and MP3 stay what they are.',
  }),
  limits: Type.Object(
    {
      megapixels: Type.Number({ description: 'Of a picture, or of a frame.' }),
      seconds: Type.Union([Type.Number(), Type.Null()], { description: 'Of a video or a recording; null for pictures.' }),
      bytes: Type.Integer({ description: 'Of the result, and of all sources together.' }),
    },
    { description: 'Above them a request is refused, or its task fails.' },
  ),
  price: Type.Object({
    amount: Type.String({ description: 'A decimal string, by the prices of the plan.' }),
    per: Type.Enum(['Job', 'Second', 'Megapixel']),
  }),
  engine: Type.Enum(['local', 'provider', 'preview', 'other'], {
    description:
      'local: a program on the own machines. provider: a model of another service. preview: placeholders for trials. other: a plugin of the operator.',
  }),
}

/** What `capabilities` returns. */
export const Capabilities = Type.Object({
  object: Type.Literal('capabilities'),
  generations: Type.Array(
    Type.Object({
      kind: Type.String(),
      ...terms,
      defaults: Type.Object(
        { size: Type.Optional(Type.String()), seconds: Type.Optional(Type.Number()), quality: Type.Optional(Type.String()) },
        { description: 'Used where the request has none.' },
      ),
      options: Type.Array(Type.Enum([...GENERATION_OPTIONS]), {
        description:
          'Fields of a request that not every engine takes. A seed is accepted by all, and without effect for an engine that has none.',
      }),
      qualities: Type.Array(
        Type.Object({ quality: Type.String(), amount: Type.String({ description: 'In place of the amount of price.' }) }),
        { description: 'What quality may be.' },
      ),
    }),
  ),
  operations: Type.Array(
    Type.Object({
      operation: Type.String(),
      sources: Type.Array(Type.String(), { description: 'Content types of the sources; masks are pictures.' }),
      ...terms,
    }),
  ),
  uploads: Type.Object({
    bytes: Type.Integer({ description: 'Of one upload.' }),
    count: Type.Integer({ description: 'Uploads of a tenant at a time.' }),
    total_bytes: Type.Integer({ description: 'Of all uploads of a tenant.' }),
  }),
})

/**
 * The kinds and operations that can be had now, with the prices of the plan of `record`; those that no engine makes are left out. Throws
 * `plan_inactive` where there is no plan for media.
 */
export function capabilities(engines: Pick<Engines, 'offer'>, record: Subscription | null, uploads: UploadLimits): object {
  const prices = record?.terms.media?.prices
  if (!prices) throw new Failure('plan_inactive')
  const offered = <K extends string>(kinds: readonly K[], of: (kind: K, offer: Offer) => object) =>
    kinds.flatMap((kind) => {
      const offer = engines.offer(kind)
      return offer ? [{ ...of(kind, offer), ...termsOf(kind, offer, prices) }] : []
    })
  return {
    object: 'capabilities',
    generations: offered(KINDS, (kind, { route, options }) => ({
      kind,
      options,
      qualities: publicQualities(route, options, prices),
      defaults: {
        ...(kind !== 'music' && { size: route.defaults.size }),
        ...(kind !== 'image' && { seconds: route.defaults.durationMs / 1000 }),
        ...(route.defaults.quality !== undefined && { quality: route.defaults.quality }),
      },
    })),
    operations: offered(OPERATIONS, (operation) => ({
      operation,
      sources: OPERATION_DEFINITIONS[operation].reads === 'video' ? ['video/*', 'audio/*'] : ['image/*'],
    })),
    uploads: { bytes: uploads.bytes, count: uploads.perTenant.count, total_bytes: uploads.perTenant.bytes },
  }
}

/** The limits of a kind or operation, in the units of the API. */
export function publicLimits(kind: string, { pixels, durationMs, bytes }: Limits) {
  return { megapixels: pixels / 1_000_000, seconds: unitsOf(kind).includes('Second') ? durationMs / 1000 : null, bytes }
}

/** What `quality` may be, with the prices of a plan. */
function publicQualities(route: Offer['route'], options: Offer['options'], prices: Parameters<typeof priceOf>[1]) {
  return Object.keys(options.includes('quality') ? route.qualities : {}).map((quality) => ({
    quality,
    amount: formatMoney(priceOf(route, prices, quality).micro),
  }))
}

function termsOf(kind: string, offer: Offer, prices: Parameters<typeof priceOf>[1]): object {
  const { route, formats, engine, options } = offer
  const { micro, per } = priceOf(route, prices, defaultQuality(route, options))
  return {
    formats,
    limits: publicLimits(kind, route.max),
    price: { amount: formatMoney(micro), per },
    engine,
  }
}
