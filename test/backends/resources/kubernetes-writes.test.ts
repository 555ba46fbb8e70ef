/** Writes of `kubernetes:` (statuses, finalizers, Secrets, Events) to a server with scripted responses. */
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Refused, Unavailable } from '../../../src/domain/errors.ts'
import { openCache, type Cache } from '../../../src/backends/resources/kubernetes/informer-cache.ts'
import type { ApiResponse, Client, Method, RequestOptions } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openEvents } from '../../../src/backends/resources/kubernetes/event-recorder.ts'
import { FINALIZER, setFinalizer } from '../../../src/backends/resources/kubernetes/finalizer.ts'
import type { KubeObject } from '../../../src/backends/resources/kubernetes/api-objects.ts'
import { keptSecret, openSecrets, type TemplateOwner } from '../../../src/backends/resources/kubernetes/secrets.ts'
import { applyStatus } from '../../../src/backends/resources/kubernetes/status-subresource.ts'
import type { ApiKeyStatus } from '../../../src/backends/resources/resources.ts'

const OWNER: TemplateOwner = { kind: 'ApiKey', namespace: 'acme', name: 'ci', uid: 'uid-ci', template: {} }
const KEY = 'svc_live_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG012345'
const SECRET = { apiKey: KEY, keyId: 'uid-ci-0', mac: 'm' }

function object(name: string, version: number, more: Partial<KubeObject> = {}, metadata: Partial<KubeObject['metadata']> = {}): KubeObject {
  return { metadata: { name, namespace: 'acme', uid: `uid-${name}`, resourceVersion: String(version), creationTimestamp: '2026-01-05T00:00:00Z', ...metadata }, ...more }
}

type Reply = ApiResponse<object> | ((body: KubeObject) => ApiResponse<object>)

/** A server that sends these responses in order and records the requests. */
function server(...replies: Reply[]) {
  const asked: string[] = []
  const bodies: KubeObject[] = []
  const client = {
    async request(method: Method, path: string, { body }: RequestOptions = {}) {
      asked.push(`${method} ${path.replace(/^.*\/namespaces\/acme/, '')}`)
      bodies.push(structuredClone(body) as KubeObject)
      const reply = replies.shift()
      if (!reply) throw new Error(`${method} ${path} was not expected`)
      return typeof reply === 'function' ? reply(structuredClone(body) as KubeObject) : structuredClone(reply)
    },
  }
  return { client: client as unknown as Client, asked, bodies, left: () => replies.length }
}

const ok = (body: object): ApiResponse<object> => ({ status: 200, body })
const CONFLICT: ApiResponse<object> = { status: 409, body: { reason: 'Conflict' } }
const GONE: ApiResponse<object> = { status: 404, body: { reason: 'NotFound' } }
const FORBIDDEN: ApiResponse<object> = { status: 403, body: { message: 'it may not be' } }
const TERMINATING: ApiResponse<object> = { status: 403, body: { details: { causes: [{ reason: 'NamespaceTerminating' }] } } }
/** A response with the written object as the server stores it. */
function made(version: number, status = 201): Reply {
  return ({ metadata, ...rest }) => {
    const body: object = { ...rest, metadata: { ...metadata, uid: 'uid-secret', resourceVersion: String(version) } }
    return { status, body }
  }
}

const replaced = made(8, 200)
const often = <T>(times: number, ...items: T[]): T[] => Array.from({ length: times }, () => items).flat()

function cacheOf(...objects: KubeObject[]): Cache {
  const cache = openCache()
  for (const one of objects) cache.put(null, structuredClone(one))
  return cache
}

/** The outcome, or `refused` or `unavailable` for a rejection. */
async function outcomeOf(work: Promise<unknown>): Promise<unknown> {
  return work.catch((error: unknown) => {
    if (!(error instanceof Unavailable)) throw error
    return error.cause instanceof Refused ? 'refused' : 'unavailable'
  })
}

function statusOf(status: 'True' | 'False', reason: string): ApiKeyStatus {
  return { observedGeneration: 1, conditions: [{ type: 'Ready', status, reason, message: 'm', observedGeneration: 1, lastTransitionTime: '2026-01-05T00:00:00Z' }] }
}

