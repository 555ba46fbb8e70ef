/** Plans and ApiKeys as documents, and what each of them is answered. The same table can be put to a Kubernetes API server. */
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
  /** How the one fault begins; null when the document is accepted. */
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
  bad('a name in capitals', manifest('Plan', 'Studio', mediaPlan('x')['spec'] as Spec), 'metadata.name: "Studio" must match'),
  bad('a name that leads elsewhere', manifest('Plan', '../studio', mediaPlan('x')['spec'] as Spec), 'metadata.name: "../studio" must match'),
  bad('an unknown field of the spec', plan({ prise: '1' }), 'spec.prise: unknown field; known here: product, state'),
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
  good('an empty field is one that is not there', plan({ displayName: null, expirationTime: null })),
  bad('a number that is a string', plan({ requestsPerMinute: '600' }), 'spec.requestsPerMinute: must be integer'),
  bad('a fraction', plan({ requestsPerMinute: 1.5 }), 'spec.requestsPerMinute: must be integer'),
  good('the fewest requests per minute', plan({ requestsPerMinute: 1 })),
  bad('no requests per minute', plan({ requestsPerMinute: 0 }), 'spec.requestsPerMinute: must be >= 1'),
  bad('too many requests per minute', plan({ requestsPerMinute: 1_000_001 }), 'spec.requestsPerMinute: must be <= 1000000'),
  good('100 keys and no overlap', plan({ keyPolicy: { maxKeys: 100, rotationOverlapSeconds: 0 } })),
  bad('101 keys', plan({ keyPolicy: { maxKeys: 101 } }), 'spec.keyPolicy.maxKeys: must be <= 100'),
  bad('an overlap of more than a week', plan({ keyPolicy: { rotationOverlapSeconds: 604_801 } }), 'spec.keyPolicy.rotationOverlapSeconds: must be <= 604800'),
]

const times: Row[] = [
  good('a plan from then until then', plan({ startTime: '2027-01-01T00:00:00Z', expirationTime: '2027-02-01T00:00:00.123Z' })),
  good('a time with an offset', plan({ startTime: '2027-01-01T02:00:00+02:00', expirationTime: '2027-01-01T00:00:01Z' })),
  bad('a plan that ends when it starts', plan({ startTime: '2027-01-01T02:00:00+02:00', expirationTime: '2027-01-01T00:00:00Z' }), 'spec: expirationTime must be later'),
  bad('a date without a time', plan({ startTime: '2027-01-01' }), 'spec.startTime: "2027-01-01" must match'),
  bad('a time without a zone', plan({ startTime: '2027-01-01T00:00:00' }), 'spec.startTime: "2027-01-01T00:00:00" must match'),
  bad('a day that there is not', plan({ startTime: '2027-02-30T00:00:00Z' }), 'spec.startTime: "2027-02-30T00:00:00Z" is no date-time'),
  bad('a month that there is not', plan({ startTime: '2027-13-01T00:00:00Z' }), 'spec.startTime: "2027-13-01T00:00:00Z" is no date-time'),
  bad('an hour that there is not', plan({ startTime: '2027-01-01T24:00:00Z' }), 'spec.startTime: "2027-01-01T24:00:00Z" must match'),
  good('the day before the first of March of a leap year', plan({ startTime: '2028-02-29T00:00:00Z' })),
]

