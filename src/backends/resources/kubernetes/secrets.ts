/**
 * The Secrets of ApiKeys. Ours are those whose controller, by owner reference, is an ApiKey; they carry a label, by which alone they are watched. One of somebody
 * else is never read, written or removed.
 */
import { isDeepStrictEqual } from 'node:util'
import type { V1OwnerReference } from '@kubernetes/client-node'
import { Unavailable } from '../../../domain/errors.ts'
import { API_VERSION, type KeySecret, type Ref, type SecretOutcome } from '../resources.ts'
import type { Cache, Change } from './informer-cache.ts'
import { isNamespaceGoing, unexpected, type Answer, type Client } from './api-client.ts'
import { collectionPath, COLLECTIONS, kept, objectPath, type KubeObject } from './api-objects.ts'

/** Names the ApiKey; there is no Secret of ours without it. */
export const SECRET_LABEL = 'tollgate.dev/api-key'
const MAC = 'tollgate.dev/mac'
const TYPE = 'tollgate.dev/api-key'

export type Owner = Ref & { uid: string }

export type Secrets = {
  put(owner: Owner, name: string, secret: KeySecret): Promise<SecretOutcome>
  get(owner: Owner, name: string): (KeySecret & { isSpoiled?: true }) | null
  /** Removes all that the uid owns. */
  remove(owner: Owner): Promise<void>
  /** Takes over a change that the watch told. Returns the ApiKeys whose Secret it is or was. */
  changed(change: Change): Ref[]
}

/** So much of a key, as it is or in base64, is no accident. */
const QUOTE_LENGTH = 12
/** Others write at the same time; after so many times they are left to it for a while. */
const MOST_TRIES = 4

/** `isStaying` tells whether the owner is there and not about to go. */
export function openSecrets(client: Client, cache: Cache, isStaying: (owner: Owner) => boolean): Secrets {
  const names = new Map<string, Set<string>>()

  function note(object: KubeObject, isThere: boolean): void {
    const uid = controllerOf(object)?.uid
    if (uid === undefined) return
    const owned = names.get(uid) ?? new Set()
    if (isThere) owned.add(object.metadata.name)
    else owned.delete(object.metadata.name)
    if (owned.size > 0) names.set(uid, owned)
    else names.delete(uid)
  }

  function learn(object: KubeObject): void {
    cache.learn(kept(object))
    if (cache.get(object.metadata.namespace, object.metadata.name)?.metadata.uid === object.metadata.uid) note(object, true)
  }

  /** Past the cache: a Secret of somebody else is not in it. */
  async function read(namespace: string, name: string): Promise<KubeObject | null> {
    const path = objectPath(COLLECTIONS.Secret, namespace, name)
    const answer = await client.request<KubeObject>('GET', path)
    if (answer.status === 404) return null
    if (answer.status !== 200) throw unexpected('GET', path, answer)
    return answer.body
  }

  async function write(owner: Owner, name: string, secret: KeySecret): Promise<SecretOutcome> {
    let found = cache.get(owner.namespace, name)
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      if (found && controllerOf(found)?.uid !== owner.uid) return 'conflict'
      const wanted = objectOf(owner, name, secret, found)
      if (found && isRight(found, wanted)) return 'unchanged'
      const outcome = found ? await replace(wanted, found) : await create(wanted)
      if (outcome !== 'again') return outcome
      found = await read(owner.namespace, name)
    }
    throw new Unavailable('resources', new Error(`the Secret ${owner.namespace}/${name} changes faster than it can be written`))
  }

  async function create(wanted: KubeObject): Promise<SecretOutcome | 'again'> {
    const path = collectionPath(COLLECTIONS.Secret, wanted.metadata.namespace)
    const answer = await client.request<KubeObject>('POST', path, { body: wanted })
    if (answer.status === 201) {
      learn(answer.body)
      return 'written'
    }
    if (answer.status === 409) return 'again'
    if (answer.status === 404 || isNamespaceGoing(answer)) return 'gone'
    throw unexpected('POST', path, discreet(answer, wanted))
  }

  async function replace(wanted: KubeObject, found: KubeObject): Promise<SecretOutcome | 'again'> {
    const path = objectPath(COLLECTIONS.Secret, wanted.metadata.namespace, wanted.metadata.name)
    // The type cannot be changed, nor anything of an immutable Secret.
    if (found.type !== TYPE || 'immutable' in found) {
      await discard(found)
      return create(wanted)
    }
    const answer = await client.request<KubeObject>('PUT', path, { body: wanted })
    if (answer.status === 200) {
      learn(answer.body)
      return 'written'
    }
    if (answer.status === 409 || answer.status === 404) return 'again'
    throw unexpected('PUT', path, discreet(answer, wanted))
  }

  async function discard(object: KubeObject): Promise<void> {
    const { namespace, name, uid } = object.metadata
    const path = objectPath(COLLECTIONS.Secret, namespace, name)
    const answer = await client.request<object>('DELETE', path, { body: { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } } })
    // 409: it should be another one by now, and not ours to remove. Ask, before a key stays where it must not be.
    const isStill = answer.status === 409 && (await read(namespace, name))?.metadata.uid === uid
    if (isStill || (answer.status !== 200 && answer.status !== 202 && answer.status !== 404 && answer.status !== 409)) throw unexpected('DELETE', path, answer)
    cache.forget(object)
    note(object, false)
  }

  async function remove({ uid, namespace }: Owner): Promise<void> {
    for (const name of names.get(uid) ?? []) {
      const object = cache.get(namespace, name)
      if (object && controllerOf(object)?.uid === uid) await discard(object)
    }
  }

  return {
    async put(owner, name, secret) {
      if (!isStaying(owner)) return 'gone'
      const outcome = await write(owner, name, secret)
      if (isStaying(owner)) return outcome
      await remove(owner)
      return 'gone'
    },
    get(owner, name) {
      const object = cache.get(owner.namespace, name)
      if (!object || controllerOf(object)?.uid !== owner.uid) return null
      const secret = secretOf(object)
      return isRight(object, objectOf(owner, name, secret, object)) ? secret : { ...secret, isSpoiled: true }
    },
    remove,
    changed({ before, after }) {
      if (before) note(before, false)
      if (after) note(after, true)
      const refs = [before, after].flatMap((object) => (object ? ownersOf(object) : []))
      return refs.filter((ref, i) => refs.findIndex((other) => other.name === ref.name && other.namespace === ref.namespace) === i)
    },
  }
}

