import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { PARTS, withPart } from '../docs/tables.ts'

for (const { page, name, text } of PARTS) {
  t.test(`docs/${page} has the ${name} of the code`, async (t) => {
    const written = readFileSync(join(import.meta.dirname, '../docs', page), 'utf8')
    t.equal(written, withPart(written, name, text), 'npm run docs writes it')
  })
}
