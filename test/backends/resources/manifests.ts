/** Plan and ApiKey manifests with the expected fault of each. The same rows hold for a Kubernetes API server. */
import { KINDS, unitsOf } from '../../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../../src/domain/media-operations.ts'

type Spec = Record<string, unknown>

export const API_VERSION = 'tollgate.dev/v1alpha1'

export function manifest(kind: string, name: string, spec: Spec, metadata: Spec = {}): Spec {
  return { apiVersion: API_VERSION, kind, metadata: { name, namespace: 'acme', ...metadata }, spec }
}

export function mediaPlan(name: string, spec: Spec = {}, media: Spec = {}): Spec {
  return manifest('Plan', name, { product: 'Media', media: { allowance: '100.00', ...media }, ...spec })
}

export function codingPlan(name: string, spec: Spec = {}, coding: Spec = {}): Spec {
  return manifest('Plan', name, { product: 'Coding', coding: { sessionWindow: { tokens: 1000 }, weeklyWindow: { tokens: 10_000 }, ...coding }, ...spec })
}

export function apiKey(name: string, plan: string, spec: Spec = {}): Spec {
  return manifest('ApiKey', name, { planRef: { name: plan }, ...spec })
}

export type Row = {
  why: string
  document: unknown
  /** The manifest that was accepted before, for transitions. */
  before?: Spec
  /** The beginning of the fault; null when the document is accepted. */
  fault: string | null
}

const media = (terms: Spec, spec: Spec = {}) => mediaPlan('studio', spec, terms)
const coding = (terms: Spec, spec: Spec = {}) => codingPlan('coder', spec, terms)
const plan = (spec: Spec) => mediaPlan('studio', spec)
const key = (spec: Spec) => apiKey('ci', 'studio', spec)
const good = (why: string, document: unknown, before?: Spec): Row => ({ why, document, fault: null, ...(before && { before }) })
const bad = (why: string, document: unknown, fault: string, before?: Spec): Row => ({ why, document, fault, ...(before && { before }) })
const long = (length: number) => 'a'.repeat(length)

const shape: Row[] = [
  good('a Media plan with nothing but its allowance', plan({})),
  good('a Room plan', plan({ product: 'Room' })),
  good('a Coding plan with both windows', coding({})),
  good('a name of 63 characters', manifest('Plan', long(63), mediaPlan('x')['spec'] as Spec)),
  bad('a name of 64 characters', manifest('Plan', long(64), mediaPlan('x')['spec'] as Spec), 'metadata.name: must NOT have more than 63 characters'),
  bad('a name in capitals', manifest('Plan', 'Studio', mediaPlan('x')['spec'] as Spec), 'metadata.name: must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit, not "Studio"'),
  bad('a name that is a path', manifest('Plan', '../studio', mediaPlan('x')['spec'] as Spec), 'metadata.name: must be '),
  bad('an unknown field of the spec', plan({ prise: '1' }), 'spec.prise: unknown field; known fields: product, state'),
  bad('an unknown field further down', media({ alowance: '1' }), 'spec.media.alowance: unknown field'),
  bad('no spec', { ...plan({}), spec: undefined }, 'spec: is required'),
  bad('no product', manifest('Plan', 'studio', { media: { allowance: '1' } }), 'spec.product: is required'),
  bad('an unknown product', plan({ product: 'Video' }), 'spec.product: must be one of Room, Media, Coding'),
  bad('a state of the other kind', plan({ state: 'Revoked' }), 'spec.state: must be one of Active, Suspended, Retired'),
  bad('a Coding plan with a media section', media({}, { product: 'Coding' }), 'spec: a Coding plan has a coding section'),
  bad('a Media plan with a coding section too', plan({ coding: { sessionWindow: { tokens: 1 }, weeklyWindow: { tokens: 1 } } }), 'spec: a Coding plan has'),
  bad('a Media plan without a media section', manifest('Plan', 'studio', { product: 'Media' }), 'spec: a Coding plan has'),
  good('a display name of 100 characters', plan({ displayName: long(100) })),
  bad('a display name of 101 characters', plan({ displayName: long(101) }), 'spec.displayName: must NOT have more than 100 characters'),
  bad('an empty display name', plan({ displayName: '' }), 'spec.displayName: must NOT have fewer than 1 characters'),
  good('an empty field counts as missing', plan({ displayName: null, expirationTime: null })),
  good('an empty field with a default has it', plan({ state: null, requestsPerMinute: null, keyPolicy: null })),
  bad('an empty required field', media({ allowance: null }), 'spec.media.allowance: is required'),
  bad('an empty unknown field', plan({ prise: null }), 'spec.prise: unknown field; known fields: product, state'),
  bad('an empty unknown field, further down', media({ alowance: null }), 'spec.media.alowance: unknown field'),
  bad('an empty unknown field, beside the spec', { ...plan({}), specs: null }, 'specs: unknown field; known fields: apiVersion'),
  bad('an empty price', media({ prices: [null] }), 'spec.media.prices[0]: must be object'),
  bad('an empty spec', { ...plan({}), spec: null }, 'spec: is required'),
  bad('a spec that is a list', { ...plan({}), spec: [] }, 'spec: must be object'),
  bad('a number that is a string', plan({ requestsPerMinute: '600' }), 'spec.requestsPerMinute: must be integer'),
  bad('a fraction', plan({ requestsPerMinute: 1.5 }), 'spec.requestsPerMinute: must be integer'),
  good('a zero that is minus zero', plan({ keyPolicy: { rotationOverlapSeconds: -0 } })),
  good('a display name of any characters', plan({ displayName: '\u0000\u001b\u2028\u{1f600}\n' })),
  good('a display name that ends with a lone surrogate', plan({ displayName: 'a\ud83d' })),
  good('the fewest requests per minute', plan({ requestsPerMinute: 1 })),
  bad('no requests per minute', plan({ requestsPerMinute: 0 }), 'spec.requestsPerMinute: must be >= 1'),
  bad('too many requests per minute', plan({ requestsPerMinute: 1_000_001 }), 'spec.requestsPerMinute: must be <= 1000000'),
  good('100 keys and no overlap', plan({ keyPolicy: { maxKeys: 100, rotationOverlapSeconds: 0 } })),
  bad('101 keys', plan({ keyPolicy: { maxKeys: 101 } }), 'spec.keyPolicy.maxKeys: must be <= 100'),
  bad('an overlap of more than a week', plan({ keyPolicy: { rotationOverlapSeconds: 604_801 } }), 'spec.keyPolicy.rotationOverlapSeconds: must be <= 604800'),
]

