/**
 * The resources that a folder declares: the last valid document of each, with the identity that Kubernetes would give it (uid, creation time, generation), kept
 * in the store. A document that is invalid, or missing for a moment, changes nothing; one that is missing from a readable folder for two seconds is deleted.
 * A folder without any of the resources is another one, such as the mount point of a missing volume, and changes nothing.
 */
import { isDeepStrictEqual } from 'node:util'
import { API_VERSION, type Declaration, type Declarations, type Ref, type Resource } from '../resources.ts'
import type { Manifest, Validator } from '../manifest-validation.ts'
import { keyOf, openManifestIndex, type ManifestError, type Validated } from './manifest-index.ts'
import type { Document } from './manifest-parser.ts'
import type { ReadFolder } from './folder-scan.ts'

const DELETE_AFTER_MS = 2_000

export type Declared = {
  get(ref: Ref): Resource | null
  all(): Resource[]
  /** Name of the file that declared the resource at the last `apply`. */
  fileOf(ref: Ref): string | null
  /** Whether a status or Secret may be written for the resource: it exists and is not being deleted. */
  isPresent(ref: Ref): boolean
  /** Errors of the last `apply`. */
  errors(): ManifestError[]
  /** Whether the folder of the last `apply` is the one that had the resources; any other changes nothing. */
  isKnown(): boolean
  /** Why it is taken for another one, or null. It may be the right one if a file cannot be read. */
  problem(): string | null
  /** True while a missing document is not deleted yet. */
  hasPendingDeletions(): boolean
  /** The folder cannot be read: missing documents are deleted later, and another folder may come to its place. */
  unreadable(): void
  /**
   * Applies a scan of the folder at `now` (epoch ms), which is `uptime` of a monotonic clock (ms). Throws `Unavailable` if the store cannot
   * be written; the next call applies the rest.
   */
  apply(folder: ReadFolder, now: number, uptime: number): Promise<void>
}

type Options = {
  declarations: Declarations
  validator: Validator
  newUid: () => string
  /** Identity of a resource that a restored, older store does not have; null if it is new. */
  formerIdentity: (ref: Ref) => { uid: string; createdAt: number } | null
  /** Removes the Secrets and status of a resource before the resource itself is deleted. */
  beforeDelete: (resource: Resource) => Promise<void>
  changed: (ref: Ref) => void
}

/** `missingSince` is of the monotonic clock. */
type Entry = { resource: Resource; createdAt: number; missingSince: number | null }

