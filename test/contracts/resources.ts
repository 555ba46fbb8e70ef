/** What every source of declared resources promises. */
import type { ApiKeyStatus, DeclaredKey, Ref, Resources } from '../../src/backends/resources/resources.ts'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import type { Promises } from './run-contract.ts'
import { ci, keyOf, ownerOf, SECRET, studio, watching } from './resources/acme.ts'
import { leadingPromises } from './resources/leading.ts'
import { retainingPromises } from './resources/retaining.ts'

type Document = Record<string, unknown>

/** Empty at first: a source, and what an operator does to it. The place closes what it opened. */
export type Place = {
  /** What a namespace is really called here: a source may be shared by several tests. */
  namespace(name: 'acme' | 'globex' | 'other'): string
  open(): Promise<Resources>
  /** Those of the namespace `acme` go to what that is really called. Declares these, in place of earlier ones of the same names. May reject if the source refuses at once. */
  declare(...documents: Document[]): Promise<void>
  withdraw(ref: Ref): Promise<void>
  /** Whether somebody who looks past the source finds the resource. */
  isThere(ref: Ref): Promise<boolean>
  /** Resolves when the source has seen everything that was done so far. */
  settle(): Promise<void>
  /** A Secret that somebody else made. */
  makeForeignSecret(namespace: string, name: string): Promise<void>
  /** What lies in a Secret, ours or not; null when there is none. */
  secretEntries(namespace: string, name: string): Promise<Record<string, string> | null>
  /** Somebody changes our Secret by hand. */
  tamper(namespace: string, name: string): Promise<void>
}

function ready(message: string): ApiKeyStatus {
  const condition = { type: 'Ready', status: 'True', reason: 'Issued', message, observedGeneration: 1, lastTransitionTime: '2026-01-05T00:00:00.000Z' } as const
  return { observedGeneration: 1, keyID: 'uid-0', keyPrefix: 'svc_live_abcdef', rotationRevision: 0, issuedTime: '2026-01-05T00:00:00.000Z', conditions: [condition] }
}

