/** Parameters of operations that contradict the formats of the engine, and limits by sources. What every service refuses is in test/contracts/operations. */
import t from 'tap'
import { isOpen, lengthRead, operationFaults, operationOf, resultLimits, type OperationBody, type OperationRequest, type SourceInfo } from '../../src/domain/media-operations.ts'
import { LIMITS } from '../fakes/engine.ts'

type Formats = [string, ...string[]]
const completed = (body: Partial<OperationBody>, formats: Formats) => operationOf({ operation: 'background_remove', media_url: 'https://example.com/a.png', ...body }, formats)

t.test('a transparent background takes the first format of the engine that can be transparent', async (t) => {
  t.match(completed({}, ['jpeg', 'webp', 'png']), { outcome: 'ok', input: { background: 'transparent', output_format: 'webp' } })
  t.match(completed({ background: '#FFFFFF' }, ['jpeg', 'webp']), { outcome: 'ok', input: { background: '#ffffff', output_format: 'jpeg' } })
})

t.test('a transparent background is refused where the engine writes opaque formats only, given or left out', async (t) => {
  const refused = { outcome: 'invalid', errors: [{ path: '/background', code: 'not_allowed', message: 'must be a colour: jpeg or jpg cannot be transparent' }] }
  t.same(completed({}, ['jpeg', 'jpg']), refused)
  t.same(completed({ background: 'transparent' }, ['jpeg', 'jpg']), refused)
  t.match(completed({ background: '#102030' }, ['jpeg', 'jpg']), { outcome: 'ok' })
})

t.test('jpeg and jpg with a transparent background are refused before any engine is known', async (t) => {
  for (const output_format of ['jpeg', 'jpg']) {
    for (const more of [{}, { background: 'transparent' }]) t.match(operationFaults({ operation: 'background_remove', media_url: 'https://example.com/a.png', output_format, ...more }), [{ path: '/output_format', code: 'not_allowed' }])
  }
})

t.test('the headers of all sources bound the result, with room for what packets differ by; anything unknown leaves the limits of the route', async (t) => {
  const picture = (width: number, height: number): SourceInfo => ({ contentType: 'image/png', width, height, durationMs: null })
  const film = (durationMs: number | null, atMostMs: number | null = null): SourceInfo => ({ contentType: 'video/mp4', width: 640, height: 480, durationMs, atMostMs })
  const trim = (startMs: number, endMs: number | null, mode = 'accurate') => ({ kind: 'trim', startMs, endMs, mode, format: 'mp4' }) as OperationRequest
  const merge = { kind: 'merge', transition: 'none', fit: 'contain', format: 'mp4' } as OperationRequest
  const upscale = { kind: 'upscale', scale: 2, format: 'png' } as OperationRequest
  const { pixels, durationMs } = LIMITS
  const cases: [OperationRequest, SourceInfo[], { pixels: number; durationMs: number }][] = [
    [upscale, [picture(100, 50)], { pixels: 20_000, durationMs }],
    [upscale, [picture(4000, 4000)], { pixels, durationMs }],
    [upscale, [null], { pixels, durationMs }],
    [{ kind: 'ai_edit' } as OperationRequest, [picture(100, 50)], { pixels, durationMs }],
    [merge, [film(4000), film(4000)], { pixels, durationMs: 9800 }],
    [merge, [film(4000), null], { pixels, durationMs }],
    [merge, [film(4000), film(null)], { pixels, durationMs }],
    [merge, [film(4000), film(4000, 16_000)], { pixels, durationMs: 23_000 }],
    [trim(1000, null), [film(4000)], { pixels, durationMs: 4400 }],
    [trim(1000, 3000), [film(4000)], { pixels, durationMs: 2000 }],
    [trim(1000, 3000), [null], { pixels, durationMs: 2000 }],
    [trim(9000, null), [film(4000)], { pixels, durationMs: 0 }],
    [trim(0, null), [film(2_000_000)], { pixels, durationMs }],
    [trim(1000, 3000, 'fast'), [null], { pixels, durationMs: 3000 }],
    [trim(60_000, 63_000, 'fast'), [null], { pixels, durationMs: 13_000 }],
    [trim(0, 3000, 'fast'), [null], { pixels, durationMs: 3000 }],
  ]
  for (const [request, media, expected] of cases) t.match(resultLimits(request, media, LIMITS), expected, JSON.stringify([request, media]))
  t.same([isOpen(merge, [null], 'Second'), isOpen(merge, [film(1)], 'Second'), isOpen(merge, [film(1, 8)], 'Second'), isOpen(trim(0, 3000), [null], 'Second'), isOpen(merge, [null], 'Job')], [true, false, true, false, false])
  t.same([isOpen(upscale, [null], 'Megapixel'), isOpen(upscale, [picture(9, 9)], 'Megapixel'), isOpen({ kind: 'ai_edit' } as OperationRequest, [null], 'Megapixel')], [true, false, false])
  t.equal(lengthRead(trim(1000, 3000), 7_200_000), 2000, 'the route bounds the section, not the source')
  t.equal(lengthRead(trim(60_000, 63_000, 'fast'), 7_200_000), 3000, 'also where the result begins earlier')
  t.equal(lengthRead(trim(1000, null), 7_200_000), 7_199_000)
  t.equal(lengthRead(merge, 7_200_000), 7_200_000)
})