t.test('a status is written only where it differs', async (t) => {
  const [status, before] = [statusOf('True', 'Issued'), object('ci', 5, { status: { observedGeneration: -1 } })]
  const rows: [why: string, cached: KubeObject[], replies: Reply[], outcome: unknown, asked: number][] = [
    ['it differs', [before], [ok({ ...before, status, metadata: { ...before.metadata, resourceVersion: '6' } })], before, 1],
    ['it is the same', [{ ...before, status }], [], 'unchanged', 0],
    ['the resource was deleted, and the watch delivered it', [], [], 'gone', 0],
    ['the resource was deleted, and the watch is behind', [before], [GONE], 'gone', 1],
    ['a conflict', [before], [CONFLICT], 'unavailable', 1],
    ['the permission is missing', [before], [FORBIDDEN], 'refused', 1],
  ]
  for (const [why, cached, replies, outcome, asked] of rows) {
    const { client, asked: requests, bodies } = server(...replies)
    const cache = cacheOf(...cached)
    t.same(await outcomeOf(applyStatus(client, cache, OWNER, status)), outcome, why)
    t.same(requests, often(asked, 'PATCH /apikeys/ci/status'), why)
    if (asked > 0) t.match(bodies[0], { metadata: { uid: 'uid-ci' }, status }, 'never another resource of its name')
    if (typeof outcome !== 'object') continue
    t.equal(await applyStatus(client, cache, OWNER, status), 'unchanged', 'the response is cached')
  }
})

t.test('a status with usage is written without it where the CRD of an earlier release does not declare it', async (t) => {
  const plan = { kind: 'Plan', namespace: 'acme', name: 'pro' } as const
  const status = { observedGeneration: 1, activeKeys: 2, conditions: [] }
  const used = { ...status, usage: { time: '2026-01-05T00:00:00Z', weeklyTokens: 5 } }
  const fails = (message: string): Reply => () => {
    throw new Unavailable('resources', new Error(`PATCH returned 500: ${message}`))
  }
  const old = server(fails('failed to create typed patch object: .status.usage: field not declared in schema'), ok(object('pro', 6, { status })))
  t.match(await applyStatus(old.client, cacheOf(object('pro', 5)), plan, used), { metadata: { name: 'pro' } })
  t.same(old.bodies.map(({ status }) => status), [used, status])
  const broken = server(fails('etcd is away'))
  t.equal(await outcomeOf(applyStatus(broken.client, cacheOf(object('pro', 5)), plan, used)), 'unavailable')
})

t.test('an edit of another author that the response to a write has is still reported by the watch', async (t) => {
  const status = statusOf('True', 'Issued')
  const version = (resourceVersion: number, generation: number, more: Partial<KubeObject> = {}) => object('ci', resourceVersion, more, { generation })
  const { client } = server(ok(version(7, 11, { status })), CONFLICT, ok(version(8, 11)), ok(version(9, 11)))
  for (const write of [(cache: Cache) => applyStatus(client, cache, OWNER, status), (cache: Cache) => setFinalizer(client, cache, OWNER, true)]) {
    const cache = cacheOf(version(5, 10))
    await write(cache)
    t.match(cache.put(null, version(6, 11)), { before: { metadata: { generation: 10 } }, after: { metadata: { generation: 11 } } })
  }
})

t.test('the finalizer is added and removed beside others, despite concurrent writes', async (t) => {
  const having = (version: number, ...finalizers: string[]) => object('ci', version, {}, { finalizers })
  const terminating = object('ci', 5, {}, { finalizers: [FINALIZER, 'x'], deletionTimestamp: '2026-01-06T00:00:00Z' })
  const [patch, get] = ['PATCH /apikeys/ci', 'GET /apikeys/ci']
  const rows: [why: string, isWanted: boolean, cached: KubeObject[], replies: Reply[], outcome: string, asked: string[], written?: object][] = [
    ['it is present', true, [having(5, FINALIZER)], [], 'done', []],
    ['it is missing', true, [having(5, 'x')], [ok(having(6, 'x', FINALIZER))], 'done', [patch], { resourceVersion: '5', finalizers: ['x', FINALIZER] }],
    ['a conflict, then success', true, [having(5)], [CONFLICT, ok(having(6, 'x')), ok(having(7, 'x', FINALIZER))], 'done', [patch, get, patch], { resourceVersion: '6', finalizers: ['x', FINALIZER] }],
    ['a conflict with a client that added it', true, [having(5)], [CONFLICT, ok(having(6, FINALIZER))], 'done', [patch, get]],
    ['conflicts without end', true, [having(5)], often(5, CONFLICT, ok(having(6))), 'unavailable', often(5, patch, get)],
    ['the resource does not exist', true, [], [], 'gone', []],
    ['another resource has its name', true, [object('ci', 5, {}, { uid: 'other' })], [], 'gone', []],
    ['it was deleted meanwhile', true, [having(5)], [GONE], 'gone', [patch]],
    ['it was deleted after a conflict', true, [having(5)], [CONFLICT, GONE], 'gone', [patch, get]],
    ['it is terminating without the finalizer', true, [{ ...terminating, metadata: { ...terminating.metadata, finalizers: ['x'] } }], [], 'gone', []],
    ['the permission is missing', true, [having(5)], [FORBIDDEN], 'refused', [patch]],
    ['the permission to read is missing', true, [having(5)], [CONFLICT, FORBIDDEN], 'refused', [patch, get]],
    ['it is removed', false, [terminating], [ok(having(6, 'x'))], 'done', [patch], { resourceVersion: '5', finalizers: ['x'] }],
    ['it was removed before', false, [having(5, 'x')], [], 'done', []],
  ]
  for (const [why, isWanted, cached, replies, outcome, asked, written] of rows) {
    const { client, asked: requests, bodies } = server(...replies)
    t.equal(await outcomeOf(setFinalizer(client, cacheOf(...cached), OWNER, isWanted)), outcome, why)
    t.same(requests, asked, why)
    if (written) t.same(bodies.at(-1)?.metadata, written, why)
  }
})

