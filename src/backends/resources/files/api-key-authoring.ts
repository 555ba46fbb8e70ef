/** Keys that are issued, rotated and revoked from here, in the folder of manifests: beside what people write there, and without disturbing it. */
import { chmod, link, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { Unavailable } from '../../../domain/errors.ts'
import { API_VERSION, type ChangedKey, type IssuedKey, type KeyName, type Ref, type Resources } from '../resources.ts'
import type { Validator } from '../manifest-validation.ts'
import { temporaryBeside } from './atomic-write.ts'
import type { Declared } from './declared-resources.ts'
import { LARGEST_FILE_BYTES } from './manifest-parser.ts'
import { editSpec, type Field } from './manifest-edit.ts'
import { readRegular } from '../bounded-file.ts'
import { YAML } from '../yaml.ts'

type Authoring = Pick<Resources, 'issueKey' | 'rotateKey' | 'revokeKey'>

type Options = {
  path: string
  declared: Declared
  validator: Validator
  /** Looks at the folder now. */
  look: () => Promise<void>
}

/** An author may save the file at the same time. */
const MOST_TRIES = 5
const FORBIDDEN = ['EACCES', 'EPERM', 'EROFS']

export function openAuthoring({ path, declared, validator, look }: Options): Authoring {
  let last: Promise<unknown> = Promise.resolve()
  const specOf = (ref: Ref) => declared.get(ref)?.spec ?? null

  /** One after the other, upon what the folder holds now; the folder is looked at until the change is taken over. */
  function inTurn<T>(work: () => Promise<T>): Promise<T | { outcome: 'forbidden' }> {
    const turn = last.then(async () => {
      await taken()
      const done = await allowed(work)
      await taken()
      return done
    })
    last = turn.catch(() => {})
    return turn
  }

  /** A file is taken over by the second look that finds it the same. */
  async function taken(): Promise<void> {
    await look()
    await look()
  }

  function faultsOf(document: unknown): string[] {
    const verdict = validator.validate(document, specOf)
    return verdict.outcome === 'refused' ? verdict.faults.map(({ sentence }) => sentence) : []
  }

  async function change(name: KeyName, field: Field): Promise<ChangedKey> {
    const ref: Ref = { kind: 'ApiKey', ...name }
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const file = declared.fileOf(ref)
      if (!specOf(ref)) return null
      const impossible: ChangedKey = { outcome: 'refused', faults: [`spec.${field.name}: the manifest is written in a way that only its author can change`] }
      if (file === null) return impossible
      const target = await realpath(join(path, file))
      const before = await signature(target)
      // It may have become something else since it was looked at.
      const found = await readRegular(target, LARGEST_FILE_BYTES)
      if (found.outcome === 'refused') return impossible
      const edited = editSpec(found.bytes.toString(), (value) => isOf(value, name), field)
      if (edited.outcome === 'impossible') return impossible
      // The file as it would be, with what its author may have spoilt: the last accepted spec stays in force while there is any fault in it.
      const faults = faultsOf(edited.document)
      if (faults.length > 0) return { outcome: 'refused', faults }
      if (edited.outcome === 'unchanged') return { outcome: 'changed' }
      if (await replace(target, edited.text, before)) return { outcome: 'changed' }
      await taken()
    }
    throw new Unavailable('resources', new Error('the manifest changes faster than it can be written'))
  }

  return {
    issueKey: ({ namespace, name, spec }) =>
      inTurn<IssuedKey>(async () => {
        const document = documentOf({ namespace, name }, spec)
        if (declared.get({ kind: 'ApiKey', namespace, name })) return { outcome: 'exists' }
        const faults = faultsOf(document)
        if (faults.length > 0) return { outcome: 'refused', faults }
        await create(path, `apikey.${namespace}.${name}`, stringify(document, { ...YAML, lineWidth: 0 }))
        return { outcome: 'created' }
      }),
    rotateKey: (key, revision) => inTurn(() => change(key, { name: 'rotationRevision', value: revision })),
    revokeKey: (key) => inTurn(() => change(key, { name: 'state', value: 'Revoked' })),
  }
}

function documentOf({ namespace, name }: KeyName, spec: object): object {
  return { apiVersion: API_VERSION, kind: 'ApiKey', metadata: { name, namespace }, spec }
}

function isOf(value: unknown, { namespace, name }: KeyName): boolean {
  const { kind, metadata } = (value ?? {}) as { kind?: unknown; metadata?: { name?: unknown; namespace?: unknown } }
  return kind === 'ApiKey' && metadata?.name === name && (metadata.namespace ?? 'default') === namespace
}

/** A new file of that name, or of one with a number where that is taken by something else. Written atomically. */
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

/** Puts the text in the place of the file, with its mode. False if somebody changed the file since `before`. */
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

async function signature(path: string): Promise<string> {
  const { ino, size, ctimeNs } = await stat(path, { bigint: true })
  return `${ino}:${size}:${ctimeNs}`
}

/** What the file system forbids is an outcome; whatever else it says never passes the backend. */
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

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}