const money: Row[] = [
  ...['0', '0.000001', '100', '999999999.999999', '1000000000', '1000000000.000000'].map((allowance) => good(`an allowance of ${allowance}`, media({ allowance }))),
  ...['', '-1', '+1', '1e3', '.5', '1.', '01', '0.0000001', '1000000000.000001', '1000000001', '1,5', 'NaN', '0x10', ' 1'].map((allowance) =>
    bad(`an allowance of ${JSON.stringify(allowance)}`, media({ allowance }), `spec.media.allowance: ${JSON.stringify(allowance)} must match`),
  ),
  bad('an allowance that is a number', media({ allowance: 100 }), 'spec.media.allowance: must be string'),
  good('a period in months', media({ periodMonths: 12 })),
  bad('a period of 13 months', media({ periodMonths: 13 }), 'spec.media.periodMonths: must be <= 12'),
  bad('a period of no days', media({ periodDays: 0 }), 'spec.media.periodDays: must be >= 1'),
  bad('a period in days and in months', media({ periodDays: 30, periodMonths: 1 }), 'spec.media: give periodDays or periodMonths, not both'),
  bad('101 tasks at once', media({ maxConcurrentTasks: 101 }), 'spec.media.maxConcurrentTasks: must be <= 100'),
  bad('2001 open tasks', media({ maxQueuedTasks: 2001 }), 'spec.media.maxQueuedTasks: must be <= 2000'),
  bad('no attempts', media({ attempts: 0 }), 'spec.media.attempts: must be >= 1'),
  good('a price for a kind and one for an operation', media({ prices: [{ kind: 'image', amount: '0.04' }, { operation: 'upscale', amount: '0', per: 'Megapixel' }] })),
  bad('a price for nothing', media({ prices: [{ amount: '1' }] }), 'spec.media.prices[0]: a price names a kind or an operation'),
  bad('a price for a kind and an operation', media({ prices: [{ kind: 'image', operation: 'trim', amount: '1' }] }), 'spec.media.prices[0]: a price names'),
  bad('a negative price', media({ prices: [{ kind: 'image', amount: '-0.04' }] }), 'spec.media.prices[0].amount: "-0.04" must match'),
  bad('a price without an amount', media({ prices: [{ kind: 'image' }] }), 'spec.media.prices[0].amount: is required'),
  bad('a price for a kind that there is not', media({ prices: [{ kind: 'smell', amount: '1' }] }), 'spec.media.prices[0].kind: must be one of image, video, music'),
  bad('two prices for one kind', media({ prices: [{ kind: 'image', amount: '1' }, { kind: 'image', amount: '2', per: 'Second' }] }), 'spec.media.prices: each kind has one price'),
  bad('two prices for one operation', media({ prices: [{ operation: 'trim', amount: '1' }, { operation: 'trim', amount: '1' }] }), 'spec.media.prices: each operation has'),
  bad('an unknown field of a price', media({ prices: [{ kind: 'image', amount: '1', currency: 'EUR' }] }), 'spec.media.prices[0].currency: unknown field'),
]

const windows: Row[] = [
  bad('a Coding plan without a weekly window', manifest('Plan', 'coder', { product: 'Coding', coding: { sessionWindow: { tokens: 1 } } }), 'spec.coding.weeklyWindow: is required'),
  bad('a window without tokens', coding({ sessionWindow: { durationSeconds: 60 } }), 'spec.coding.sessionWindow.tokens: is required'),
  bad('a window of no tokens', coding({ weeklyWindow: { tokens: 0 } }), 'spec.coding.weeklyWindow.tokens: must be >= 1'),
  good('a window of a million millions of tokens', coding({ weeklyWindow: { tokens: 1e12 } })),
  bad('a window of more', coding({ weeklyWindow: { tokens: 1e12 + 1 } }), 'spec.coding.weeklyWindow.tokens: must be <= 1000000000000'),
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
  bad('a key for a plan of another namespace', key({ planRef: { name: 'other/studio' } }), 'spec.planRef.name: "other/studio" must match'),
  bad('a Secret that leads elsewhere', key({ secretName: '../../etc' }), 'spec.secretName: "../../etc" must match'),
  bad('a Secret that is a dot', key({ secretName: '.owner' }), 'spec.secretName: ".owner" must match'),
  bad('a Secret with two dots in a row', key({ secretName: 'a..b' }), 'spec.secretName: "a..b" must match'),
  bad('a Secret name of 254 characters', key({ secretName: long(254) }), 'spec.secretName: must NOT have more than 253 characters'),
  bad('a negative revision', key({ rotationRevision: -1 }), 'spec.rotationRevision: must be >= 0'),
  bad('an empty limit', key({ limit: {} }), 'spec.limit: a limit is weeklyTokens'),
  bad('a limit in both units', key({ limit: { weeklyTokens: 1, amountPerPeriod: '1' } }), 'spec.limit: a limit is weeklyTokens'),
  good('a limit of nothing', key({ limit: { weeklyTokens: 0 } })),
]

