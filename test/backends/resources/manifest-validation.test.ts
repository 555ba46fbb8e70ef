/** Manifest validation against the CRDs, without an API server. */
import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import type { ApiKeySpec, PlanSpec, Ref } from '../../../src/backends/resources/resources.ts'
import { parseDocuments } from '../../../src/backends/resources/manifests/manifest-parser.ts'
import { openValidator, type Verdict } from '../../../src/backends/resources/manifest-validation.ts'
import { readBounds } from './schema-bounds.ts'
import { apiKey, codingPlan, documents, mediaPlan, rows, type Row } from './manifests.ts'
import { scalars } from './scalars.ts'

const validator = await openValidator()
const bounds = { Plan: await readBounds('Plan'), ApiKey: await readBounds('ApiKey') }
const never = () => null

function verdictOn({ document, before }: Row): Verdict {
  const accepted = before === undefined ? null : validator.validate(before, never)
  if (accepted?.outcome === 'refused') throw new Error(`the earlier manifest is refused: ${accepted.faults.map(({ sentence }) => sentence).join('; ')}`)
  return validator.validate(document, () => accepted?.manifest.spec ?? null)
}

t.test('a manifest is accepted or refused by the rules of its CRD, and a fault names its place', async (t) => {
  for (const row of [...rows, ...documents]) {
    const verdict = verdictOn(row)
    if (row.fault === null) t.equal(verdict.outcome, 'accepted', `${row.why}: ${verdict.outcome === 'refused' ? verdict.faults.map(({ sentence }) => sentence).join('; ') : ''}`)
    else if (verdict.outcome === 'refused') t.ok(verdict.faults[0]?.sentence.startsWith(row.fault), `${row.why}: ${verdict.faults[0]?.sentence}`)
    else t.fail(`${row.why}: was accepted`)
  }
})

t.test('a value just inside a bound of a CRD is accepted, and one just outside is refused for that bound', async (t) => {
  for (const row of Object.values(bounds).flatMap(({ rows }) => rows)) {
    const verdict = verdictOn(row)
    const sentences = verdict.outcome === 'refused' ? verdict.faults.map(({ sentence }) => sentence) : []
    const { fault } = row
    if (fault === null) t.equal(verdict.outcome, 'accepted', `${row.why}: ${sentences.join('; ')}`)
    else t.ok(sentences.some((sentence) => sentence.startsWith(fault) && sentence.includes(row.words.files)), `${row.why}: ${sentences.join('; ')}, wanted ${fault}${row.words.files}`)
  }
})

t.test('every bound and every rule of a CRD has rows', async (t) => {
  for (const [kind, { rows: derived, count, messages }] of Object.entries(bounds)) {
    t.equal(new Set(derived.filter(({ fault }) => fault !== null).map(({ field, keyword }) => `${field} ${keyword}`)).size, count, `the refused rows are of all ${count} bounds of ${kind}`)
    const fields = [...new Set(derived.map(({ field }) => field))]
    const values = fields.filter((field) => !fields.some((other) => other.startsWith(`${field}.`)))
    t.same(values.filter((field) => !derived.some((row) => row.field === field && row.fault === null)), [], `fields of ${kind} of which nothing is accepted`)
    t.same(messages.filter((message) => !rows.some(({ fault }) => isOf(fault, message))), [], `rules of ${kind} that no row of the table breaks`)
  }
})

t.test('every default of the CRD is filled in', async (t) => {
  const spec = (document: unknown) => {
    const verdict = validator.validate(document, never)
    return verdict.outcome === 'accepted' ? verdict.manifest.spec : verdict.faults
  }
  t.same(spec(mediaPlan('studio', {}, { prices: [{ kind: 'image', amount: '1' }] })), {
    product: 'Media',
    state: 'Active',
    media: { allowance: '100.00', maxConcurrentTasks: 4, maxQueuedTasks: 1000, attempts: 3, prices: [{ kind: 'image', amount: '1', per: 'Job' }] },
    requestsPerMinute: 600,
    keyPolicy: { maxKeys: 5, rotationOverlapSeconds: 3600 },
  } satisfies PlanSpec)
  t.same(spec(codingPlan('coder', { keyPolicy: { maxKeys: 1 } }, { weights: { output: 5000 } })), {
    product: 'Coding',
    state: 'Active',
    coding: {
      sessionWindow: { tokens: 1000, durationSeconds: 18_000 },
      weeklyWindow: { tokens: 10_000 },
      weights: { input: 1000, cachedInput: 1000, output: 5000 },
      onAbort: 'Cancel',
      maxConcurrentRequests: 32,
      maxOutputTokens: 65_536,
    },
    requestsPerMinute: 600,
    keyPolicy: { maxKeys: 1, rotationOverlapSeconds: 3600 },
  } satisfies PlanSpec)
  t.same(spec(apiKey('ci', 'coder')), { planRef: { name: 'coder' }, state: 'Active', rotationRevision: 0 } satisfies ApiKeySpec)
})

t.test('an accepted spec is unchanged by a round trip through JSON, so that a restart finds no change', async (t) => {
  for (const row of rows.filter(({ fault }) => fault === null)) {
    const verdict = verdictOn(row)
    const { spec } = verdict.outcome === 'accepted' ? verdict.manifest : { spec: null }
    t.ok(isDeepStrictEqual(JSON.parse(JSON.stringify(spec)), spec), row.why)
  }
})

t.test('YAML is read as an API server reads it', async (t) => {
  for (const [written, value] of scalars) {
    const parsed = parseDocuments(`{ value: ${written} }`)
    t.same(parsed.outcome === 'parsed' && parsed.documents[0]?.value, { value }, written)
  }
})

t.test('a refused document still yields the resource that it names, if its name is valid', async (t) => {
  const refOf = (document: unknown): Ref | null => {
    const verdict = validator.validate(document, never)
    return verdict.outcome === 'refused' ? verdict.ref : null
  }
  const wrong = mediaPlan('studio', { product: 'Video' })
  t.same(refOf(wrong), { kind: 'Plan', namespace: 'acme', name: 'studio' })
  t.same(refOf({ ...wrong, metadata: { name: 'studio' } }), { kind: 'Plan', namespace: 'default', name: 'studio' })
  for (const metadata of [{ name: '../x' }, { name: 'x', namespace: '..' }, { name: 7 }, null, 'x']) t.equal(refOf({ ...wrong, metadata }), null)
})

t.test('validation does not change the document', async (t) => {
  const document = mediaPlan('studio')
  const before = structuredClone(document)
  validator.validate(document, never)
  t.same(document, before)
})

/** Whether a row is refused by the rule with that message; the row has its beginning, after the place. */
function isOf(fault: string | null, message: string): boolean {
  const beginning = fault?.slice(fault.indexOf(': ') + 2) ?? ''
  return beginning !== '' && message.startsWith(beginning)
}
