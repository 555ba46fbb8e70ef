/**
 * Test rows derived from the CRDs: for each bound of the name and of each field of the spec, values just inside and just outside. They prove that no bound is
 * forgotten and that both validators agree on it. Whether a bound is right is the subject of the rows in `manifests.ts`.
 */
import { readFile } from 'node:fs/promises'
import { parse } from 'yaml'
import { inWords } from '../../../src/domain/field-patterns.ts'
import type { Kind } from '../../../src/backends/resources/resources.ts'
import type { Answered } from '../../servers/kube/api.ts'
import { apiKey, codingPlan, mediaPlan, type Row } from './manifests.ts'

export type BoundRow = Row & {
  /** The field, such as `spec.media.attempts`, and the keyword. */
  field: string
  keyword: string
  /** The words by which each validator identifies the bound. */
  words: Words
}

type Words = { files: string; server: string }
type Schema = Answered
type Sides = { inside?: unknown[]; outside: unknown[]; words: Words }

/** The manifest that a value is put into, by the longest prefix of `field=value`; it satisfies the CEL rules. */
const BASES: Record<Kind, Record<string, unknown>> = {
  Plan: {
    '': mediaPlan('studio'),
    // A plan has the section of its product, and only that.
    'spec.product=Coding': codingPlan('coder'),
    'spec.coding': codingPlan('coder'),
    // A price is for a kind or for an operation.
    'spec.media.prices[0]': mediaPlan('studio', {}, { prices: [{ kind: 'image', amount: '1' }] }),
    'spec.media.prices[0].per': mediaPlan('studio', {}, { prices: [{ kind: 'video', amount: '1' }] }),
    'spec.media.prices[0].operation': mediaPlan('studio', {}, { prices: [{ operation: 'trim', amount: '1' }] }),
  },
  ApiKey: { '': apiKey('ci', 'studio'), 'spec.secretTemplate': apiKey('ci', 'studio', { secretName: 'ci-key' }) },
}

type Samples = { inside: string[]; outside: string[] }

const TIME: Samples = {
  inside: ['2027-01-01T00:00:00Z', '2027-12-31T23:59:59.1+23:59', '2027-01-01T00:00:00.123456789-02:00', '2027-01-01T00:00:00-00:00', '0000-01-01T00:00:00+23:59'],
  outside: [
    '', '2027-01-01', '27-01-01T00:00:00Z', '2027-01-01T00:00:00', '2027-01-01 00:00:00Z', '2027-01-01t00:00:00z', '2027-01-01T00:00:00Z\n',
    '2027-01-01t00:00:00Z', '2027-01-01T00:00:00z', '+002027-01-01T00:00:00Z', '-0001-01-01T00:00:00Z', '2027-W01-1T00:00:00Z',
    '2027-01-01T24:00:00Z', '2027-01-01T00:60:00Z', '2027-01-01T00:00:60Z', '2026-12-31T23:59:60Z', '2027-01-01T00:00Z',
    '2027-01-01T00:00:00.Z', '2027-01-01T00:00:00,5Z', '2027-01-01T00:00:00.1234567890Z',
    '2027-01-01T00:00:00+24:00', '2027-01-01T00:00:00+00:60', '2027-01-01T00:00:00+0200', '2027-01-01T00:00:00+02', '2027-01-01T00:00:00ZZ',
  ],
}
const AMOUNT: Samples = {
  inside: ['0', '0.000001', '999999999.999999', '1000000000', '1000000000.000000'],
  outside: ['', '-1', '+1', '1e3', '.5', '1.', '01', '1,5', ' 1', '1\n', 'NaN', '0.0000001', '1000000001', '1000000000.000001'],
}
const LABEL: Samples = { inside: ['a', '0', 'a-1', 'a--b'], outside: ['-a', 'a-', 'A', 'a_b', 'a.b', 'a/b', 'é', 'a\n'] }
const SUBDOMAIN: Samples = { inside: ['a', '0', 'ci.key-1', 'a.0.b'], outside: ['.a', 'a.', 'a..b', '-a', 'a-', 'a.-b', 'A', 'a_b', '../etc', 'a\n'] }

