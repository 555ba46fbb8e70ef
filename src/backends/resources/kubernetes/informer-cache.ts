/**
 * The objects of one collection as last seen, by watch and by the answers to our own writes. Both may be late: an object never becomes older than it was, and one
 * that the watch has seen going does not come back. Only a list takes something back: an etcd that was restored from a backup gives lower versions again.
 */
import { isDeepStrictEqual } from 'node:util'
import { isLater, type KubeObject } from './api-objects.ts'

export type Change = { before: KubeObject | null; after: KubeObject | null }

export type Cache = {
  get(namespace: string, name: string): KubeObject | null
  all(): Iterable<KubeObject>
  /** An event of the watch over `scope` (a namespace, or null for all). Returns what changed, null if that was known. */
  put(scope: string | null, object: KubeObject): Change | null
  remove(scope: string | null, object: KubeObject): Change | null
  /** The watch over `scope` has seen everything up to that version. */
  passed(scope: string | null, version: string): void
  /** Everything there is in `scope` at that version, from which the watch goes on, be it a lower one. `missed` are changes that the watch had passed without telling. */
  replace(scope: string | null, objects: KubeObject[], version: string): { changes: Change[]; missed: number }
  /** The answer to a write of ours. */
  learn(object: KubeObject): void
  /** We removed it. */
  forget(object: KubeObject): void
}

export function openCache(): Cache {
  const objects = new Map<string, KubeObject>()
  /** How far the watch over each scope has come. */
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
      // Another one came under its name already, by a write of ours.
      if (!before || before.metadata.uid !== object.metadata.uid) return null
      objects.delete(key)
      return { before, after: null }
    },
    replace(scope, listed, version) {
      const position = positions.get(scope)
      // Then nothing that is cached can be compared by its version: it belongs to a history that was taken back.
      const isRewound = position !== undefined && isLater(position, version)
      const isMissed = (at: string) => position !== undefined && !isLater(at, position)
      // It can only be by a write of ours that was answered after the list. Up to the list's version the list is right, also where it shows an older one: a history that was taken back has come as far again.
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
    learn(object) {
      const { namespace, resourceVersion } = object.metadata
      const position = positions.get(namespace) ?? positions.get(null)
      const isGone = !objects.has(keyOf(object)) && position !== undefined && !isLater(resourceVersion, position)
      if (!isGone) put(object)
    },
    forget(object) {
      const key = keyOf(object)
      if (objects.get(key)?.metadata.uid === object.metadata.uid) objects.delete(key)
    },
  }
}
