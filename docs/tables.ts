/** Generates the tables of the documentation from the code: `npm run docs`. `test/docs.test.ts` checks that the pages are up to date. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Type } from 'typebox'
import { SETTINGS } from '../src/config/config.ts'
import { MODEL_SCHEMAS } from '../engines/image/models.ts'
import { DEFAULT_ENGINES, EnginesFile } from '../src/backends/engines/engines-file.ts'
import { FAILURES } from '../src/domain/errors.ts'
import { LIMITS } from '../src/domain/limits.ts'
import { OPERATION_DEFINITIONS, OPERATIONS } from '../src/domain/media-operations.ts'
import { TASK_ERRORS } from '../src/domain/task.ts'
import { crdParts } from './crds.ts'
import { boundsOf, fieldsOf, type Schema } from './fields.ts'
import { code, table } from './markdown.ts'
import { exampleSections } from './media-examples.ts'

/** A row for each member of a file's schema, except its lists. */
const memberRows = (schema: Schema) =>
  fieldsOf('', schema).flatMap(({ path, schema, needed }) =>
    path === '' || path.endsWith('[]') || schema.items ? [] : [[code(path), needed ? 'yes' : '', boundsOf(schema).join('; '), schema.description ?? '']],
  )

/** A row for each member that describes a model. */
const modelRows = Object.entries(MODEL_SCHEMAS).flatMap(([operation, schema]) =>
  fieldsOf('', schema as Schema)
    .filter(({ path }) => path !== '' && !path.endsWith('[]'))
    .map(({ path, schema, needed }, i) => [i === 0 ? code(operation) : '', code(path), schema.default !== undefined ? code(JSON.stringify(schema.default).replaceAll('"', '')) : needed ? 'needed' : '', schema.description ?? '']),
)

/** A row for each field of each operation but the one that all requests share. */
const operationRows = OPERATIONS.flatMap((operation) => {
  const { output_format: _format, ...fields } = OPERATION_DEFINITIONS[operation].fields
  return Object.entries(fieldsOf('', Type.Object(fields) as Schema).filter(({ path }) => path !== '' && !path.endsWith('[]'))).map(([at, { path, schema, needed }]) => [
    at === '0' ? code(operation) : '',
    code(path),
    needed ? 'yes' : '',
    schema.type === 'array' || path.endsWith('_url') ? '' : boundsOf(schema).join('; '),
    schema.description ?? '',
  ])
})

/** The generated parts: page, name in the page's markers, and text. */
export const PARTS = [
  {
    page: 'errors.md',
    name: 'failures',
    text: table(['status', 'code', 'type', 'message'], Object.entries(FAILURES).map(([name, [status, type, sentence]]) => [String(status), code(name), code(type), sentence])),
  },
  {
    page: 'errors.md',
    name: 'limits',
    text: table(['`X-SVC-Limit`', 'code', 'what is limited'], Object.entries(LIMITS).map(([name, [failure, what]]) => [code(name), code(failure), what])),
  },
  {
    page: 'errors.md',
    name: 'task errors',
    text: table(['error.code', 'message'], Object.entries(TASK_ERRORS).map(([name, sentence]) => [code(name), sentence])),
  },
  { page: 'media.md', name: 'operations', text: table(['operation', 'field', 'needed', 'may be', 'meaning'], operationRows) },
  { page: 'media.md', name: 'examples', text: exampleSections },
  { page: 'engines.md', name: 'default', text: `\`\`\`yaml\n${DEFAULT_ENGINES}\`\`\`` },
  { page: 'engines.md', name: 'members', text: table(['member', 'needed', 'may be', 'meaning'], memberRows(EnginesFile as Schema)) },
  { page: 'models.md', name: 'members', text: table(['operation', 'member', 'default', 'meaning'], modelRows) },
  {
    page: 'configuration.md',
    name: 'settings',
    text: table(
      ['setting', 'default', 'may be', 'meaning'],
      Object.entries(SETTINGS).map(([name, { default: fallback, parse, meaning }]) => [code(name), code(fallback), parse.mayBe, meaning]),
    ),
  },
  ...crdParts(),
]

/** The page with its part between the markers replaced. Throws if the page lacks the markers. */
export function withPart(page: string, name: string, text: string): string {
  const begin = `<!-- generated: ${name} -->`
  const end = '<!-- end -->'
  const from = page.indexOf(begin)
  const to = page.indexOf(end, from)
  if (from < 0 || to < 0) throw new Error(`the page has no part ${begin} … ${end}`)
  return `${page.slice(0, from + begin.length)}\n${text}\n${page.slice(to)}`
}

if (import.meta.main) {
  for (const { page, name, text } of PARTS) {
    const file = join(import.meta.dirname, page)
    writeFileSync(file, withPart(readFileSync(file, 'utf8'), name, text))
  }
}