const span = (from: string, until: string) => ({ startTime: `2027-01-01T00:00:${from}`, expirationTime: `2027-01-01T00:00:${until}` })

const times: Row[] = [
  good('a plan with a start and an end', plan({ startTime: '2027-01-01T00:00:00Z', expirationTime: '2027-02-01T00:00:00.123Z' })),
  good('a time with an offset', plan({ startTime: '2027-01-01T02:00:00+02:00', expirationTime: '2027-01-01T00:00:01Z' })),
  bad('a plan that ends when it starts', plan({ startTime: '2027-01-01T02:00:00+02:00', expirationTime: '2027-01-01T00:00:00Z' }), 'spec: expirationTime must be later'),
  bad('a start that is a list', plan({ startTime: ['2027-01-01T00:00:00Z'] }), 'spec.startTime: must be string'),
  bad('an end that is an empty list', plan({ expirationTime: [] }), 'spec.expirationTime: must be string'),
  bad('a date without a time', plan({ startTime: '2027-01-01' }), 'spec.startTime: must be '),
  bad('a time without a zone', plan({ startTime: '2027-01-01T00:00:00' }), 'spec.startTime: must be '),
  bad('a day that does not exist', plan({ startTime: '2027-02-30T00:00:00Z' }), 'spec.startTime: "2027-02-30T00:00:00Z" is not a valid date-time'),
  bad('a month that does not exist', plan({ startTime: '2027-13-01T00:00:00Z' }), 'spec.startTime: "2027-13-01T00:00:00Z" is not a valid date-time'),
  bad('an hour that does not exist', plan({ startTime: '2027-01-01T24:00:00Z' }), 'spec.startTime: must be '),
  good('the day before the first of March of a leap year', plan({ startTime: '2028-02-29T00:00:00Z' })),
  good('the same of the year 0, which is a leap year', plan({ startTime: '0000-02-29T00:00:00Z' })),
  good('a plan of a tenth of a millisecond', plan(span('00.0001Z', '00.0002Z'))),
  good('a plan of a nanosecond', plan(span('00Z', '00.000000001Z'))),
  good('a plan of a nanosecond across a full second', plan(span('00.999999999Z', '01Z'))),
  good('a plan of a nanosecond, before 1970', plan({ startTime: '1969-12-31T23:59:58.999999998Z', expirationTime: '1969-12-31T23:59:58.999999999Z' })),
  good('a plan of the longest time that can be written', plan({ startTime: '0000-01-01T00:00:00+23:59', expirationTime: '9999-12-31T23:59:59.999999999-23:59' })),
  bad('a plan of minus a nanosecond', plan(span('00.000000002Z', '00.000000001Z')), 'spec: expirationTime must be later'),
  bad('a plan that ends when it starts, written otherwise', plan(span('00.5Z', '00.500000000Z')), 'spec: expirationTime must be later'),
]

