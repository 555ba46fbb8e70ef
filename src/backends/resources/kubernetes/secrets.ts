/**
 * Secrets of ApiKeys in Kubernetes. An owned Secret has an ApiKey as its controller owner reference, and a label, by which Secrets are
 * watched. A foreign Secret is never changed or removed.
 */
import { isDeepStrictEqual } from 'node:util'
import type { V1OwnerReference } from '@kubernetes/client-node'
import { Unavailable } from '../../../domain/errors.ts'
import { API_VERSION, isKeySized, secretEntries, type KeySecret, type Ref, type SecretOutcome, type SecretTemplate } from '../resources.ts'
import type { Cache, Change } from './informer-cache.ts'
import { isNamespaceTerminating, unexpected, type ApiResponse, type Client } from './api-client.ts'
import { collectionPath, COLLECTIONS, kept, objectPath, type KubeObject } from './api-objects.ts'

/** Label with the name of the ApiKey, on every owned Secret. */
export const SECRET_LABEL = 'tollgate.dev/api-key'
const MAC = 'tollgate.dev/mac'
/** Names of the labels and annotations that the template set, so that those it no longer has are removed. */
const TEMPLATE = 'tollgate.dev/secret-template'
const TYPE = 'tollgate.dev/api-key'

export type Owner = Ref & { uid: string }
export type TemplateOwner = Owner & { template: SecretTemplate }

export type Secrets = {
  put(owner: TemplateOwner, name: string, secret: KeySecret): Promise<SecretOutcome>
  get(owner: TemplateOwner, name: string): Promise<(KeySecret & { isModified?: true }) | null>
  /** Removes all Secrets of the owner's uid. */
  remove(owner: Owner): Promise<void>
  /** Applies a change from the watch. Returns the ApiKeys that own the Secret or owned it before. */
  changed(change: Change): Ref[]
}

/** A message with so many characters of a key in a row, plain or in base64, quotes the key. */
const QUOTE_LENGTH = 12
/** More of a message is neither searched nor shown. */
const MESSAGE_LENGTH = 1024
/** The template has at most 32 labels and as many annotations. Others can write the annotation TEMPLATE. */
const TEMPLATE_NAMES_MAX = 64
const MAX_TRIES = 4
/** A larger Secret, in characters of JSON, is not kept but read when it is needed. */
const KEPT_LENGTH_MAX = 8_192
/** An owner reference that the garbage collector does not follow may have a name of any length. */
const OWNER_LENGTH_MAX = 1_024

/**
 * What is kept of a watched Secret: whoever may write Secrets can label any number of them, however large. Of one that is not an ApiKey's,
 * and of a large one, that is an outline, which has no type.
 */
export function keptSecret(object: KubeObject): KubeObject {
  const owner = controllerOf(kept(object))
  if (owner && JSON.stringify(object).length <= KEPT_LENGTH_MAX) return object
  const { name, namespace, uid, resourceVersion, creationTimestamp, labels } = object.metadata
  const isShort = owner && JSON.stringify(owner).length <= OWNER_LENGTH_MAX
  return {
    metadata: {
      name,
      namespace,
      uid,
      resourceVersion,
      creationTimestamp,
      labels: { [SECRET_LABEL]: labels?.[SECRET_LABEL] ?? '' },
      ...(isShort && { ownerReferences: [owner] }),
    },
  }
}