const declaring: Promises<Place> = {
  'what is declared before the start is told by the first look, with the defaults filled in': async (t, place) => {
    await place.declare(mediaPlan('studio'), apiKey('ci', 'studio'))
    const { resources, told } = await watching(place)
    t.same([...new Set(told)].sort(), ['ApiKey acme/ci', 'Plan acme/studio'])
    t.match(resources.health(), { ok: true, detail: String })
    t.match(resources.get(studio(place)), { kind: 'Plan', metadata: { name: 'studio', namespace: place.namespace('acme'), generation: 1 }, spec: { state: 'Active', media: { maxConcurrentTasks: 4 } } })
    t.ok(resources.get(studio(place))?.metadata.uid)
    t.ok(Date.parse(resources.get(studio(place))?.metadata.creationTimestamp ?? '') > 0)
    t.equal(resources.get({ ...studio(place), namespace: place.namespace('other') }), null)
  },

  'resources are listed by kind and by namespace': async (t, place) => {
    const elsewhere = { ...codingPlan('coder'), metadata: { name: 'coder', namespace: place.namespace('globex') } }
    await place.declare(mediaPlan('studio'), apiKey('ci', 'studio'), elsewhere)
    const { resources } = await watching(place)
    t.same(resources.list('Plan').map(({ metadata }) => metadata.name).sort(), ['coder', 'studio'])
    t.same(resources.list('Plan', place.namespace('globex')).map(({ metadata }) => metadata.name), ['coder'])
    t.same(resources.list('ApiKey', place.namespace('globex')), [])
  },

  'a change is told and raises the generation; the identity stays': async (t, place) => {
    await place.declare(mediaPlan('studio'))
    const { resources, told } = await watching(place)
    const before = resources.get(studio(place))
    told.length = 0
    await place.declare(mediaPlan('studio', { state: 'Suspended' }))
    await place.settle()
    t.same([...new Set(told)], ['Plan acme/studio'])
    t.match(resources.get(studio(place)), { metadata: { uid: before?.metadata.uid, generation: 2, creationTimestamp: before?.metadata.creationTimestamp }, spec: { state: 'Suspended' } })
    await place.declare(mediaPlan('studio', { requestsPerMinute: 600, state: 'Suspended' }))
    await place.settle()
    t.equal(resources.get(studio(place))?.metadata.generation, 2, 'saying a default changes nothing')
    await place.declare({ ...mediaPlan('studio', { state: 'Suspended' }), metadata: { name: 'studio', namespace: place.namespace('acme'), labels: { tier: 'gold' } } })
    await place.settle()
    t.match(resources.get(studio(place)), { metadata: { generation: 2, labels: { tier: 'gold' } } })
  },

  'a change that breaks a rule is not there': async (t, place) => {
    await place.declare(mediaPlan('studio', { state: 'Retired' }))
    const { resources } = await watching(place)
    for (const document of [mediaPlan('studio'), mediaPlan('studio', { state: 'Retired', requestsPerMinute: 0 })]) {
      await place.declare(document).catch(() => {})
      await place.settle()
      t.match(resources.get(studio(place)), { metadata: { generation: 1 }, spec: { state: 'Retired', requestsPerMinute: 600 } })
    }
  },

  'what goes is told and gone, and what comes under its name is another': async (t, place) => {
    await place.declare(mediaPlan('studio'))
    const { resources, told } = await watching(place)
    const before = resources.get(studio(place))
    told.length = 0
    await place.withdraw(studio(place))
    await place.settle()
    t.same([...new Set(told)], ['Plan acme/studio'])
    t.equal(resources.get(studio(place)), null)
    t.same(resources.list('Plan'), [])
    await place.declare(mediaPlan('studio', { product: 'Room' }))
    await place.settle()
    t.match(resources.get(studio(place)), { metadata: { generation: 1 }, spec: { product: 'Room' } }, 'a new resource is bound by nothing of the old one')
    t.not(resources.get(studio(place))?.metadata.uid, before?.metadata.uid)
  },

  'a restart changes nothing, and sees what went meanwhile': async (t, place) => {
    await place.declare(mediaPlan('studio'), apiKey('ci', 'studio'))
    const first = await watching(place)
    const [plan, key] = [first.resources.get(studio(place)), first.resources.get(ci(place))]
    await first.resources.close()
    await place.withdraw(ci(place))
    await place.declare(mediaPlan('studio', { displayName: 'New' }))
    const { resources, told } = await watching(place)
    await place.settle()
    t.match(resources.get(studio(place)), { metadata: { uid: plan?.metadata.uid, creationTimestamp: plan?.metadata.creationTimestamp, generation: 2 } })
    t.ok(key)
    t.equal(resources.get(ci(place)), null)
    t.ok(told.includes('Plan acme/studio'))
  },
}