const money: Row[] = [
  ...['0', '0.000001', '100', '999999999.999999', '1000000000', '1000000000.000000'].map((allowance) => good(`an allowance of ${allowance}`, media({ allowance }))),
  ...['', '-1', '+1', '1e3', '.5', '1.', '01', '0.0000001', '1000000000.000001', '1000000001', '1,5', 'NaN', '0x10', ' 1'].map((allowance) =>
    bad(`an allowance of ${JSON.stringify(allowance)}`, media({ allowance }), `spec.media.allowance: must be a decimal string from 0 to 1000000000 with at most six decimals, such as "0.04", not ${JSON.stringify(allowance)}`),
  ),
  bad('an allowance that is a number', media({ allowance: 100 }), 'spec.media.allowance: must be string, not 100: write it in quotes, "100"'),
  good('a period in months', media({ periodMonths: 12 })),
  bad('a period of 13 months', media({ periodMonths: 13 }), 'spec.media.periodMonths: must be <= 12'),
  bad('a period of no days', media({ periodDays: 0 }), 'spec.media.periodDays: must be >= 1'),
  bad('a period in days and in months', media({ periodDays: 30, periodMonths: 1 }), 'spec.media: give periodDays or periodMonths, not both'),
  bad('101 tasks at once', media({ maxConcurrentTasks: 101 }), 'spec.media.maxConcurrentTasks: must be <= 100'),
  bad('10,001 open tasks', media({ maxQueuedTasks: 10_001 }), 'spec.media.maxQueuedTasks: must be <= 10000'),
  bad('no attempts', media({ attempts: 0 }), 'spec.media.attempts: must be >= 1'),
  good('a price for a kind and one for an operation', media({ prices: [{ kind: 'image', amount: '0.04' }, { operation: 'upscale', amount: '0', per: 'Megapixel' }] })),
  bad('a price for nothing', media({ prices: [{ amount: '1' }] }), 'spec.media.prices[0]: a price names a kind or an operation'),
  bad('a price for a kind and an operation', media({ prices: [{ kind: 'image', operation: 'trim', amount: '1' }] }), 'spec.media.prices[0]: a price names'),
  bad('a negative price', media({ prices: [{ kind: 'image', amount: '-0.04' }] }), 'spec.media.prices[0].amount: must be '),
  bad('a price without an amount', media({ prices: [{ kind: 'image' }] }), 'spec.media.prices[0].amount: is required'),
  bad('a price for an unknown kind', media({ prices: [{ kind: 'smell', amount: '1' }] }), 'spec.media.prices[0].kind: must be one of image, video, music'),
  bad('two prices for one kind', media({ prices: [{ kind: 'image', amount: '1' }, { kind: 'image', amount: '2', per: 'Second' }] }), 'spec.media.prices: each kind has one price'),
  bad('two prices for one operation', media({ prices: [{ operation: 'trim', amount: '1' }, { operation: 'trim', amount: '1' }] }), 'spec.media.prices: each operation has'),
  ...[...KINDS.map((kind) => ({ kind })), ...OPERATIONS.map((operation) => ({ operation }))].flatMap((of) =>
    (['Job', 'Second', 'Megapixel'] as const).map((per) => {
      const name = Object.values(of)[0] ?? ''
      const document = media({ prices: [{ ...of, amount: '1', per }] })
      if (unitsOf(name).includes(per)) return good(`${name} per ${per}`, document)
      const rule = per === 'Second' ? 'only video, music, trim and merge are priced per Second' : 'music is priced per Job or Second'
      return bad(`${name} per ${per}`, document, `spec.media.prices[0]: ${rule}`)
    }),
  ),
  bad('an unknown field of a price', media({ prices: [{ kind: 'image', amount: '1', currency: 'EUR' }] }), 'spec.media.prices[0].currency: unknown field'),
]