/** The Secret as the server has it after a `put`. */
async function written(): Promise<KubeObject> {
  const { client } = server(made(5))
  const cache = openCache()
  await openSecrets(client, cache, () => true).put(OWNER, 'key', SECRET)
  return cache.get('acme', 'key') as KubeObject
}

t.test('a Secret is created, repaired, or left to its owner', async (t) => {
  const ours = await written()
  const foreign = object('key', 6, { type: 'Opaque', data: {} }, { ownerReferences: [] })
  const edited: KubeObject = { ...ours, data: { 'api-key': 'eA==' } }
  const [post, put, get, remove] = ['POST /secrets', 'PUT /secrets/key', 'GET /secrets/key', 'DELETE /secrets/key']
  const later = { ...edited, metadata: { ...edited.metadata, resourceVersion: '6' } }
  const rows: [why: string, cached: KubeObject[], replies: Reply[], outcome: string, asked: string[]][] = [
    ['it does not exist', [], [made(5)], 'written', [post]],
    ['it is as wanted', [ours], [], 'unchanged', []],
    ['it was edited', [edited], [replaced], 'written', [put]],
    ['a foreign Secret has its name', [], [CONFLICT, ok(foreign)], 'conflict', [post, get]],
    ['a Secret whose owner reference was removed has its name', [{ ...ours, metadata: { ...ours.metadata, ownerReferences: [] } }], [], 'conflict', []],
    ['it was created before', [], [CONFLICT, ok(ours)], 'unchanged', [post, get]],
    ['a conflict, then success', [edited], [CONFLICT, ok(later), replaced], 'written', [put, get, put]],
    ['it was deleted meanwhile', [edited], [GONE, GONE, made(7)], 'written', [put, get, post]],
    ['conflicts without end', [edited], often(4, CONFLICT, ok(later)), 'unavailable', often(4, put, get)],
    ['an immutable one', [{ ...edited, immutable: true } as KubeObject], [ok({}), made(7)], 'written', [remove, post]],
    ['one of another type', [{ ...ours, type: 'Opaque' }], [ok({}), made(7)], 'written', [remove, post]],
    ['one of another type, replaced by a foreign one meanwhile', [{ ...ours, type: 'Opaque' }], [CONFLICT, ok({ ...foreign, metadata: { ...foreign.metadata, uid: 'other' } }), CONFLICT, ok(foreign)], 'conflict', [remove, get, post, get]],
    ['one of another type, which cannot be deleted', [{ ...ours, type: 'Opaque' }], [CONFLICT, ok(ours)], 'unavailable', [remove, get]],
    ['its namespace does not exist', [], [GONE], 'gone', [post]],
    ['its namespace is terminating', [], [TERMINATING], 'gone', [post]],
    ['the permission to create is missing', [], [FORBIDDEN], 'refused', [post]],
    ['the permission to read is missing', [], [CONFLICT, FORBIDDEN], 'refused', [post, get]],
    ['the permission to update is missing', [edited], [FORBIDDEN], 'refused', [put]],
  ]
  for (const [why, cached, replies, outcome, asked] of rows) {
    const { client, asked: requests, bodies } = server(...replies)
    const cache = cacheOf(...cached)
    const secrets = openSecrets(client, cache, () => true)
    t.equal(await outcomeOf(secrets.put(OWNER, 'key', SECRET)), outcome, why)
    t.same(requests, asked, why)
    if (asked[0] === remove) t.match(bodies[0], { preconditions: { uid: 'uid-secret' } }, 'only the Secret of that uid')
    if (outcome === 'written') t.same(await secrets.get(OWNER, 'key'), SECRET, why)
  }
})

