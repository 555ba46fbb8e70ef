import t from 'tap'
import type { Engines, Offer } from '../../src/backends/engines/engine.ts'
import { unsupportedParameter, USUAL_NAMES, type InputNames } from '../../src/backends/engines/replicate/model-inputs.ts'
import type { Hold, Subscription } from '../../src/domain/subscription/subscription.ts'
import type { Files } from '../../src/backends/files/files.ts'
import type { MediaInfo } from '../../src/domain/media-info.ts'
import { holdsFrom } from '../../src/domain/subscription/holds.ts'
import { publicQuote, quote, type Quote, type TaskBody } from '../../src/tasks/quote.ts'
import { png, wav } from '../backends/engines/media-samples.ts'

const RECORD = {
  plan: { uid: 'u', createdAt: 0, generation: 1 }, state: 'Active', verdict: null, activeFrom: null, activeUntil: null, terms: { media: { prices: [] } },
} as unknown as Subscription

t.test('a parameter that the model of the route has no input for is a 400 that names it, before any hold', async (t) => {
  const media_url = 'https://example.com/a.png'
  const body = (fields: object) => ({ media_url, ...fields }) as TaskBody
  const cases: [TaskBody, string | null, InputNames?][] = [
    [body({ operation: 'background_remove' }), null],
    [body({ operation: 'background_remove', background: '#00ff00' }), '/background'],
    [body({ operation: 'background_remove', crop: true }), '/crop'],
    [body({ operation: 'background_remove', crop: true }), null, { media: 'image', crop: 'crop' }],
    [body({ operation: 'upscale', scale: 3 }), '/scale', { media: 'image' }],
    [body({ operation: 'ai_edit', prompt: 'a boat', mask_url: media_url }), '/mask_url', { media: 'image', prompt: 'prompt' }],
    [body({ operation: 'ai_edit', prompt: 'a boat' }), null, { media: 'image', prompt: 'prompt' }],
    [body({ operation: 'trim', start_time: 1 }), '/start_time', { media: 'video', endSeconds: 'end' }],
    [body({ operation: 'trim', start_time: 0, end_time: 2 }), '/end_time', { media: 'video' }],
    [body({ operation: 'trim', start_time: 0, duration: 2 }), '/duration', { media: 'video' }],
    [body({ operation: 'merge', media_urls: [media_url], transition: 'fade' }), '/transition'],
  ]
  for (const [given, path, names] of cases) {
    const run = () => quote(contextOf(names), given, RECORD)
    if (path === null) t.equal((await run()).estimatedCost, 50_000, JSON.stringify(given))
    else await t.rejects(run(), { code: 'invalid_request', facts: { errors: [{ path, code: 'not_allowed' }] } }, JSON.stringify(given))
  }
})

t.test('a source that is here and of a kind that the operation does not take is a 400 that names it, before any hold', async (t) => {
  const picture = `data:image/png;base64,${png(4, 4).toString('base64')}`
  const sound = `data:;base64,${wav(10).toString('base64')}`
  const elsewhere = 'https://example.com/a.png'
  for (const [given, path] of [
    [{ operation: 'trim', start_time: 0, media_url: picture }, '/media_url'],
    [{ operation: 'trim', start_time: 0, media_url: sound }, null],
    [{ operation: 'merge', media_url: picture, media_urls: [elsewhere, elsewhere] }, '/media_url'],
    [{ operation: 'upscale', media_url: sound }, '/media_url'],
    [{ operation: 'upscale', media_url: picture }, null],
    [{ operation: 'upscale', media_url: elsewhere }, null],
  ] as [TaskBody, string | null][]) {
    const run = () => quote(contextOf(), given, RECORD)
    if (path === null) t.equal((await run()).estimatedCost, 50_000, JSON.stringify(given))
    else await t.rejects(run(), { code: 'invalid_request', facts: { errors: [{ path, code: 'not_allowed' }] } }, JSON.stringify(given))
  }
})

t.test('sources that are here and larger together than the route allows are a 400, before any hold', async (t) => {
  const files = { stat: async (id: string) => ({ id, size: Number(id) }) } as unknown as Files
  const context = { ...contextOf(), files, linkedFile: (url: string) => url.slice(1), fileInfo: async () => ({ contentType: 'video/mp4' }) as MediaInfo }
  const merge = (...media_urls: string[]) => quote(context, { operation: 'merge', media_urls } as TaskBody, RECORD)
  t.equal((await merge('/500000', '/500000')).estimatedCost, 50_000)
  await t.rejects(merge('/500000', '/500001'), { code: 'invalid_request', facts: { errors: [{ path: '/media_urls/1', code: 'maximum' }] } })
})