/** `isPresent` returns whether the owner exists and is not being deleted. */
export function openSecrets(client: Client, cache: Cache, isPresent: (owner: Owner) => boolean): Secrets {
  /** Names of the owned Secrets by the namespace and uid of their owner: a Secret elsewhere may name its uid too. */
  const names = new Map<string, Set<string>>()

  function setOwned(object: KubeObject, isOwned: boolean): void {
    const uid = controllerOf(object)?.uid
    if (uid === undefined) return
    const { namespace, name } = object.metadata
    const owner = `${namespace}/${uid}`
    const owned = names.get(owner) ?? new Set()
    if (isOwned) owned.add(name)
    else owned.delete(name)
    if (owned.size > 0) names.set(owner, owned)
    else names.delete(owner)
  }

  function cacheWritten(object: KubeObject): void {
    cache.putWritten(keptSecret(object))
    if (cache.get(object.metadata.namespace, object.metadata.name)?.metadata.uid === object.metadata.uid) setOwned(object, true)
  }

  /** Reads from the API server, since foreign Secrets are not in the cache. */
  async function read(namespace: string, name: string): Promise<KubeObject | null> {
    const path = objectPath(COLLECTIONS.Secret, namespace, name)
    const response = await client.request<KubeObject>('GET', path)
    if (response.status === 404) return null
    if (response.status !== 200) throw unexpected('GET', path, response)
    return response.body
  }

  async function write(owner: TemplateOwner, name: string, secret: KeySecret): Promise<SecretOutcome> {
    let found = cache.get(owner.namespace, name)
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      if (found && controllerOf(found)?.uid !== owner.uid) return 'conflict'
      if (found && isOutline(found)) {
        found = await read(owner.namespace, name)
        continue
      }
      const wanted = objectOf(owner, name, secret, found)
      if (found && isEqual(found, wanted)) return 'unchanged'
      const outcome = found ? await replace(wanted, found) : await create(wanted)
      if (outcome !== 'retry') return outcome
      found = await read(owner.namespace, name)
    }
    throw new Unavailable(
      'resources',
      new Error(`the Secret ${owner.namespace}/${name} changed during each of ${MAX_TRIES} tries to write it`),
    )
  }

  async function create(wanted: KubeObject): Promise<SecretOutcome | 'retry'> {
    const path = collectionPath(COLLECTIONS.Secret, wanted.metadata.namespace)
    const response = await client.request<KubeObject>('POST', path, { body: wanted })
    if (response.status === 201) {
      cacheWritten(response.body)
      return 'written'
    }
    if (response.status === 409) return 'retry'
    if (response.status === 404 || isNamespaceTerminating(response)) return 'gone'
    throw unexpected('POST', path, withoutQuotedKey(response, wanted))
  }

  async function replace(wanted: KubeObject, found: KubeObject): Promise<SecretOutcome | 'retry'> {
    const path = objectPath(COLLECTIONS.Secret, wanted.metadata.namespace, wanted.metadata.name)
    // The type of a Secret and all of an immutable Secret cannot be updated.
    if (found.type !== TYPE || 'immutable' in found) {
      await deleteSecret(found)
      const { uid: _uid, resourceVersion: _version, ...metadata } = wanted.metadata
      return create({ ...wanted, metadata: metadata as KubeObject['metadata'] })
    }
    const response = await client.request<KubeObject>('PUT', path, { body: wanted })
    if (response.status === 200) {
      cacheWritten(response.body)
      return 'written'
    }
    if (response.status === 409 || response.status === 404) return 'retry'
    throw unexpected('PUT', path, withoutQuotedKey(response, wanted))
  }

  async function deleteSecret(object: KubeObject): Promise<void> {
    const { namespace, name, uid } = object.metadata
    const path = objectPath(COLLECTIONS.Secret, namespace, name)
    const response = await client.request<object>('DELETE', path, {
      body: { apiVersion: 'v1', kind: 'DeleteOptions', preconditions: { uid } },
    })
    // 409: the name should have another Secret by now, which must stay. This is verified, since the key must not stay readable.
    const isStillThere = response.status === 409 && (await read(namespace, name))?.metadata.uid === uid
    if (isStillThere || (response.status !== 200 && response.status !== 202 && response.status !== 404 && response.status !== 409))
      throw unexpected('DELETE', path, response)
    cache.removeDeleted(object)
    setOwned(object, false)
  }

  async function remove({ uid, namespace }: Owner): Promise<void> {
    for (const name of names.get(`${namespace}/${uid}`) ?? []) {
      const object = cache.get(namespace, name)
      if (object && controllerOf(object)?.uid === uid) await deleteSecret(object)
    }
  }

  return {
    async put(owner, name, secret) {
      if (!isPresent(owner)) return 'gone'
      const outcome = await write(owner, name, secret)
      if (isPresent(owner)) return outcome
      await remove(owner)
      return 'gone'
    },
    async get(owner, name) {
      const cached = cache.get(owner.namespace, name)
      const isLarge = cached && isOutline(cached) && controllerOf(cached)?.uid === owner.uid
      const object = isLarge ? await read(owner.namespace, name) : cached
      if (!object || controllerOf(object)?.uid !== owner.uid) return null
      const secret = secretOf(object)
      const isWanted = isKeySized(secret) && isEqual(object, objectOf(owner, name, secret, object))
      return isWanted ? secret : { ...secret, isModified: true }
    },
    remove,
    changed({ before, after }) {
      if (before) setOwned(before, false)
      if (after) setOwned(after, true)
      const refs = [before, after].flatMap((object) => (object ? ownersOf(object) : []))
      return refs.filter((ref, i) => refs.findIndex((other) => other.name === ref.name && other.namespace === ref.namespace) === i)
    },
  }
}

function isOutline({ type }: KubeObject): boolean {
  return type === undefined
}

function controllerOf({ metadata }: KubeObject): V1OwnerReference | undefined {
  return metadata.ownerReferences?.find(
    ({ controller, kind, apiVersion }) => controller === true && kind === 'ApiKey' && apiVersion.startsWith('tollgate.dev/'),
  )
}