const windows: Row[] = [
  bad('a Coding plan without a weekly window', manifest('Plan', 'coder', { product: 'Coding', coding: { sessionWindow: { tokens: 1 } } }), 'spec.coding.weeklyWindow: is required'),
  bad('a window without tokens', coding({ sessionWindow: { durationSeconds: 60 } }), 'spec.coding.sessionWindow.tokens: is required'),
  bad('a window of no tokens', coding({ weeklyWindow: { tokens: 0 } }), 'spec.coding.weeklyWindow.tokens: must be >= 1'),
  good('a window of a million millions of tokens', coding({ weeklyWindow: { tokens: 1e12 } })),
  bad('a window of more than that', coding({ weeklyWindow: { tokens: 1e12 + 1 } }), 'spec.coding.weeklyWindow.tokens: must be <= 1000000000000'),
  bad('a session of less than a minute', coding({ sessionWindow: { tokens: 1, durationSeconds: 59 } }), 'spec.coding.sessionWindow.durationSeconds: must be >= 60'),
  good('weights given in part', coding({ weights: { cachedInput: 100 } })),
  bad('a negative weight', coding({ weights: { output: -1 } }), 'spec.coding.weights.output: must be >= 0'),
  bad('an unknown way to end', coding({ onAbort: 'Wait' }), 'spec.coding.onAbort: must be one of Cancel, Drain'),
  bad('1001 requests at once', coding({ maxConcurrentRequests: 1001 }), 'spec.coding.maxConcurrentRequests: must be <= 1000'),
]

const keys: Row[] = [
  good('a key with nothing but its plan', key({})),
  good('a key with everything', key({ secretName: 'ci.key-1', state: 'Suspended', rotationRevision: 7, expirationTime: '2027-01-01T00:00:00Z', limit: { amountPerPeriod: '10.00' } })),
  bad('a key without a spec', { ...key({}), spec: undefined }, 'spec: is required'),
  bad('a key without a plan', manifest('ApiKey', 'ci', {}), 'spec.planRef: is required'),
  bad('a key for a plan of another namespace', key({ planRef: { name: 'other/studio' } }), 'spec.planRef.name: must be '),
  bad('a Secret name that is a path', key({ secretName: '../../etc' }), 'spec.secretName: must be '),
  bad('a Secret name that begins with a dot', key({ secretName: '.owner' }), 'spec.secretName: must be '),
  bad('a Secret name with two dots in a row', key({ secretName: 'a..b' }), 'spec.secretName: must be '),
  bad('a Secret name of 254 characters', key({ secretName: long(254) }), 'spec.secretName: must NOT have more than 253 characters'),
  bad('an end that is a list', key({ expirationTime: [] }), 'spec.expirationTime: must be string'),
  bad('a negative revision', key({ rotationRevision: -1 }), 'spec.rotationRevision: must be >= 0'),
  bad('an empty limit', key({ limit: {} }), 'spec.limit: a limit is weeklyTokens'),
  bad('a limit in both units', key({ limit: { weeklyTokens: 1, amountPerPeriod: '1' } }), 'spec.limit: a limit is weeklyTokens'),
  ...['labels', 'annotations'].flatMap((which) => [
    good(`${which} of the Secret`, key({ secretName: 'ci-key', secretTemplate: { [which]: { team: 'a', 'ex-1.example.com/Some_name..x': '' } } })),
    ...['example.kubernetes.io/x', 'k8s.io/x', 'tollgate.dev/api-key'].map((name) => bad(`${which} of the Secret with the name ${name}`, key({ secretName: 'ci-key', secretTemplate: { [which]: { [name]: 'a' } } }), `spec.secretTemplate.${which}: names of kubernetes.io, k8s.io and tollgate.dev are reserved`)),
    ...['', 'a/b/c', '/a', 'a/', '-a', 'a b', 'x'.repeat(64), 'Upper/a', 'a..b/c', 'a.-b/c', 'a-.b/c', `${'a'.repeat(252)}/b`].map((name) => bad(`${which} of the Secret with the name "${name}"`, key({ secretName: 'ci-key', secretTemplate: { [which]: { [name]: 'a' } } }), `spec.secretTemplate.${which}: a name has`)),
  ]),
  good('entries of the Secret', key({ secretName: 'ci-key', secretTemplate: { data: { OPENAI_API_KEY: '$(api-key)', 'config.toml': '' } } })),
  ...['', 'api-key', 'key-id', '.owner', '..', 'a/b', 'x'.repeat(64), '__proto__'].map((name) => bad(`an entry of the Secret with the name "${name}"`, key({ secretName: 'ci-key', secretTemplate: { data: Object.fromEntries([[name, 'a']]) } }), 'spec.secretTemplate.data: a name has')),
  bad('a template of no Secret', key({ secretTemplate: {} }), 'spec: secretTemplate needs secretName'),
  good('a limit of nothing', key({ limit: { weeklyTokens: 0 } })),
]