/** Samples for fields with a pattern. A field with a pattern that is missing here is an error. */
const SAMPLES: Record<string, Samples> = {
  'metadata.name': LABEL,
  'spec.startTime': TIME,
  'spec.expirationTime': TIME,
  'spec.media.allowance': AMOUNT,
  'spec.media.prices[0].amount': AMOUNT,
  'spec.limit.amountPerPeriod': AMOUNT,
  'spec.planRef.name': LABEL,
  'spec.secretName': SUBDOMAIN,
  'spec.secretTemplate.labels.one': { inside: ['', 'a', 'A.b_c-0'], outside: ['-a', 'a.', 'a b', 'é', 'a\n'] },
}

/** Keywords without a bound of a single value: `required` is covered with the members, CEL rules by rows of `manifests.ts`. Any other keyword without sides is an error. */
const NO_BOUND = new Set(['description', 'default', 'properties', 'additionalProperties', 'items', 'required', 'x-kubernetes-validations', 'x-kubernetes-list-type'])

const OTHERS = {
  string: [7, true, [], ['text'], {}],
  integer: ['7', true, [], [7], {}],
  object: ['text', 7, true, []],
  array: ['text', 7, true, {}],
}

const SIDES: Record<string, (schema: Schema, field: string) => Sides> = {
  // The other rows of the field are inside.
  type: ({ type }) => ({ outside: OTHERS[type as keyof typeof OTHERS], words: { files: `must be ${type}`, server: 'must be ' } }),
  minimum: ({ minimum }) => ({ inside: [minimum], outside: [minimum - 1], words: { files: `must be >= ${minimum}`, server: `greater than or equal to ${minimum}` } }),
  maximum: ({ maximum }) => ({ inside: [maximum], outside: [maximum + 1], words: { files: `must be <= ${maximum}`, server: 'less than or equal to' } }),
  minLength: ({ minLength }) => ({ inside: ['a'.repeat(minLength)], outside: ['a'.repeat(minLength - 1)], words: { files: `fewer than ${minLength} characters`, server: `at least ${minLength} chars` } }),
  maxLength: (schema, field) => maxLength(schema, SAMPLES[field]),
  maxItems: ({ maxItems, items }) => ({ inside: [distinct(items)], outside: [Array(maxItems + 1).fill(distinct(items)[0])], words: { files: `more than ${maxItems} items`, server: `at most ${maxItems} items` } }),
  maxProperties: ({ maxProperties }) => ({ inside: [members(maxProperties)], outside: [members(maxProperties + 1)], words: { files: `more than ${maxProperties} properties`, server: `at most ${maxProperties} items` } }),
  enum: (schema) => ({ inside: schema.enum, outside: ['Other', schema.enum[0].toUpperCase()], words: { files: 'must be one of', server: 'Unsupported value' } }),
  pattern: ({ pattern }, field) => ({ ...SAMPLES[field]!, words: { files: inWords(pattern) ?? 'no words for this pattern', server: 'should match' } }),
  format: ({ format }) => FORMATS[format]!,
}

const DAYS: Samples = {
  inside: ['2028-02-29T00:00:00Z', '2000-02-29T00:00:00Z', '0000-02-29T00:00:00Z', '0099-12-31T00:00:00Z'],
  outside: ['2027-02-29T00:00:00Z', '1900-02-29T00:00:00Z', '0000-02-30T00:00:00Z', '2027-04-31T00:00:00Z', '2027-13-01T00:00:00Z', '2027-00-01T00:00:00Z', '2027-01-00T00:00:00Z'],
}

// An integer's maximum is narrower than its format, so the fault names the maximum.
const FORMATS: Record<string, Sides> = {
  int32: { outside: [2 ** 31, -(2 ** 31) - 1], words: { files: 'must be', server: '' } },
  int64: { outside: [2 ** 63, -(2 ** 64)], words: { files: 'must be', server: '' } },
  'date-time': { ...DAYS, words: { files: 'is not a valid date-time', server: 'date-time' } },
}