t.test('a Secret has the labels and annotations of the template, loses those that it no longer has, and keeps what others added', async (t) => {
  const cache = openCache()
  const { client } = server(made(5), made(7, 200), made(8, 200))
  const secrets = openSecrets(client, cache, () => true)
  const put = (template: TemplateOwner['template']) => secrets.put({ ...OWNER, template }, 'key', SECRET)
  const found = () => cache.get('acme', 'key') as KubeObject
  const own = { 'app.kubernetes.io/managed-by': 'tollgate', 'tollgate.dev/api-key': 'ci' }
  t.equal(await put({ labels: { team: 'one', tier: 'a' }, annotations: { note: 'x' } }), 'written')
  t.same(found().metadata.labels, { ...own, team: 'one', tier: 'a' })
  t.match(found().metadata.annotations, { note: 'x', 'tollgate.dev/mac': 'm' })
  cache.put(null, { ...found(), metadata: { ...found().metadata, resourceVersion: '6', labels: { ...found().metadata.labels, theirs: 'yes' } } })
  t.match(await secrets.get({ ...OWNER, template: { labels: { team: 'two' } } }, 'key'), { isModified: true })
  t.equal(await put({ labels: { team: 'two' } }), 'written')
  t.same(found().metadata.labels, { ...own, team: 'two', theirs: 'yes' })
  t.equal(found().metadata.annotations?.['note'], undefined)
  t.equal(await put({}), 'written')
  t.same(found().metadata.labels, { ...own, theirs: 'yes' })
  t.same(found().metadata.annotations, { 'tollgate.dev/mac': 'm' })
  t.equal(await put({}), 'unchanged')
})

t.test('a Secret in which others wrote a text longer than a key is not expanded in the template', async (t) => {
  const ours = await written()
  const owner = { ...OWNER, template: { data: { config: '$(api-key)$(key-id)'.repeat(600) } } }
  const text = Buffer.alloc(1024 * 1024, 'x').toString()
  for (const data of [{ 'api-key': text }, { 'key-id': text }]) {
    const encoded = Object.fromEntries(Object.entries(data).map(([name, entry]) => [name, Buffer.from(entry).toString('base64')]))
    t.match(await openSecrets(server().client, cacheOf({ ...ours, data: encoded }), () => true).get(owner, 'key'), { isModified: true })
  }
})

t.test('an annotation that others made long removes no more than a template can have', async (t) => {
  const ours = await written()
  const names = [...Array(100).keys()].map((name) => `l${name}`)
  const labels = { ...ours.metadata.labels, ...Object.fromEntries(names.map((name) => [name, ''])) }
  const annotations = { ...ours.metadata.annotations, 'tollgate.dev/secret-template': JSON.stringify({ labels: names, annotations: [] }) }
  const cache = cacheOf({ ...ours, metadata: { ...ours.metadata, labels, annotations } })
  t.equal(await openSecrets(server(replaced).client, cache, () => true).put(OWNER, 'key', SECRET), 'written')
  t.equal(Object.keys(cache.get('acme', 'key')?.metadata.labels ?? {}).filter((name) => names.includes(name)).length, 36)
})