/** The ApiKeys in the owner reference and in the label, since someone may have changed either of them. */
function ownersOf(object: KubeObject): Ref[] {
  const { namespace, labels } = object.metadata
  const names = new Set([controllerOf(object)?.name, labels?.[SECRET_LABEL]].filter((name) => name !== undefined))
  return [...names].map((name) => ({ kind: 'ApiKey', namespace, name }))
}

/** The wanted Secret, with the labels, annotations and owner references that others added to `found`. */
function objectOf(owner: TemplateOwner, name: string, secret: KeySecret, found: KubeObject | null): KubeObject {
  const { labels = {}, annotations = {} } = owner.template
  const ownerReference = { apiVersion: API_VERSION, kind: 'ApiKey', name: owner.name, uid: owner.uid, controller: true }
  const others = found?.metadata.ownerReferences?.filter(({ uid }) => uid !== owner.uid) ?? []
  const former = templateNames(found)
  const set = { labels: Object.keys(labels), annotations: Object.keys(annotations) }
  const isPlain = set.labels.length === 0 && set.annotations.length === 0
  const metadata = {
    ...found?.metadata,
    name,
    namespace: owner.namespace,
    labels: {
      ...without(found?.metadata.labels, former.labels),
      ...labels,
      'app.kubernetes.io/managed-by': 'tollgate',
      [SECRET_LABEL]: owner.name,
    },
    annotations: {
      ...without(found?.metadata.annotations, former.annotations.add(TEMPLATE)),
      ...annotations,
      [MAC]: secret.mac,
      ...(!isPlain && { [TEMPLATE]: JSON.stringify(set) }),
    },
    ownerReferences: [ownerReference, ...others],
  }
  const entries = Object.entries(secretEntries(secret, owner.template))
  const data = Object.fromEntries(entries.map(([entry, text]) => [entry, Buffer.from(text).toString('base64')]))
  return { apiVersion: 'v1', kind: 'Secret', metadata: metadata as KubeObject['metadata'], type: TYPE, data }
}

/** The names in the annotation TEMPLATE; none where somebody made it unreadable, so that nothing of others is removed. */
function templateNames(found: KubeObject | null): { labels: Set<string>; annotations: Set<string> } {
  try {
    const { labels, annotations } = JSON.parse(found?.metadata.annotations?.[TEMPLATE] ?? '')
    return { labels: new Set(labels.slice(0, TEMPLATE_NAMES_MAX)), annotations: new Set(annotations.slice(0, TEMPLATE_NAMES_MAX)) }
  } catch {
    return { labels: new Set(), annotations: new Set() }
  }
}

function without(texts: Record<string, string> = {}, names: Set<string>): Record<string, string> {
  return Object.fromEntries(Object.entries(texts).filter(([name]) => !names.has(name)))
}

function isEqual(found: KubeObject, wanted: KubeObject): boolean {
  const { labels, annotations, ownerReferences } = wanted.metadata
  return (
    found.type === wanted.type &&
    isDeepStrictEqual(found.data, wanted.data) &&
    isDeepStrictEqual(found.metadata.labels, labels) &&
    isDeepStrictEqual(found.metadata.annotations, annotations) &&
    ownerReferences?.[0]?.name === controllerOf(found)?.name
  )
}

/**
 * The response without a message that quotes the key: an admission webhook sees the Secret, and its message appears in statuses and Events,
 * which people without access to Secrets can read.
 */
function withoutQuotedKey(response: ApiResponse<object>, { data }: KubeObject): ApiResponse<object> {
  const message = (response.body.message ?? '').slice(0, MESSAGE_LENGTH)
  const apiKey = Buffer.from(data?.['api-key'] ?? '', 'base64').toString()
  const secretText = [apiKey, ...encodings(apiKey)].join(' ')
  for (let at = 0; at + QUOTE_LENGTH <= message.length; at++) {
    if (secretText.includes(message.slice(at, at + QUOTE_LENGTH)))
      return { status: response.status, body: { message: 'the message quotes the key and is withheld' } }
  }
  return { ...response, body: { ...response.body, message } }
}

/** How an ASCII text appears in the base64 of any text around it: at three offsets, without the characters at the edges that others share. */
function encodings(text: string): string[] {
  return [0, 1, 2].map((offset) => {
    const encoded = Buffer.from(' '.repeat(offset) + text).toString('base64')
    return encoded.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + text.length) * 8) / 6))
  })
}

function secretOf({ data, metadata }: KubeObject): KeySecret {
  const text = (entry: string) => Buffer.from(data?.[entry] ?? '', 'base64').toString()
  return { apiKey: text('api-key'), keyId: text('key-id'), mac: metadata.annotations?.[MAC] ?? '' }
}