const transitions: Row[] = [
  good('a plan is suspended', plan({ state: 'Suspended' }), plan({})),
  good('a suspended plan is active again', plan({ state: 'Active' }), plan({ state: 'Suspended' })),
  good('a retired plan is renamed', plan({ state: 'Retired', displayName: 'Old' }), plan({ state: 'Retired' })),
  bad('a retired plan is active again', plan({ state: 'Active' }), 'spec.state: a Retired plan stays Retired', plan({ state: 'Retired' })),
  bad('a retired plan is active again by leaving the state out', plan({}), 'spec.state: a Retired plan stays Retired', plan({ state: 'Retired' })),
  bad('a plan changes its product', plan({ product: 'Room' }), 'spec.product: the product of a plan cannot be changed', plan({})),
  good('a key is rotated', key({ rotationRevision: 3 }), key({ rotationRevision: 1 })),
  bad('a key is rotated back', key({ rotationRevision: 0 }), 'spec.rotationRevision: rotationRevision can only be raised', key({ rotationRevision: 1 })),
  bad('a key is rotated back by leaving the revision out', key({}), 'spec.rotationRevision: rotationRevision can only be raised', key({ rotationRevision: 1 })),
  bad('a revoked key is active again', key({ state: 'Active' }), 'spec.state: a Revoked key stays Revoked', key({ state: 'Revoked' })),
  good('a suspended key is revoked', key({ state: 'Revoked' }), key({ state: 'Suspended' })),
  good('a key moves to another plan', key({ planRef: { name: 'other' } }), key({})),
  bad('a Secret is renamed', key({ secretName: 'b' }), 'spec: secretName cannot be added, changed or removed', key({ secretName: 'a' })),
  bad('a Secret is added', key({ secretName: 'b' }), 'spec: secretName cannot be added', key({})),
  bad('a Secret is given up', key({}), 'spec: secretName cannot be added', key({ secretName: 'a' })),
]

/** Rows that only a file can bring: Kubernetes refuses them before it asks the CRD, or drops what it does not know. */
export const documents: Row[] = [
  good('what `kubectl get -o yaml` prints', {
    ...key({}),
    metadata: { name: 'ci', namespace: 'acme', uid: 'x', resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z', managedFields: [], labels: { a: 'b' }, annotations: {} },
    status: { conditions: [] },
  }),
  bad('a namespace that leads elsewhere', { ...key({}), metadata: { name: 'ci', namespace: '..' } }, 'metadata.namespace: ".." must match'),
  bad('an unknown field of the metadata', { ...key({}), metadata: { name: 'ci', lables: {} } }, 'metadata.lables: unknown field'),
  bad('a label that is a number', { ...key({}), metadata: { name: 'ci', labels: { a: 1 } } }, 'metadata.labels.a: must be string'),
  bad('no name', { ...key({}), metadata: {} }, 'metadata.name: is required'),
  bad('another API version', { ...key({}), apiVersion: 'tollgate.dev/v2' }, 'apiVersion: must be tollgate.dev/v1alpha1'),
  bad('another kind', { ...key({}), kind: 'Secret' }, 'kind: must be Plan or ApiKey'),
  bad('a list', { apiVersion: 'v1', kind: 'List', items: [] }, 'kind: must be Plan or ApiKey'),
  bad('a sentence', 'hello', 'kind: must be Plan or ApiKey'),
  bad('a prototype', JSON.parse('{"kind":"Plan","__proto__":{"polluted":true}}'), 'apiVersion: is required'),
]

export const rows: Row[] = [...shape, ...times, ...money, ...windows, ...keys, ...transitions]
