/** The generated parts of docs/crds.md: what `crds/*.yaml` say, as tables. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { boundsOf, fieldsOf, type Field, type Schema } from './fields.ts'
import { code, table } from './markdown.ts'

type Column = { name: string; type: string; jsonPath: string; description?: string; priority?: number }
type Version = { name: string; selectableFields: { jsonPath: string }[]; additionalPrinterColumns: Column[]; schema: { openAPIV3Schema: Schema } }
type Crd = {
  spec: { group: string; names: { kind: string; plural: string; singular: string; shortNames: string[]; categories: string[] }; versions: [Version] }
}

/** The parts of each kind in the order of the page. */
export const crdParts = () =>
  ['plan.yaml', 'apikey.yaml'].flatMap((file) => {
    const { spec: crd }: Crd = parse(readFileSync(join(import.meta.dirname, '../crds', file), 'utf8'))
    const [version] = crd.versions
    const { metadata = {}, spec = {}, status = {} } = version.schema.openAPIV3Schema.properties ?? {}
    const declared = [...fieldsOf('metadata', metadata), ...fieldsOf('spec', spec)]
    const texts = {
      names: names(crd, version, metadata.properties?.['name'] ?? {}),
      columns: table(['column', 'shown', 'is', 'meaning'], version.additionalPrinterColumns.map(columnRow)),
      spec: fieldTable('spec', spec),
      patterns: patternTable(declared),
      rules: ruleTable(declared),
      status: fieldTable('status', status),
    }
    return Object.entries(texts).map(([part, text]) => ({ page: 'crds.md', name: `${part} of ${crd.names.kind}`, text }))
  })

function names({ group, names: { plural, singular, shortNames, categories } }: Crd['spec'], { name, selectableFields }: Version, ofObject: Schema): string {
  const list = (texts: string[]) => texts.map(code).join(', ')
  return table(
    ['', ''],
    [
      ['`apiVersion`', code(`${group}/${name}`)],
      ['names for `kubectl`', list([plural, singular, ...shortNames])],
      ['categories', list(categories)],
      ['field selectors', list(selectableFields.map(({ jsonPath }) => jsonPath.slice(1)))],
      ['`metadata.name`', mayBe(ofObject)],
    ],
  )
}

const columnRow = ({ name, jsonPath, description = '', priority = 0 }: Column) => [name, priority > 0 ? 'with `-o wide`' : 'always', code(jsonPath.slice(1)), description]

function fieldTable(part: string, schema: Schema): string {
  const rows = fieldsOf(part, schema).slice(1).map(({ path, schema, needed }) => [
    code(path.slice(part.length + 1)),
    [schema.type, schema.format].filter(Boolean).join(', '),
    needed ? 'needed' : schema.default === undefined ? '' : code(typeof schema.default === 'string' ? schema.default : JSON.stringify(schema.default)),
    mayBe(schema),
    schema.description ?? '',
  ])
  return table(['field', 'type', 'default', 'may be', 'meaning'], rows)
}

/** A pattern may be longer than all the rest of a row, and many fields share it: it has a table of its own. */
const mayBe = (schema: Schema) => [...boundsOf(schema), ...(schema.pattern === undefined ? [] : ['a pattern'])].join('; ')

function patternTable(fields: Field[]): string {
  const byPattern = Map.groupBy(fields.filter(({ schema }) => schema.pattern !== undefined), ({ schema }) => schema.pattern ?? '')
  return table(['pattern', 'of'], [...byPattern].map(([pattern, same]) => [code(pattern), same.map(({ path }) => code(path)).join(', ')]))
}

function ruleTable(fields: Field[]): string {
  const rules = fields.flatMap(({ path, schema }) => (schema['x-kubernetes-validations'] ?? []).map(({ rule, message }) => [code(path), code(rule), message]))
  return table(['at', 'rule', 'message'], rules)
}