t.test('a source that is here and above a limit of the route is a 400, before any hold; a mask and the picture of a video are sources too', async (t) => {
  const found: Record<string, Partial<MediaInfo> & { contentType: string; size?: number }> = {
    picture: { contentType: 'image/png', width: 1000, height: 1000, size: 600_000 },
    mask: { contentType: 'image/png', size: 400_001 },
    wide: { contentType: 'image/png', width: 1001, height: 1000 },
    photograph: { contentType: 'image/png', width: 4000, height: 4000 },
    poster: { contentType: 'image/png', width: 4001, height: 4000 },
    song: { contentType: 'audio/wav', durationMs: 60_001 },
  }
  const files = { stat: async (id: string) => ({ id, size: found[id]?.size ?? 1 }) } as unknown as Files
  const context = { ...contextOf({ ...USUAL_NAMES.video, ...USUAL_NAMES.inpaint, ...USUAL_NAMES.trim, media: 'media' }), files, linkedFile: (url: string) => (url in found ? url : null), fileInfo: async ({ id }: { id: string }) => found[id] as MediaInfo }
  const large = `data:image/png;base64,${Buffer.concat([png(4, 4), Buffer.alloc(1e6)]).toString('base64')}`
  const inpaint = { operation: 'inpaint', prompt: 'a boat', media_url: 'picture' }
  const video = { kind: 'video', prompt: 'a boat' }
  for (const [given, path, code = 'maximum'] of [
    [{ ...inpaint, media_url: 'wide', mask_url: 'picture' }, '/media_url'],
    [{ ...inpaint, mask_url: 'wide' }, '/mask_url'],
    [{ ...inpaint, mask_url: 'mask' }, '/mask_url'],
    [{ ...inpaint, mask_url: 'song' }, '/mask_url', 'not_allowed'],
    [{ ...inpaint, mask_url: 'photograph', media_url: 'song' }, '/media_url', 'not_allowed'],
    [{ ...inpaint, mask_url: `data:;base64,${wav(10).toString('base64')}` }, '/mask_url', 'not_allowed'],
    [{ ...inpaint, media_url: large, mask_url: 'https://example.com/m.png' }, '/media_url'],
    [{ ...inpaint, mask_url: 'https://example.com/m.png' }, null],
    [{ operation: 'trim', media_url: 'song', start_time: 0 }, '/media_url'],
    [{ operation: 'trim', media_url: 'song', start_time: 1 }, null],
    [{ ...video, image_url: 'photograph' }, null],
    [{ ...video, image_url: 'poster' }, '/image_url'],
    [{ ...video, image_url: 'song' }, '/image_url', 'not_allowed'],
    [{ ...video, image_url: large }, '/image_url'],
  ] as [TaskBody, string | null, string?][]) {
    const run = () => quote(context, given, RECORD)
    const name = JSON.stringify(given).slice(0, 200)
    if (path === null) t.equal((await run()).estimatedCost, 50_000, name)
    else await t.rejects(run(), { code: 'invalid_request', facts: { errors: [{ path, code }] } }, name)
  }
  await t.rejects(quote(context, { ...video, image_url: 'poster' } as TaskBody, RECORD), { code: 'invalid_request', facts: { errors: [{ message: 'is too large: the sources of video have at most 16 megapixels' }] } })
})

t.test('where the model makes one size whatever the source is, a max_cost below its price is refused and no source is asked', async (t) => {
  const route = { max: { pixels: 1e6, durationMs: 60_000, bytes: 1e6 }, price: { kind: 'any', micro: 50_000, per: 'Megapixel' } } as unknown as Offer['route']
  const priced = (quoted: Offer['quote']) => ({ ...contextOf(), engines: { offer: () => ({ route, formats: ['png'], quote: quoted, unsupported: () => null }) } as unknown as Engines, probeSources: async () => (t.fail('asked'), []) })
  const body = (max_cost?: string) => ({ operation: 'inpaint', prompt: 'a boat', media_url: 'https://example.com/a.png', mask_url: 'https://example.com/m.png', ...(max_cost && { max_cost }) }) as TaskBody
  const fixed = priced(() => ({ Job: 1000, Second: 0, Megapixel: 1000 }))
  t.match(await quote(fixed, body('0.05'), RECORD), { estimatedCost: 50_000, extendableTo: null })
  await t.rejects(quote(fixed, body('0.049999'), RECORD), { code: 'max_cost_exceeded', facts: { beside: { required: '0.0500' } } })
  const atLeastHalf = priced((_request, limits) => ({ Job: 1000, Second: 0, Megapixel: Math.max(500, limits!.pixels / 1000) }))
  await t.rejects(quote(atLeastHalf, body('0.024999'), RECORD), { code: 'max_cost_exceeded' })
  t.match(await quote({ ...atLeastHalf, probeSources: async () => [null] }, body('0.025'), RECORD), { estimatedCost: 25_000 })
})

t.test('the queue position of a quote counts no pass-through requests, as that of a task does', async (t) => {
  const hold = (kind: string) => ({ kind, run: null, readyAt: 0 }) as Hold
  const holds = holdsFrom([['a', hold('proxy')], ['b', hold('image')], ['c', hold('proxy')]])
  const record = { ...RECORD, anchor: null, media: { holds } } as unknown as Subscription
  const quoted = { object: 'generation', kind: 'image', estimatedCost: 1, record } as unknown as Quote
  t.equal(publicQuote(quoted, { key: { keyId: 'k', cap: null } }, 0, null)['queue_position'], 2)
})

function contextOf(names?: InputNames) {
  const terms = { price: { kind: 'any', micro: 50_000, per: 'Job' }, defaults: { size: '640x360', durationMs: 1000 }, qualities: {} }
  const route = { max: { pixels: 1e6, durationMs: 60_000, bytes: 1e6 }, ...terms } as unknown as Offer['route']
  const offer: Offer = {
    route,
    formats: ['png'],
    engine: 'provider',
    options: ['image_url'],
    quote: () => ({ Job: 1000, Second: 0, Megapixel: 0 }),
    unsupported: (request, roles) => unsupportedParameter(request, names ?? USUAL_NAMES[request.kind], roles),
  }
  return { clock: () => 1, files: {} as Files, fileInfo: async () => null, refusedUrl: () => null, linkedFile: () => null, probeSources: async () => [], engines: { offer: () => offer } as unknown as Engines }
}