const writing: Promises<Place> = {
  'a status is read as it was written, and goes with its resource': async (t, place) => {
    await place.declare(mediaPlan('studio'), apiKey('ci', 'studio'))
    const { resources } = await watching(place)
    t.equal(await resources.status(ci(place)), null)
    t.equal(await resources.setStatus(ci(place), ready('one')), true)
    t.same(await resources.status(ci(place)), ready('one'))
    t.equal(await resources.setStatus(ci(place), ready('two')), true)
    t.same(await resources.status(ci(place)), ready('two'))
    t.equal(resources.isObserved(ci(place)), true)
    t.equal(resources.get(ci(place))?.metadata.generation, 1, 'a status is no change')
    await place.withdraw(ci(place))
    await place.settle()
    t.equal(await resources.setStatus(ci(place), ready('late')), false)
    t.equal(await resources.status(ci(place)), null)
  },

  'what was declared, edited or deleted since its status was written is not observed': async (t, place) => {
    await place.declare(apiKey('ci', 'studio'), apiKey('web', 'studio'))
    const { resources } = await watching(place)
    t.equal(resources.isObserved(ci(place)), false)
    for (const name of ['ci', 'web']) await resources.setStatus(ci(place, name), ready('one'))
    t.equal(resources.isObserved(ci(place)), true)
    await place.declare(apiKey('ci', 'studio', { limit: { amountPerPeriod: '1' } }))
    await place.withdraw(ci(place, 'web'))
    await place.settle()
    t.same(['ci', 'web', 'never'].map((name) => resources.isObserved(ci(place, name))), [false, false, false])
  },

  'a Secret is written once, read back, and removed with all that the key owns': async (t, place) => {
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key' }))
    const { resources } = await watching(place)
    const key = keyOf(resources, ci(place))
    t.equal(await resources.secret(key, 'ci-key'), null)
    t.equal(await resources.putSecret(key, 'ci-key', SECRET), 'written')
    t.equal(await resources.putSecret(key, 'ci-key', SECRET), 'unchanged')
    t.same(await resources.secret(key, 'ci-key'), SECRET)
    t.same(await place.secretEntries(place.namespace('acme'), 'ci-key'), { 'api-key': SECRET.apiKey, 'key-id': SECRET.keyId })
    const rotated = { apiKey: 'svc_live_second', keyId: 'uid-1', mac: 'bb' }
    t.equal(await resources.putSecret(key, 'ci-key', rotated), 'written')
    t.same(await resources.secret(key, 'ci-key'), rotated)
    await resources.removeSecrets(ownerOf(key))
    await resources.removeSecrets(ownerOf(key))
    t.equal(await resources.secret(key, 'ci-key'), null)
    t.equal(await place.secretEntries(place.namespace('acme'), 'ci-key'), null)
  },

  'a Secret has the further entries of the template, follows its changes, and loses what it no longer has': async (t, place) => {
    const entries = () => place.secretEntries(place.namespace('acme'), 'ci-key')
    const own = { 'api-key': SECRET.apiKey, 'key-id': SECRET.keyId }
    const data = { OPENAI_API_KEY: '$(api-key)', 'config.toml': 'key = "$(api-key)" # $(key-id) $(other)' }
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key', secretTemplate: { data } }))
    const { resources } = await watching(place)
    await resources.putSecret(keyOf(resources, ci(place)), 'ci-key', SECRET)
    t.same(await entries(), { ...own, OPENAI_API_KEY: SECRET.apiKey, 'config.toml': `key = "${SECRET.apiKey}" # ${SECRET.keyId} $(other)` })
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key', secretTemplate: { data: { OTHER: 'text' } } }))
    await place.settle()
    const changed = keyOf(resources, ci(place))
    t.same(await resources.secret(changed, 'ci-key'), { ...SECRET, isModified: true })
    t.equal(await resources.putSecret(changed, 'ci-key', SECRET), 'written')
    t.same(await resources.secret(changed, 'ci-key'), SECRET)
    t.same(await entries(), { ...own, OTHER: 'text' })
  },

  'a Secret of somebody else is neither read, written nor removed': async (t, place) => {
    await place.declare(apiKey('ci', 'studio', { secretName: 'shared' }), apiKey('other', 'studio', { secretName: 'shared' }))
    await place.makeForeignSecret(place.namespace('acme'), 'foreign')
    const { resources } = await watching(place)
    const [key, other] = [keyOf(resources, ci(place)), keyOf(resources, ci(place, 'other'))]
    const foreign = await place.secretEntries(place.namespace('acme'), 'foreign')
    t.equal(await resources.putSecret(key, 'foreign', SECRET), 'conflict')
    t.equal(await resources.secret(key, 'foreign'), null)
    t.equal(await resources.putSecret(key, 'shared', SECRET), 'written')
    t.equal(await resources.putSecret(other, 'shared', { ...SECRET, apiKey: 'stolen' }), 'conflict')
    t.equal(await resources.secret(other, 'shared'), null)
    await resources.removeSecrets(ownerOf(other))
    t.same(await place.secretEntries(place.namespace('acme'), 'foreign'), foreign)
    t.match(await place.secretEntries(place.namespace('acme'), 'shared'), { 'api-key': SECRET.apiKey })
  },

  'a Secret that somebody changed by hand is told, and can be put right': async (t, place) => {
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key' }))
    const { resources, told } = await watching(place)
    const key = keyOf(resources, ci(place))
    await resources.putSecret(key, 'ci-key', SECRET)
    await place.settle()
    told.length = 0
    await place.tamper(place.namespace('acme'), 'ci-key')
    await place.settle()
    t.same([...new Set(told)], ['ApiKey acme/ci'])
    t.equal(await resources.putSecret(key, 'ci-key', SECRET), 'written')
    t.same(await resources.secret(key, 'ci-key'), SECRET)
  },

  'a key that is gone leaves no Secret behind, and gets none any more': async (t, place) => {
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key' }))
    const { resources } = await watching(place)
    const key = keyOf(resources, ci(place))
    await resources.putSecret(key, 'ci-key', SECRET)
    await place.withdraw(ci(place))
    await place.settle()
    await resources.removeSecrets(ownerOf(key))
    t.equal(await place.secretEntries(place.namespace('acme'), 'ci-key'), null)
    t.equal(await resources.putSecret(key, 'ci-key', SECRET), 'gone')
    t.equal(await place.secretEntries(place.namespace('acme'), 'ci-key'), null)
  },

  'closing twice is harmless': async (t, place) => {
    const { resources } = await watching(place)
    await resources.close()
    await resources.close()
    t.pass()
  },
}

