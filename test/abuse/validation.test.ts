/** Bodies with a fault in every value: the faults that are collected. */
import t from 'tap'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { GenerationRequest } from '../../plugins/media/request-schemas.ts'

t.test('of a body with 50,000 unknown members, or entries of the wrong type, one fault is collected', async (t) => {
  const valid = strictValidator({ schema: GenerationRequest, httpPart: 'body' })
  const many = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`m${i}`, i]))
  t.notOk(valid({ kind: 'image', prompt: 'x', ...many }))
  t.equal(valid.errors?.length, 1)
  t.notOk(valid({ kind: 'image', prompt: 'x', metadata: many }))
  t.equal(valid.errors?.length, 1)
  const list = strictValidator({ schema: { type: 'array', items: { type: 'string' } }, httpPart: 'body' })
  t.notOk(list(Array.from({ length: 50_000 }, (_, i) => [i])))
  t.equal(list.errors?.length, 1)
  t.ok(list(Array.from({ length: 50_000 }, String)), 'a large valid value is valid')
})

t.test('every fault of an ordinary body is collected', async (t) => {
  const valid = strictValidator({ schema: GenerationRequest, httpPart: 'body' })
  t.notOk(valid({ kind: 'image', prompt: 1, one: 1, two: [{}], seed: 'x' }))
  t.ok((valid.errors?.length ?? 0) >= 4)
})