/** Starts with the declarations of the store. Throws `Unavailable`. */
export async function openDeclared(options: Options): Promise<Declared> {
  const { declarations, validator, changed } = options
  const entries = new Map<string, Entry>()
  const deleting = new Set<string>()
  const accepted = new WeakMap<object, Manifest>()
  const indexOf = openManifestIndex(validate)
  let errors: ManifestError[] = []
  let isKnown = false
  let problem: string | null = null
  let files = new Map<string, string>()
  /** The folder that had one of the resources, or was there before any. It may lose even the last of them. */
  let known: string | null = null
  for (const declaration of await declarations.declarations()) {
    entries.set(keyOf(declaration.ref), { resource: resourceOf(declaration), createdAt: declaration.createdAt, missingSince: null })
  }

  function validate({ value }: Document): Validated {
    const known = typeof value === 'object' && value !== null ? accepted.get(value) : undefined
    // An accepted document that is still in force is not validated again.
    if (known && entries.get(keyOf(known.ref))?.resource.spec === known.spec) return { ref: known.ref, manifest: known, faults: [] }
    const verdict = validator.validate(value, (ref) => entries.get(keyOf(ref))?.resource.spec ?? null)
    if (verdict.outcome === 'refused') return { ref: verdict.ref, manifest: null, faults: verdict.faults }
    accepted.set(value as object, verdict.manifest)
    return { ref: verdict.manifest.ref, manifest: verdict.manifest, faults: [] }
  }

  async function accept(manifest: Manifest, now: number): Promise<void> {
    const key = keyOf(manifest.ref)
    const entry = entries.get(key)
    if (entry) entry.missingSince = null
    if (entry && isSame(entry.resource, manifest)) return void Object.assign(entry.resource, { spec: manifest.spec })
    const declaration = { ...manifest, ...(entry ? next(entry, manifest) : { ...newIdentity(manifest.ref, now), generation: 1 }) }
    await declarations.declare(declaration)
    entries.set(key, { resource: resourceOf(declaration), createdAt: declaration.createdAt, missingSince: null })
    changed(manifest.ref)
  }

  function newIdentity(ref: Ref, now: number): { uid: string; createdAt: number } {
    return options.formerIdentity(ref) ?? { uid: options.newUid(), createdAt: now }
  }

  async function remove(key: string, { resource }: Entry): Promise<void> {
    const ref: Ref = { kind: resource.kind, namespace: resource.metadata.namespace, name: resource.metadata.name }
    deleting.add(key)
    try {
      await options.beforeDelete(resource)
      await declarations.undeclare(ref)
      entries.delete(key)
    } finally {
      deleting.delete(key)
    }
    changed(ref)
  }

  function resetMissing(): void {
    for (const entry of entries.values()) entry.missingSince = null
  }

  return {
    get: (ref) => entries.get(keyOf(ref))?.resource ?? null,
    fileOf: (ref) => files.get(keyOf(ref)) ?? null,
    all: () => [...entries.values()].map(({ resource }) => resource),
    isPresent: (ref) => entries.has(keyOf(ref)) && !deleting.has(keyOf(ref)),
    errors: () => errors,
    isKnown: () => isKnown,
    problem: () => problem,
    hasPendingDeletions: () => [...entries.values()].some(({ missingSince }) => missingSince !== null),
    unreadable() {
      resetMissing()
      known = null
    },
    async apply(folder, now, uptime) {
      const index = indexOf(folder.files)
      const { documents, keep } = index
      files = new Map([...documents].map(([key, { file }]) => [key, file]))
      errors = index.errors
      if (entries.size === 0 || [...documents.keys()].some((key) => entries.has(key))) known = folder.id
      isKnown = known === folder.id
      problem = isKnown || keep === 'all' ? null : otherFolder([...entries.keys()])
      if (!isKnown) return resetMissing()
      let failure: unknown = null
      for (const { manifest } of documents.values()) if (manifest) await accept(manifest, now)
      for (const [key, entry] of entries) {
        if (documents.has(key) || keep === 'all' || keep.has(key)) entry.missingSince = null
        else if (entry.missingSince === null) entry.missingSince = uptime
        else if (uptime - entry.missingSince >= DELETE_AFTER_MS) await remove(key, entry).catch((error: unknown) => (failure ??= error))
      }
      if (failure !== null) throw failure
    },
  }
}

function isSame({ spec, metadata }: Resource, manifest: Manifest): boolean {
  return (
    isDeepStrictEqual(spec, manifest.spec) &&
    isDeepStrictEqual(metadata.labels, manifest.labels) &&
    isDeepStrictEqual(metadata.annotations, manifest.annotations)
  )
}

/** `keys` are those of the resources. */
function otherFolder(keys: string[]): string {
  const such = `such as ${keys[0]} (${keys.length} in all)`
  return `the folder of manifests has none of the resources declared before, ${such}, so it changes nothing: mount or name the right one, or add a document with the kind, namespace and name of one of them`
}

function next({ resource, createdAt }: Entry, { spec }: Manifest): Pick<Declaration, 'uid' | 'createdAt' | 'generation'> {
  const { uid, generation } = resource.metadata
  return { uid, createdAt, generation: isDeepStrictEqual(resource.spec, spec) ? generation : generation + 1 }
}

function resourceOf({ ref, uid, createdAt, generation, labels, annotations, spec }: Declaration): Resource {
  const metadata = {
    name: ref.name,
    namespace: ref.namespace,
    uid,
    generation,
    creationTimestamp: new Date(createdAt).toISOString(),
    ...(labels && { labels }),
    ...(annotations && { annotations }),
  }
  return { apiVersion: API_VERSION, kind: ref.kind, metadata, spec } as Resource
}