const authoring: Promises<Place> = {
  'a key that is issued is declared like any other, once': async (t, place) => {
    await place.declare(codingPlan('coder'))
    const { resources, told } = await watching(place)
    const named = { namespace: place.namespace('acme'), name: 'ci' }
    const issue = (secretName: string) => resources.issueKey({ ...named, spec: { planRef: { name: 'coder' }, secretName } })
    t.same(await issue('ci-key'), { outcome: 'created' })
    t.same(await issue('other-key'), { outcome: 'exists' })
    await place.settle()
    t.ok(told.includes('ApiKey acme/ci'))
    t.match(resources.get(ci(place)), { metadata: { generation: 1 }, spec: { planRef: { name: 'coder' }, secretName: 'ci-key', state: 'Active', rotationRevision: 0 } })
  },

  'a key that is rotated, limited or revoked is changed in that alone, and one that is not there is not': async (t, place) => {
    await place.declare(apiKey('ci', 'coder', { secretName: 'ci-key', limit: { weeklyTokens: 5 } }))
    const { resources } = await watching(place)
    const named = { namespace: place.namespace('acme'), name: 'ci' }
    const before = keyOf(resources, ci(place))
    for (const revision of [1, 2]) {
      for (const _ of ['first', 'again']) t.same(await resources.changeKey(named, { rotationRevision: revision }), { outcome: 'changed' })
      await place.settle()
      t.match(resources.get(ci(place)), { metadata: { uid: before.metadata.uid, generation: 1 + revision } })
      t.same(keyOf(resources, ci(place)).spec, { ...before.spec, rotationRevision: revision })
    }
    t.match(await resources.changeKey(named, { limit: {} }), { outcome: 'refused' })
    for (const limit of [{ weeklyTokens: 7 }, { amountPerPeriod: '1' }, null]) {
      t.same(await resources.changeKey(named, { limit }), { outcome: 'changed' })
      await place.settle()
      t.same(keyOf(resources, ci(place)).spec.limit, limit ?? undefined)
    }
    for (const _ of ['first', 'again']) {
      t.same(await resources.changeKey(named, { state: 'Revoked' }), { outcome: 'changed' })
      await place.settle()
      t.match(resources.get(ci(place)), { metadata: { generation: 7 }, spec: { state: 'Revoked', rotationRevision: 2 } })
    }
    for (const other of [{ ...named, name: 'other' }, { ...named, namespace: place.namespace('globex') }]) {
      t.equal(await resources.changeKey(other, { rotationRevision: 1 }), null)
      t.equal(await resources.changeKey(other, { state: 'Revoked' }), null)
    }
  },

  'an author changes a key only as it was seen, and of several that saw the same one succeeds': async (t, place) => {
    await place.declare(apiKey('ci', 'coder'))
    const { resources } = await watching(place)
    const named = { namespace: place.namespace('acme'), name: 'ci' }
    const { uid } = keyOf(resources, ci(place)).metadata
    t.same(await resources.changeKey(named, { state: 'Suspended' }, { uid, generation: 1 }), { outcome: 'changed' })
    for (const seen of [{ uid, generation: 1 }, { uid, generation: 3 }, { uid: 'another', generation: 2 }]) {
      t.same(await resources.changeKey(named, { rotationRevision: 1 }, seen), { outcome: 'conflict' })
    }
    t.same(await resources.changeKey(named, { state: 'Active' }, { uid, generation: 2 }), { outcome: 'changed' })
    const outcomes = await Promise.all([1, 2, 3].map((revision) => resources.changeKey(named, { rotationRevision: revision }, { uid, generation: 3 })))
    t.same(outcomes.map((one) => one?.outcome).sort(), ['changed', 'conflict', 'conflict'])
    await place.settle()
    t.match(resources.get(ci(place)), { metadata: { uid, generation: 4 }, spec: { state: 'Active' } })
  },

  'the keys of a tenant are read as they are, without those of others': async (t, place) => {
    await place.declare(apiKey('ci', 'coder'), apiKey('web', 'coder'))
    const { resources } = await watching(place)
    const acme = place.namespace('acme')
    const read = async (...of: [string, string?]) => {
      const answer = await resources.readKeys(...of)
      return answer.outcome === 'read' ? answer.keys : []
    }
    t.same((await read(acme)).map(({ key }) => key.metadata.name).sort(), ['ci', 'web'])
    const [{ key, status }] = (await read(acme, 'ci')) as [DeclaredKey]
    t.match(key, { kind: 'ApiKey', metadata: { name: 'ci', namespace: acme, generation: 1, uid: keyOf(resources, ci(place)).metadata.uid }, spec: { state: 'Active' } })
    t.equal(status, null)
    await resources.changeKey({ namespace: acme, name: 'ci' }, { state: 'Suspended' })
    t.match((await read(acme, 'ci'))[0], { key: { metadata: { generation: 2 }, spec: { state: 'Suspended' } } })
    for (const [namespace, name] of [[acme, 'other'], [place.namespace('globex'), 'ci'], [place.namespace('globex'), undefined]] as const) t.same(await read(namespace, name), [])
  },

  'what the definitions do not allow is refused in their words, and nothing is declared': async (t, place) => {
    await place.declare(apiKey('last', 'coder', { rotationRevision: 1_000_000 }))
    const { resources } = await watching(place)
    const issue = (name: string, spec: object) => resources.issueKey({ namespace: place.namespace('acme'), name, spec: { planRef: { name: 'coder' }, ...spec } })
    t.match(await issue('both', { limit: { weeklyTokens: 1, amountPerPeriod: '1' } }), { outcome: 'refused', faults: ['spec.limit: a limit is weeklyTokens (Coding) or amountPerPeriod (Room and Media), exactly one of them'] })
    t.match(await issue('less', { rotationRevision: -1 }), { outcome: 'refused', faults: [/^spec\.rotationRevision: /] })
    t.match(await issue('Name', {}), { outcome: 'refused', faults: [/^metadata\.name: /] })
    for (const revision of [999_999, 1_000_001]) {
      t.match(await resources.changeKey({ namespace: place.namespace('acme'), name: 'last' }, { rotationRevision: revision }), { outcome: 'refused', faults: [/^spec(\.rotationRevision)?: /] })
    }
    await place.settle()
    t.same(resources.list('ApiKey', place.namespace('acme')).map(({ metadata: { name, generation } }) => `${name} ${generation}`), ['last 1'])
  },

  'those who act at the same time do so once': async (t, place) => {
    await place.declare(apiKey('ci', 'coder'))
    const { resources } = await watching(place)
    const acme = place.namespace('acme')
    const rotated = await Promise.all([1, 2, 3].map(() => resources.changeKey({ namespace: acme, name: 'ci' }, { rotationRevision: 1 })))
    t.same(rotated, [1, 2, 3].map(() => ({ outcome: 'changed' })))
    const issued = await Promise.all([1, 2].map((n) => resources.issueKey({ namespace: acme, name: 'web', spec: { planRef: { name: 'coder' }, secretName: `web-${n}` } })))
    t.same(issued.map(({ outcome }) => outcome).sort(), ['created', 'exists'])
    await place.settle()
    t.equal(keyOf(resources, ci(place)).spec.rotationRevision, 1)
    t.match(resources.get(ci(place, 'web')), { metadata: { generation: 1 } })
  },
}

export const resourcesPromises: Promises<Place> = { ...declaring, ...writing, ...authoring, ...retainingPromises, ...leadingPromises }