const about = (metadata: Spec) => manifest('ApiKey', 'ci', { planRef: { name: 'studio' } }, metadata)
const labelled = (labels: unknown) => about({ labels })
const annotated = (annotations: unknown) => about({ annotations })
const NAME_PART = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
const PREFIX_PART = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
/** Limit of the names and values of annotations, in bytes. */
const ANNOTATIONS = 262_144

const metadata: Row[] = [
  good('labels and annotations', about({ labels: { app: 'shop', 'example.com/tier': 'Front_End.1' }, annotations: { 'Example.com/Why': '…\n' } })),
  good('no labels', labelled({})),
  good('null labels', labelled(null)),
  good('100 labels', labelled(Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`n${n}`, ''])))),
  good('a label without a value', labelled({ a: '' })),
  good('a null label', labelled({ a: null })),
  good('a label of 63 characters, its prefix of 253', labelled({ [`${long(253)}/${long(63)}`]: long(63) })),
  bad('a label of 64 characters', labelled({ a: long(64) }), 'metadata.labels: "aaaa'),
  bad('a label whose name has 64 characters', labelled({ [`x/${long(64)}`]: '' }), 'metadata.labels: "x/aaaa'),
  ...['a b', '-a', 'a-', '.', 'é', 'a/b', 'a\n', ' '].flatMap((text) => [
    bad(`a label of ${JSON.stringify(text)}`, labelled({ a: text }), `metadata.labels: ${JSON.stringify(text)}: a valid label must be an empty string or ${NAME_PART.slice(5)}`),
    ...(text === 'a/b' ? [] : [bad(`a label whose name is ${JSON.stringify(text)}`, labelled({ [text]: 'a' }), `metadata.labels: ${JSON.stringify(text)}: name part ${NAME_PART}`)]),
  ]),
  bad('a label without a name', labelled({ '': 'a' }), 'metadata.labels: "": name part must be non-empty'),
  bad('a label without a name behind its prefix', labelled({ 'a/': 'a' }), 'metadata.labels: "a/": name part must be non-empty'),
  bad('a label without its prefix', labelled({ '/a': 'a' }), 'metadata.labels: "/a": prefix part must be non-empty'),
  bad('a label whose prefix has capitals', labelled({ 'Example.com/a': 'a' }), `metadata.labels: "Example.com/a": ${PREFIX_PART}`),
  bad('a label whose prefix has 254 characters', labelled({ [`${long(254)}/a`]: 'a' }), 'metadata.labels: "aaaa'),
  bad('a label with two prefixes', labelled({ 'a/b/c': 'a' }), `metadata.labels: "a/b/c": a valid label key ${NAME_PART}`),
  bad('labels that are a list', labelled(['a']), 'metadata.labels: must be object'),
  good('an annotation of any text', annotated({ a: '\u0000 \u001b \u{1f600}\n'.repeat(1_000) })),
  good('a null annotation', annotated({ a: null })),
  good('100 annotations', annotated(Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`n${n}`, ''])))),
  good('annotations of 256 KiB', annotated({ a: long(ANNOTATIONS - 1) })),
  bad('annotations of more than 256 KiB', annotated({ a: long(ANNOTATIONS - 3), b: 'a', c: '' }), 'metadata.annotations: may not be more than 262144 bytes'),
  bad('annotations of more than 256 KiB, in fewer characters', annotated({ a: 'é'.repeat(ANNOTATIONS / 2) }), 'metadata.annotations: may not be more than'),
  bad('an annotation with a space in its name', annotated({ 'a b': '' }), `metadata.annotations: "a b": name part ${NAME_PART}`),
  bad('an annotation with two prefixes', annotated({ 'a/b/c': '' }), `metadata.annotations: "a/b/c": a valid label key ${NAME_PART}`),
  bad('an annotation that is a number', annotated({ a: 1 }), 'metadata.annotations.a: must be string'),
  bad('a label that is a boolean', labelled({ a: true }), 'metadata.labels.a: must be string'),
  bad('an unknown field of the metadata', about({ lables: {} }), 'metadata.lables: unknown field'),
  bad('an empty unknown field of the metadata', about({ lables: null }), 'metadata.lables: unknown field'),
  good('empty known fields of the metadata', about({ creationTimestamp: null, deletionTimestamp: null, generateName: null })),
  good('fields of the metadata that are ignored', about({ generateName: 'ci-', deletionTimestamp: '2027-01-01T00:00:00Z', deletionGracePeriodSeconds: 0 })),
]

