/** Issues, reads and changes ApiKeys as manifests in the folder, without disturbing what people write there. */
import { chmod, link, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { Unavailable } from '../../../domain/errors.ts'
import {
  API_VERSION,
  MAX_KEYS,
  type ApiKeyResource,
  type ApiKeyStatus,
  type ChangedKey,
  type DeclaredKey,
  type IssuedKey,
  type KeyEdit,
  type KeyName,
  type Ref,
  type Resources,
  type SeenKey,
} from '../resources.ts'
import type { Validator } from '../manifest-validation.ts'
import { temporaryBeside } from './atomic-write.ts'
import type { Declared } from './declared-resources.ts'
import { codeOf, manifestNames, MAX_FILES, signature } from './folder-scan.ts'
import { MAX_FILE_BYTES } from './manifest-parser.ts'
import { editSpec, type Field } from './manifest-edit.ts'
import type { Statuses } from './status-files.ts'
import { readRegular } from '../bounded-file.ts'
import { YAML } from '../yaml.ts'

type Authoring = Pick<Resources, 'issueKey' | 'changeKey' | 'readKeys'>

type Options = {
  path: string
  declared: Declared
  validator: Validator
  statuses: Statuses
  /** Reads the folder now. */
  sync: () => Promise<void>
}

/** A person may save the file at the same time. */
const MAX_TRIES = 5
const FORBIDDEN = ['EACCES', 'EPERM', 'EROFS']

export function openAuthoring({ path, declared, validator, statuses, sync }: Options): Authoring {
  let last: Promise<unknown> = Promise.resolve()
  const specOf = (ref: Ref) => declared.get(ref)?.spec ?? null

  /** Runs changes one at a time on the present content of the folder, and applies each before it resolves. */
  function serially<T>(work: () => Promise<T>): Promise<T | { outcome: 'forbidden' }> {
    const result = last.then(async () => {
      await syncTwice()
      if (!declared.isKnown()) throw new Unavailable('resources', new Error(declared.problem() ?? 'the manifests cannot be read'))
      const done = await allowed(work)
      await syncTwice()
      return done
    })
    last = result.catch(() => {})
    return result
  }

  /** A file is applied by the second scan that finds it unchanged. */
  async function syncTwice(): Promise<void> {
    await sync()
    await sync()
  }

  function faultsOf(document: unknown): string[] {
    const verdict = validator.validate(document, specOf)
    return verdict.outcome === 'refused' ? verdict.faults.map(({ sentence }) => sentence) : []
  }

  async function change(name: KeyName, edit: KeyEdit, seen?: SeenKey): Promise<ChangedKey> {
    const ref: Ref = { kind: 'ApiKey', ...name }
    const [[fieldName, value] = ['', null]] = Object.entries(edit) as [string, Field['value']][]
    const field: Field = { name: fieldName, value }
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const file = declared.fileOf(ref)
      const present = declared.get(ref)?.metadata
      if (!present) return null
      if (seen && (seen.uid !== present.uid || seen.generation !== present.generation)) return { outcome: 'conflict' }
      const impossible: ChangedKey = {
        outcome: 'refused',
        faults: [`spec.${field.name}: only the author of the manifest can change it, because of how it is written`],
      }
      if (file === null) return impossible
      const target = await realpath(join(path, file))
      const before = await signature(target)
      // It may not be a regular file any more.
      const found = await readRegular(target, MAX_FILE_BYTES)
      if (found.outcome === 'refused') return impossible
      const edited = editSpec(found.bytes.toString(), (value) => isOf(value, name), field)
      if (edited.outcome === 'impossible') return impossible
      // The edited document, including edits of its author that are not accepted yet: with any fault in it, the last accepted spec would stay in force.
      const faults = faultsOf(edited.document)
      if (faults.length > 0) return { outcome: 'refused', faults }
      if (edited.outcome === 'unchanged') return { outcome: 'changed' }
      if (await replace(target, edited.text, before)) return { outcome: 'changed' }
      await syncTwice()
    }
    throw new Unavailable('resources', new Error(`the manifest changed during each of ${MAX_TRIES} tries to write it`))
  }

  async function withStatus(key: ApiKeyResource): Promise<DeclaredKey> {
    const { namespace, name } = key.metadata
    return { key, status: (await statuses.get({ kind: 'ApiKey', namespace, name })) as ApiKeyStatus | null }
  }

  return {
    issueKey: ({ namespace, name, spec }) =>
      serially<IssuedKey>(async () => {
        const document = documentOf({ namespace, name }, spec)
        if (declared.get({ kind: 'ApiKey', namespace, name })) return { outcome: 'exists' }
        const faults = faultsOf(document)
        if (faults.length > 0) return { outcome: 'refused', faults }
        // One more would keep another from being read, perhaps another tenant's.
        if ((await manifestNames(path)).length >= MAX_FILES) return { outcome: 'full' }
        await create(path, `apikey.${namespace}.${name}`, stringify(document, { ...YAML, lineWidth: 0 }))
        return { outcome: 'created' }
      }),
    changeKey: (key, edit, seen) => serially(() => change(key, edit, seen)),
    async readKeys(namespace, name) {
      const keys = declared
        .all()
        .filter(
          (resource): resource is ApiKeyResource =>
            resource.kind === 'ApiKey' &&
            resource.metadata.namespace === namespace &&
            (name === undefined || resource.metadata.name === name),
        )
      return { outcome: 'read', keys: await Promise.all(keys.slice(0, MAX_KEYS).map(withStatus)) }
    },
  }
}

function documentOf({ namespace, name }: KeyName, spec: object): object {
  return { apiVersion: API_VERSION, kind: 'ApiKey', metadata: { name, namespace }, spec }
}

function isOf(value: unknown, { namespace, name }: KeyName): boolean {
  const { kind, metadata } = (value ?? {}) as { kind?: unknown; metadata?: { name?: unknown; namespace?: unknown } }
  return kind === 'ApiKey' && metadata?.name === name && (metadata.namespace ?? 'default') === namespace
}

/** Creates a file of that name atomically, with a number appended if a file of that name exists. */
async function create(folder: string, name: string, text: string): Promise<void> {
  const temporary = temporaryBeside(join(folder, name))
  try {
    await writeFile(temporary, text, { mode: 0o644, flag: 'wx' })
    for (let n = 1; ; n++) {
      const isNew = await link(temporary, join(folder, `${name}${n === 1 ? '' : `.${n}`}.yaml`)).then(() => true, unless('EEXIST'))
      if (isNew) return
    }
  } finally {
    await rm(temporary, { force: true })
  }
}

/** Replaces the content of the file atomically and keeps its mode. False if someone changed the file since `before`. */
async function replace(target: string, text: string, before: string): Promise<boolean> {
  const temporary = temporaryBeside(target)
  try {
    await writeFile(temporary, text, { mode: 0o600, flag: 'wx' })
    await chmod(temporary, (await stat(target)).mode)
    if ((await signature(target)) !== before) return false
    await rename(temporary, target)
    return true
  } finally {
    await rm(temporary, { force: true })
  }
}

/** A missing permission of the file system is an outcome; any other error becomes `Unavailable`. */
async function allowed<T>(work: () => Promise<T>): Promise<T | { outcome: 'forbidden' }> {
  try {
    return await work()
  } catch (error) {
    if (FORBIDDEN.includes(codeOf(error))) return { outcome: 'forbidden' }
    throw error instanceof Unavailable ? error : new Unavailable('resources', error)
  }
}

function unless(code: string): (error: unknown) => false {
  return (error) => {
    if (codeOf(error) === code) return false
    throw error
  }
}