function controllerOf({ metadata }: KubeObject): V1OwnerReference | undefined {
  return metadata.ownerReferences?.find(({ controller, kind, apiVersion }) => controller === true && kind === 'ApiKey' && apiVersion.startsWith('tollgate.dev/'))
}

/** By its owner reference, and by its label where that says something else: somebody may have changed either. */
function ownersOf(object: KubeObject): Ref[] {
  const { namespace, labels } = object.metadata
  const names = new Set([controllerOf(object)?.name, labels?.[SECRET_LABEL]].filter((name) => name !== undefined))
  return [...names].map((name) => ({ kind: 'ApiKey', namespace, name }))
}

/** What must be there, with what others added to `found` that is none of our business. */
function objectOf(owner: Owner, name: string, { apiKey, keyId, mac }: KeySecret, found: KubeObject | null): KubeObject {
  const ownerReference = { apiVersion: API_VERSION, kind: 'ApiKey', name: owner.name, uid: owner.uid, controller: true }
  const others = found?.metadata.ownerReferences?.filter(({ uid }) => uid !== owner.uid) ?? []
  const metadata = {
    ...found?.metadata,
    name,
    namespace: owner.namespace,
    labels: { ...found?.metadata.labels, 'app.kubernetes.io/managed-by': 'tollgate', [SECRET_LABEL]: owner.name },
    annotations: { ...found?.metadata.annotations, [MAC]: mac },
    ownerReferences: [ownerReference, ...others],
  }
  const data = { 'api-key': Buffer.from(apiKey).toString('base64'), 'key-id': Buffer.from(keyId).toString('base64') }
  return { apiVersion: 'v1', kind: 'Secret', metadata: metadata as KubeObject['metadata'], type: TYPE, data }
}

function isRight(found: KubeObject, wanted: KubeObject): boolean {
  const { labels, annotations, ownerReferences } = wanted.metadata
  return (
    found.type === wanted.type &&
    isDeepStrictEqual(found.data, wanted.data) &&
    isDeepStrictEqual(found.metadata.labels, labels) &&
    isDeepStrictEqual(found.metadata.annotations, annotations) &&
    ownerReferences?.[0]?.name === controllerOf(found)?.name
  )
}

/** What the server says of a Secret, unless that is what the Secret holds: an admission webhook is shown it, and what it says is told to people who may not read Secrets. */
function discreet(answer: Answer<object>, { data }: KubeObject): Answer<object> {
  const { message = '' } = answer.body
  const encoded = data?.['api-key'] ?? ''
  const held = `${encoded} ${Buffer.from(encoded, 'base64')}`
  for (let at = 0; at + QUOTE_LENGTH <= message.length; at++) {
    if (held.includes(message.slice(at, at + QUOTE_LENGTH))) return { status: answer.status, body: { message: 'its reason quotes the key, and is not repeated' } }
  }
  return answer
}

function secretOf({ data, metadata }: KubeObject): KeySecret {
  const text = (entry: string) => Buffer.from(data?.[entry] ?? '', 'base64').toString()
  return { apiKey: text('api-key'), keyId: text('key-id'), mac: metadata.annotations?.[MAC] ?? '' }
}