/** Lengths count characters, not UTF-16 units or bytes. The values of an enum are all shorter, so an enum has no value just inside. */
function maxLength({ maxLength: max, enum: names, pattern }: Schema, samples?: Samples): Sides {
  const longest = samples?.inside.find(({ length }) => length === max) ?? (pattern || names ? 'a' : '😀').repeat(max)
  return { inside: names ? [] : [longest], outside: [`${longest}0`], words: { files: `more than ${max} characters`, server: `more than ${max}` } }
}

/** As many prices as possible, one for each kind and operation, which is fewer than `maxItems`. */
function distinct({ properties: { kind, operation } }: Schema): object[] {
  return [...kind.enum.map((name: string) => ({ kind: name, amount: '1' })), ...operation.enum.map((name: string) => ({ operation: name, amount: '1' }))]
}

/** As many members with texts. */
function members(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`m${i}`, 'text']))
}

function* rowsOf(kind: Kind, schema: Schema, field: string): Generator<BoundRow> {
  for (const keyword of Object.keys(schema)) {
    if (NO_BOUND.has(keyword)) continue
    const sides = SIDES[keyword]?.(schema, field)
    if (!sides?.outside) throw new Error(`${keyword} of ${field} has no rows`)
    for (const value of sides.inside ?? []) yield { ...row(kind, field, keyword, value), words: sides.words, fault: null }
    for (const value of sides.outside) yield { ...row(kind, field, keyword, value), words: sides.words, fault: `${field}: ` }
  }
  for (const name of schema.required ?? []) {
    const member = `${field}.${name}`
    yield { ...row(kind, member, 'required', undefined), words: { files: 'is required', server: 'Required value' }, fault: `${member}: ` }
  }
  for (const [name, property] of Object.entries(schema.properties ?? {})) yield* rowsOf(kind, property, `${field}.${name}`)
  if (schema.additionalProperties) yield* rowsOf(kind, schema.additionalProperties, `${field}.one`)
  if (schema.items) yield* rowsOf(kind, schema.items, `${field}[0]`)
}

function row(kind: Kind, field: string, keyword: string, value: unknown) {
  const wanted = `${field}=${String(value)}`
  const base = Object.keys(BASES[kind]).filter((beginning) => wanted.startsWith(beginning)).sort((a, b) => b.length - a.length)[0]!
  const document = structuredClone(BASES[kind][base])
  put(document, field.split(/[.[\]]+/).filter(Boolean), value)
  return { why: `${kind} ${field}, ${keyword}: ${JSON.stringify(value)?.slice(0, 61)}`, document, field, keyword }
}

/** Sets a nested member, or deletes it when the value is undefined. */
function put(within: Answered, [name = '', ...below]: string[], value: unknown): void {
  if (below.length > 0) put((within[name] ??= {}), below, value)
  else if (value === undefined) delete within[name]
  else within[name] = value
}

const KEYWORDS = /^(type|format|enum|pattern|required|not|(all|any|one)Of|multipleOf|uniqueItems|nullable|(exclusiveM|m)(in|ax)imum|m(in|ax)(Length|Items|Properties))$/

export type Bounds = {
  rows: BoundRow[]
  /** Number of bounds in the schema, counted by keywords independently of the rows. */
  count: number
  /** The messages of the CEL rules. */
  messages: string[]
}

/** Rejects when a keyword has no rows. */
export async function readBounds(kind: Kind): Promise<Bounds> {
  const crd = parse(await readFile(new URL(`../../../crds/${kind.toLowerCase()}.yaml`, import.meta.url), 'utf8'))
  const { metadata, spec } = crd.spec.versions[0].schema.openAPIV3Schema.properties
  // Kubernetes itself requires a name to be a string.
  const { type: _, ...name } = metadata.properties.name
  const messages: string[] = []
  let count = 0
  JSON.stringify([name, spec], (key, value) => {
    if (KEYWORDS.test(key)) count += key === 'required' ? value.length : 1
    if (key === 'message') messages.push(value)
    return value
  })
  return { rows: [...rowsOf(kind, name, 'metadata.name'), ...rowsOf(kind, spec, 'spec')], count, messages }
}
