/** Parameters of operations that contradict the formats of the engine. What every service refuses is in test/contracts/operations. */
import t from 'tap'
import { operationFaults, operationOf, type OperationBody } from '../../src/domain/media-operations.ts'
import { LIMITS } from '../fakes/engine.ts'

type Formats = [string, ...string[]]
const completed = (body: Partial<OperationBody>, formats: Formats) => operationOf({ operation: 'background_remove', media_url: 'https://example.com/a.png', ...body }, LIMITS, formats)

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
