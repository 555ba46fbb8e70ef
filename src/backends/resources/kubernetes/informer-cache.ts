/**
 * Informer cache: the objects of one collection, from the watch and from the responses to the controller's own writes. Both may arrive late: an object is never
 * replaced by an older version, and a deleted one does not come back. Only a list may go back in version, as after etcd was restored from a backup.
 */
import { isDeepStrictEqual } from 'node:util'
import { isLater, type KubeObject } from './api-objects.ts'

export type Change = { before: KubeObject | null; after: KubeObject | null }

export type Cache = {
  get(namespace: string, name: string): KubeObject | null
  all(): Iterable<KubeObject>
  /** Applies an event of the watch over `scope` (a namespace, or null for all). Returns the change, null if there is none. */
  put(scope: string | null, object: KubeObject): Change | null
  remove(scope: string | null, object: KubeObject): Change | null
  /** The watch over `scope` has delivered everything up to that version (bookmark). */
  passed(scope: string | null, version: string): void
  /** Replaces the objects in `scope` by a list of that version, which may be a lower one. `missed` counts changes that the watch should have delivered. */
  replace(scope: string | null, objects: KubeObject[], version: string): { changes: Change[]; missed: number }
  /** Adds the object in the response to a write, unless it has a change by another author too: then the watch must report that. */
  putWritten(object: KubeObject): void
  /** Removes an object that this process deleted. */
  removeDeleted(object: KubeObject): void
}

export function openCache(): Cache {
  const objects = new Map<string, KubeObject>()
  /** The last version of the watch over each scope. */
  const positions = new Map<string | null, string>()
  const keyOf = ({ metadata }: KubeObject) => `${metadata.namespace}/${metadata.name}`

  function passed(scope: string | null, version: string): void {
    const before = positions.get(scope)
    if (before === undefined || isLater(version, before)) positions.set(scope, version)
  }

  function put(object: KubeObject): Change | null {
    const key = keyOf(object)
    const before = objects.get(key) ?? null
    if (before && !isLater(object.metadata.resourceVersion, before.metadata.resourceVersion)) return null
    objects.set(key, object)
    return { before, after: object }
  }

  return {
    get: (namespace, name) => objects.get(`${namespace}/${name}`) ?? null,
    all: () => objects.values(),
    passed,
    put(scope, object) {
      passed(scope, object.metadata.resourceVersion)
      return put(object)
    },
    remove(scope, object) {
      passed(scope, object.metadata.resourceVersion)
      const key = keyOf(object)
      const before = objects.get(key)
      // A write of this process already created a new object of that name.
      if (!before || before.metadata.uid !== object.metadata.uid) return null
      objects.delete(key)
      return { before, after: null }
    },
    replace(scope, listed, version) {
      const position = positions.get(scope)
      // After a restore of etcd, cached versions belong to another history and cannot be compared.
      const isRewound = position !== undefined && isLater(position, version)
      const isMissed = (at: string) => position !== undefined && !isLater(at, position)
      // Only a write of this process can be newer than the list. Up to its version the list is right even where an object is older: a
      // restored history may have reached the same version again.
      const isNewer = ({ metadata }: KubeObject) => !isRewound && isLater(metadata.resourceVersion, version)
      const isSame = (before: KubeObject, object: KubeObject) =>
        isRewound ? isDeepStrictEqual(before, object) : before.metadata.resourceVersion === object.metadata.resourceVersion
      const names = new Set(listed.map(keyOf))
      const changes: Change[] = []
      let missed = 0
      for (const object of listed) {
        const key = keyOf(object)
        const before = objects.get(key) ?? null
        if (before && (isNewer(before) || isSame(before, object))) continue
        objects.set(key, object)
        changes.push({ before, after: object })
        if (isMissed(object.metadata.resourceVersion)) missed++
      }
      for (const [key, before] of objects) {
        const isInScope = scope === null || before.metadata.namespace === scope
        if (!isInScope || names.has(key) || isNewer(before)) continue
        objects.delete(key)
        changes.push({ before, after: null })
        if (isMissed(version)) missed++
      }
      positions.set(scope, version)
      return { changes, missed }
    },
    putWritten(object) {
      const { namespace, resourceVersion } = object.metadata
      const position = positions.get(namespace) ?? positions.get(null)
      const before = objects.get(keyOf(object))
      const isDeleted = !before && position !== undefined && !isLater(resourceVersion, position)
      if (!isDeleted && !(before && isEditedByOthers(before, object))) put(object)
    },
    removeDeleted(object) {
      const key = keyOf(object)
      if (objects.get(key)?.metadata.uid === object.metadata.uid) objects.delete(key)
    },
  }
}

/** Whether two versions of a custom resource differ in what its authors write. Secrets have no generation, and are written by this program. */
function isEditedByOthers(before: KubeObject, after: KubeObject): boolean {
  const authored = ({ metadata: { uid, generation, labels, annotations } }: KubeObject) => ({ uid, generation, labels, annotations })
  return after.metadata.generation !== undefined && !isDeepStrictEqual(authored(before), authored(after))
}