t.test('of a labelled Secret that no ApiKey owns, and of a large one, an outline is kept', async (t) => {
  const ours = await written()
  const large = { data: { ...ours.data, more: 'x'.repeat(1024 * 1024) } }
  const noted = { ...ours.metadata, annotations: { ...ours.metadata.annotations, note: 'x'.repeat(200_000) } }
  const [owner] = ours.metadata.ownerReferences ?? []
  const longOwner = { ...ours.metadata, ownerReferences: [{ ...owner!, name: 'x'.repeat(1024 * 1024) }] }
  const foreign = { ...ours.metadata, ownerReferences: [] }
  t.same(keptSecret(structuredClone(ours)), { ...ours, metadata: { ...ours.metadata, managedFields: undefined } })
  const rows: [why: string, secret: KubeObject, isOwned: boolean][] = [
    ['without an owner', { ...ours, metadata: foreign }, false],
    ['a large one without an owner', { ...ours, ...large, metadata: foreign }, false],
    ['a large one', { ...ours, ...large }, true],
    ['one with a large annotation', { ...ours, metadata: noted }, true],
    ['one with a long name of its owner', { ...ours, metadata: longOwner }, false],
  ]
  for (const [why, secret, isOwned] of rows) {
    const kept = keptSecret(structuredClone(secret))
    t.ok(JSON.stringify(kept).length < 1024, why)
    t.match(kept, { metadata: { name: 'key', namespace: 'acme', labels: { 'tollgate.dev/api-key': 'ci' } } }, why)

    const { client, asked } = server(...(isOwned ? [ok(secret), ok(secret), replaced, ok({})] : []))
    const secrets = openSecrets(client, cacheOf(kept), () => true)
    t.same(secrets.changed({ before: null, after: kept }), [{ kind: 'ApiKey', namespace: 'acme', name: 'ci' }], why)
    t.match(await secrets.get(OWNER, 'key'), isOwned ? SECRET : null, why)
    t.equal(await secrets.put(OWNER, 'key', { ...SECRET, keyId: 'uid-ci-1' }), isOwned ? 'written' : 'conflict', why)
    await secrets.remove(OWNER)
    t.same(asked, isOwned ? ['GET /secrets/key', 'GET /secrets/key', 'PUT /secrets/key', 'DELETE /secrets/key'] : [], why)
  }
})

t.test('the Secrets of a deleted owner are removed, and no others', async (t) => {
  const ours = await written()
  const { client, asked } = server(made(5), ok({}))
  let isPresent = true
  const cache = openCache()
  const secrets = openSecrets({ ...client, request: (...args) => client.request(...args).finally(() => (isPresent = false)) as never }, cache, () => isPresent)
  t.equal(await secrets.put(OWNER, 'key', SECRET), 'gone')
  t.same(asked, ['POST /secrets', 'DELETE /secrets/key'])
  t.equal(await secrets.put(OWNER, 'key', SECRET), 'gone')
  t.equal(asked.length, 2, 'nothing is written for a deleted owner')

  const rows: [why: string, replies: Reply[], outcome: unknown][] = [
    ['it exists', [ok({})], undefined],
    ['it was deleted before', [GONE], undefined],
    ['another Secret has its name', [CONFLICT, ok(object('key', 9))], undefined],
    ['it still exists', [CONFLICT, ok(ours)], 'unavailable'],
    ['the permission to delete is missing', [FORBIDDEN], 'refused'],
  ]
  for (const [why, replies, outcome] of rows) {
    const { client, left } = server(...replies)
    const cache = cacheOf(ours)
    const secrets = openSecrets(client, cache, () => true)
    secrets.changed({ before: null, after: ours })
    await secrets.remove({ ...OWNER, uid: 'other' })
    t.equal(await outcomeOf(secrets.remove(OWNER)), outcome, why)
    t.equal(left(), 0, why)
    t.equal(cache.get('acme', 'key') === null, outcome === undefined, why)
  }

  const elsewhere = { ...ours, metadata: { ...ours.metadata, namespace: 'globex' } }
  const there = server(ok({}))
  const ownedBoth = openSecrets(there.client, cacheOf(ours), () => true)
  ownedBoth.changed({ before: null, after: ours })
  ownedBoth.changed({ before: null, after: elsewhere })
  ownedBoth.changed({ before: elsewhere, after: null })
  await ownedBoth.remove(OWNER)
  t.same(there.asked, ['DELETE /secrets/key'], 'a Secret elsewhere that named the same owner does not hide it')
})

t.test('the message of a webhook that quotes the key is withheld', async (t) => {
  const encoded = Buffer.from(KEY).toString('base64')
  const messageOf = async (message: string) => {
    const { client } = server({ status: 422, body: { message } })
    const owner = { ...OWNER, template: { data: { config: 'key = $(api-key)', url: 'https://api.example.com', header: 'x-example-authorization: $(api-key)' } } }
    return openSecrets(client, openCache(), () => true).put(owner, 'key', SECRET).then(String, (error: Unavailable) => (error.cause as Refused).message)
  }
  t.equal(await messageOf('no more than 3 Secrets'), 'POST /api/v1/namespaces/acme/secrets returned 422: no more than 3 Secrets')
  t.match(await messageOf('https://api.example.com is no host'), 'https://api.example.com is no host', 'what is not the key may be quoted')
  t.match(await messageOf('x-example-authorization is unknown'), 'x-example-authorization is unknown', 'so may what is beside it in an entry')
  t.equal((await messageOf('-'.repeat(5000))).length, 'POST /api/v1/namespaces/acme/secrets returned 422: '.length + 1024, 'a long message is cut')
  const inside = ['', ' ', '  '].map((before) => Buffer.from(before + KEY).toString('base64').slice(20, 32))
  for (const quote of [KEY, encoded, ...inside, Buffer.from(`key = ${KEY}`).toString('base64'), `"${encoded.slice(0, 30)}…`, `x${KEY.slice(10, 22)}x`]) {
    t.equal(await messageOf(`denied: data is ${quote}`), 'POST /api/v1/namespaces/acme/secrets returned 422: the message quotes the key and is withheld', quote)
  }
})