const statuses: Row[] = [
  good('a status, which is ignored', { ...key({}), status: { keyID: 7, conditions: [{ type: 'Ready' }] } }),
  good('a status that is a string', { ...key({}), status: 'Ready' }),
  good('an empty status', { ...key({}), status: null }),
  bad('an unknown field of a status', { ...key({}), status: { keyId: 'x' } }, 'status.keyId: unknown field; known fields: observedGeneration'),
  bad('a field below a string', { ...key({}), status: { keyID: { name: null } } }, 'status.keyID.name: unknown field'),
  bad('a field in a status that is a list', { ...key({}), status: [{ keyID: 'x' }] }, 'status[0].keyID: unknown field'),
  bad('an unknown field of a condition', { ...plan({}), status: { conditions: [{ reasons: null }] } }, 'status.conditions[0].reasons: unknown field'),
]

const transitions: Row[] = [
  good('a plan is suspended', plan({ state: 'Suspended' }), plan({})),
  good('a suspended plan is active again', plan({ state: 'Active' }), plan({ state: 'Suspended' })),
  good('a retired plan is renamed', plan({ state: 'Retired', displayName: 'Old' }), plan({ state: 'Retired' })),
  bad('a retired plan is active again', plan({ state: 'Active' }), 'spec.state: a Retired plan stays Retired', plan({ state: 'Retired' })),
  bad('a retired plan is active again by omission of the state', plan({}), 'spec.state: a Retired plan stays Retired', plan({ state: 'Retired' })),
  bad('a plan changes its product', plan({ product: 'Room' }), 'spec.product: the product of a plan cannot be changed', plan({})),
  good('a key is rotated', key({ rotationRevision: 3 }), key({ rotationRevision: 1 })),
  bad('a key is rotated back', key({ rotationRevision: 0 }), 'spec.rotationRevision: rotationRevision can only be raised', key({ rotationRevision: 1 })),
  bad('a key is rotated back by omission of the revision', key({}), 'spec.rotationRevision: rotationRevision can only be raised', key({ rotationRevision: 1 })),
  bad('a revoked key is active again', key({ state: 'Active' }), 'spec.state: a Revoked key stays Revoked', key({ state: 'Revoked' })),
  good('a suspended key is revoked', key({ state: 'Revoked' }), key({ state: 'Suspended' })),
  good('a key moves to another plan', key({ planRef: { name: 'other' } }), key({})),
  bad('a Secret is renamed', key({ secretName: 'b' }), 'spec: secretName cannot be added, changed or removed', key({ secretName: 'a' })),
  bad('a Secret is added', key({ secretName: 'b' }), 'spec: secretName cannot be added', key({})),
  bad('a Secret is removed', key({}), 'spec: secretName cannot be added', key({ secretName: 'a' })),
]

/** Rows for files only: Kubernetes refuses them before the validation by the CRD, or drops unknown fields. */
export const documents: Row[] = [
  good('what `kubectl get -o yaml` prints', {
    ...key({}),
    metadata: { name: 'ci', namespace: 'acme', uid: 'x', resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z', managedFields: [], labels: { a: 'b' }, annotations: {} },
    status: { conditions: [] },
  }),
  bad('a namespace that is a path', { ...key({}), metadata: { name: 'ci', namespace: '..' } }, 'metadata.namespace: must be '),
  bad('no name', { ...key({}), metadata: {} }, 'metadata.name: is required'),
  bad('another API version', { ...key({}), apiVersion: 'tollgate.dev/v2' }, 'apiVersion: must be tollgate.dev/v1alpha1'),
  bad('another kind', { ...key({}), kind: 'Secret' }, 'kind: must be Plan or ApiKey'),
  bad('a list', { apiVersion: 'v1', kind: 'List', items: [] }, 'kind: must be Plan or ApiKey'),
  bad('a sentence', 'hello', 'kind: must be Plan or ApiKey'),
  bad('a prototype', JSON.parse('{"kind":"Plan","__proto__":{"polluted":true}}'), 'apiVersion: is required'),
]

export const rows: Row[] = [...shape, ...times, ...money, ...windows, ...keys, ...metadata, ...statuses, ...transitions]
