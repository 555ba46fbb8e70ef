/**
 * Which resources a folder declares: the last good document of each, with the identity that Kubernetes would give it (uid, creation time, generation), kept in
 * the store. A document that is broken or gone for a moment changes nothing; one that is gone from a readable folder for two seconds is deleted.
 */
import { isDeepStrictEqual } from 'node:util'
import { API_VERSION, type Declaration, type Declarations, type Ref, type Resource } from '../resources.ts'
import type { Manifest, Validator } from '../manifest-validation.ts'
import { keyOf, openClaims, type Judgement, type Trouble } from './manifest-index.ts'
import type { Document } from './manifest-parser.ts'
import type { ManifestFile } from './folder-scan.ts'

export const GONE_MS = 2_000

export type Declared = {
  get(ref: Ref): Resource | null
  all(): Resource[]
  /** The file that declared the resource at the last look, by its name. */
  fileOf(ref: Ref): string | null
  /** Whether something may still be written for the resource: it is there, and not about to be forgotten. */
  isStaying(ref: Ref): boolean
  /** What is wrong at the last look. */
  troubles(): Trouble[]
  /** True while time alone changes something: a document that is gone is not deleted yet. */
  isWaiting(): boolean
  /** The folder cannot be read: time in which a document was not seen does not count. */
  pause(): void
  /**
   * Takes a look at the folder over, at `now`, which is `uptime` by a clock that only rises (ms). Throws `Unavailable` if the store cannot be written; what was not taken
   * over is taken over by the next call.
   */
  take(files: ManifestFile[], now: number, uptime: number): Promise<void>
}

type Options = {
  declarations: Declarations
  validator: Validator
  newUid: () => string
  /** The identity of a resource that the store has forgotten because it is an older backup, if something else remembers it. */
  remembered: (ref: Ref) => { uid: string; createdAt: number } | null
  /** A resource is about to be forgotten: what belongs to it goes first, so that nothing outlives it. */
  leaving: (resource: Resource) => Promise<void>
  changed: (ref: Ref) => void
}

/** `missingSince` is of a clock that only rises. */
type Entry = { resource: Resource; createdAt: number; missingSince: number | null }

/** Starts from what the store knows to be declared. Throws `Unavailable`. */
export async function openDeclared(options: Options): Promise<Declared> {
  const { declarations, validator, changed } = options
  const entries = new Map<string, Entry>()
  const leaving = new Set<string>()
  const judged = new WeakMap<object, Manifest>()
  const claimsOf = openClaims(judge)
  let troubles: Trouble[] = []
  let files = new Map<string, string>()
  for (const declaration of await declarations.declarations()) {
    entries.set(keyOf(declaration.ref), { resource: resourceOf(declaration, {}), createdAt: declaration.createdAt, missingSince: null })
  }

  function judge({ value }: Document): Judgement {
    const known = typeof value === 'object' && value !== null ? judged.get(value) : undefined
    // What was accepted, and is still what is declared, need not be judged again.
    if (known && entries.get(keyOf(known.ref))?.resource.spec === known.spec) return { ref: known.ref, manifest: known, faults: [] }
    const verdict = validator.validate(value, (ref) => entries.get(keyOf(ref))?.resource.spec ?? null)
    if (verdict.outcome === 'refused') return { ref: verdict.ref, manifest: null, faults: verdict.faults }
    judged.set(value as object, verdict.manifest)
    return { ref: verdict.manifest.ref, manifest: verdict.manifest, faults: [] }
  }

  async function accept(manifest: Manifest, now: number): Promise<void> {
    const key = keyOf(manifest.ref)
    const entry = entries.get(key)
    if (entry) entry.missingSince = null
    if (entry && isSame(entry.resource, manifest)) return void Object.assign(entry.resource, { spec: manifest.spec })
    const declaration = entry ? next(entry, manifest) : { ...newIdentity(manifest.ref, now), ref: manifest.ref, generation: 1, spec: manifest.spec }
    if (!entry || declaration.generation !== entry.resource.metadata.generation) await declarations.declare(declaration)
    entries.set(key, { resource: resourceOf(declaration, manifest), createdAt: declaration.createdAt, missingSince: null })
    changed(manifest.ref)
  }

  function newIdentity(ref: Ref, now: number): { uid: string; createdAt: number } {
    return options.remembered(ref) ?? { uid: options.newUid(), createdAt: now }
  }

  async function remove(key: string, { resource }: Entry): Promise<void> {
    const ref: Ref = { kind: resource.kind, namespace: resource.metadata.namespace, name: resource.metadata.name }
    leaving.add(key)
    try {
      await options.leaving(resource)
      await declarations.undeclare(ref)
      entries.delete(key)
    } finally {
      leaving.delete(key)
    }
    changed(ref)
  }

  return {
    get: (ref) => entries.get(keyOf(ref))?.resource ?? null,
    fileOf: (ref) => files.get(keyOf(ref)) ?? null,
    all: () => [...entries.values()].map(({ resource }) => resource),
    isStaying: (ref) => entries.has(keyOf(ref)) && !leaving.has(keyOf(ref)),
    troubles: () => troubles,
    isWaiting: () => [...entries.values()].some(({ missingSince }) => missingSince !== null),
    pause() {
      for (const entry of entries.values()) entry.missingSince = null
    },
    async take(looked, now, uptime) {
      const { claims, held, troubles: found } = claimsOf(looked)
      files = new Map([...claims].map(([key, { file }]) => [key, file]))
      troubles = found
      for (const { manifest } of claims.values()) if (manifest) await accept(manifest, now)
      for (const [key, entry] of entries) {
        if (claims.has(key) || held === 'all' || held.has(key)) entry.missingSince = null
        else if (entry.missingSince === null) entry.missingSince = uptime
        else if (uptime - entry.missingSince >= GONE_MS) await remove(key, entry)
      }
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

function next({ resource, createdAt }: Entry, { ref, spec }: Manifest): Declaration {
  const { uid, generation } = resource.metadata
  return { ref, uid, createdAt, generation: isDeepStrictEqual(resource.spec, spec) ? generation : generation + 1, spec }
}

function resourceOf({ ref, uid, createdAt, generation, spec }: Declaration, { labels, annotations }: Pick<Manifest, 'labels' | 'annotations'>): Resource {
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
