import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { EXAMPLES } from '../docs/media-examples.ts'
import { PARTS, withPart } from '../docs/tables.ts'
import { GenerationRequest, OperationRequest } from '../plugins/media/request-schemas.ts'
import { KINDS } from '../src/domain/media-generations.ts'
import { OPERATIONS } from '../src/domain/media-operations.ts'
import { strictValidator } from '../src/domain/request-validation.ts'

for (const { page, name, text } of PARTS) {
  t.test(`docs/${page} has the ${name} of the code`, async (t) => {
    const written = readFileSync(join(import.meta.dirname, '../docs', page), 'utf8')
    t.equal(written, withPart(written, name, text), 'npm run docs writes it')
  })
}

t.test('every kind and operation has an example in docs/media.md, with a picture that exists; together they are small', async (t) => {
  t.same(EXAMPLES.map(({ verb }) => verb).sort(), [...KINDS, ...OPERATIONS].sort())
  const sizes = EXAMPLES.map(({ verb }) => statSync(join(import.meta.dirname, '../docs/media', `${verb}.jpg`)).size)
  t.ok(sizes.every((size) => size > 1000) && sizes.reduce((sum, size) => sum + size, 0) < 600_000, `${sizes}`)
})

t.test('an example is a valid request, as its schema takes it', async (t) => {
  const valid = strictValidator()
  for (const { body, sources } of EXAMPLES) {
    for (const request of [body, ...Object.values(sources)].filter((one) => Object.keys(one).length > 0)) {
      const check = valid({ schema: 'kind' in request ? GenerationRequest : OperationRequest, httpPart: 'body' })
      t.equal(check(structuredClone(request)), true, JSON.stringify(request))
    }
  }
})