/** An event recorder over a server that responds when the test lets it. */
function openRecorder(t: Test) {
  const held: (() => void)[] = []
  const sent: { reason: string; note: string; type: string; regarding: { name: string } }[] = []
  const server = { inFlight: 0, maxInFlight: 0, now: 0, response: { status: 201, body: {} } as ApiResponse<object> }
  const warnings: string[] = []
  const client = {
    async request(_: Method, path: string, { body }: RequestOptions) {
      t.equal(path, '/apis/events.k8s.io/v1/namespaces/acme/events')
      server.maxInFlight = Math.max(server.maxInFlight, ++server.inFlight)
      await new Promise<void>((resolve) => held.push(resolve))
      server.inFlight--
      sent.push(body as (typeof sent)[number])
      return server.response
    },
  }
  const events = openEvents(client as unknown as Client, { warn: (_, message) => warnings.push(message) }, () => server.now)
  const respondToAll = async () => {
    for (await turn(); held.length > 0; await turn()) held.shift()?.()
  }
  return { events, sent, server, warnings, respondToAll }
}

const issued = statusOf('True', 'Issued')
const suspended = statusOf('False', 'PlanSuspended')

t.test('each transition of Ready has an Event, and nothing else has', async (t) => {
  const { events, sent, respondToAll } = openRecorder(t)
  events.transition('ApiKey', object('new', 1, { status: { observedGeneration: -1 } }), suspended)
  events.transition('ApiKey', object('same', 1, { status: issued }), { ...statusOf('True', 'Issued'), observedGeneration: 2 })
  events.transition('ApiKey', object('rotated', 1, { status: issued }), statusOf('True', 'RotationInProgress'))
  events.transition('ApiKey', object('none', 1, { status: issued }), { observedGeneration: 1, conditions: [] })
  await respondToAll()
  t.same(sent.map(({ regarding, reason, type, note }) => `${regarding.name} ${type} ${reason} ${note}`), ['new Warning PlanSuspended m', 'rotated Normal RotationInProgress m'])
})

t.test('a burst of a hundred transitions is recorded, four at a time; then five a second', async (t) => {
  const { events, sent, server, respondToAll } = openRecorder(t)
  const suspend = async (from: number, to: number) => {
    for (let n = from; n < to; n++) events.transition('ApiKey', object(`k${n}`, 1, { status: issued }), suspended)
    await respondToAll()
  }
  await suspend(0, 130)
  t.same(sent.map(({ regarding }) => regarding.name), Array.from({ length: 100 }, (_, n) => `k${n}`))
  t.equal(server.maxInFlight, 4)
  server.now += 1_000
  await suspend(200, 210)
  t.same(sent.slice(100).map(({ regarding }) => regarding.name), ['k200', 'k201', 'k202', 'k203', 'k204'])
  server.now -= 10_000
  await suspend(300, 310)
  t.equal(sent.length, 105, 'a clock set back adds no tokens')
  server.now += 3_600_000
  await suspend(400, 600)
  t.equal(sent.length, 205, 'no time adds more than a burst')
})

t.test('a missing permission to write Events is logged once, until it is granted', async (t) => {
  const { events, sent, server, warnings, respondToAll } = openRecorder(t)
  const transition = async (response: ApiResponse<object>) => {
    server.response = response
    events.transition('ApiKey', object('ci', 1, { status: issued }), suspended)
    await respondToAll()
  }
  for (const response of [TERMINATING, FORBIDDEN, FORBIDDEN, { status: 201, body: {} }, FORBIDDEN]) await transition(response)
  t.equal(sent.length, 5)
  t.same(warnings, ['Kubernetes Events cannot be written', 'Kubernetes Events cannot be written'])
})
