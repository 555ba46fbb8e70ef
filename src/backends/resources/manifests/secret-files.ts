/**
 * Secrets as files, `<namespace>/<name>/{api-key,key-id,…}`, laid out like a mounted Secret. The file `.owner` beside them names the ApiKey
 * that owns the folder; a folder without it, or a link, is foreign and is never changed.
 */
import { lstatSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { isKeySized, secretEntries, type KeySecret, type Ref, type SecretOutcome, type SecretTemplate } from '../resources.ts'
import { putFile, TEMPORARY, temporaryBeside } from './atomic-write.ts'
import { codeOf } from './folder-scan.ts'

export type SecretOwner = { uid: string; namespace: string; name: string; createdAt: number }
type TemplateOwner = SecretOwner & { template: SecretTemplate }

export type Secrets = {
  /** Of the owner's template only `data` counts: files have no labels. */
  put(owner: TemplateOwner, secretName: string, secret: KeySecret): Promise<SecretOutcome>
  /** The Secret of that name if the ApiKey owns it. `isModified`: apart from the key it differs from what `put` writes. */
  get(owner: TemplateOwner, secretName: string): Promise<(KeySecret & { isModified?: true }) | null>
  /** Removes all Secrets of that uid. */
  remove(uid: string): Promise<void>
  owners(): SecretOwner[]
  /** Owners of Secrets that someone else changed since their last read or write, each change once. Checks Secrets not checked for ten seconds, 500 per call. */
  edited(now: number): Ref[]
}

const OWNER = '.owner'
type Entries = Record<string, string>
type Found = { kind: 'absent' } | { kind: 'foreign' } | { kind: 'owned'; owner: SecretOwner; mac: string; entries: Entries }

const CHECK_MS = 10_000
const MAX_CHECKED_PER_CALL = 500

/** Opens the folder, which may be missing. Removes what an interrupted write or removal left. */
export function openSecrets(folder: string): Secrets {
  /** Owned Secrets by path, the one checked longest ago first. */
  const owned = new Map<string, { owner: SecretOwner; signature: string | null; checkedAt: number }>()

  // Synchronous, since it is many times faster for thousands of small files, and no request is served yet.
  for (const namespace of namesIn(folder)) {
    for (const name of namesIn(join(folder, namespace))) {
      const path = join(folder, namespace, name)
      const owner = name.startsWith(TEMPORARY) ? null : ownerAt(path)
      if (name.startsWith(TEMPORARY)) rmSync(path, { recursive: true, force: true })
      if (!owner) continue
      owned.set(path, { owner: { uid: owner.uid, namespace, name: owner.name, createdAt: owner.createdAt }, signature: null, checkedAt: 0 })
      for (const entry of namesIn(path)) if (entry.startsWith(TEMPORARY)) rmSync(join(path, entry), { force: true })
    }
  }

  function record(path: string, owner: SecretOwner): void {
    owned.set(path, { owner, signature: signature(path), checkedAt: owned.get(path)?.checkedAt ?? 0 })
  }

  return {
    async put(owner, secretName, secret) {
      const path = join(folder, owner.namespace, secretName)
      const entries = entriesOf(owner, secret)
      const found = await find(path, owner.namespace)
      if (found.kind === 'foreign' || (found.kind === 'owned' && found.owner.uid !== owner.uid)) return 'conflict'
      const outcome = found.kind === 'absent' ? await create(path, entries) : await repair(path, entries, found.entries)
      if (outcome === 'exists') return 'conflict'
      record(path, owner)
      return outcome
    },
    async get(owner, secretName) {
      const path = join(folder, owner.namespace, secretName)
      const found = await find(path, owner.namespace)
      if (found.kind !== 'owned' || found.owner.uid !== owner.uid) return null
      record(path, found.owner)
      const { 'api-key': apiKey = '', 'key-id': keyId = '', [OWNER]: _owner, ...more } = found.entries
      const secret = { apiKey, keyId, mac: found.mac }
      if (!isKeySized(secret)) return { ...secret, isModified: true }
      const { 'api-key': _key, 'key-id': _id, ...wanted } = secretEntries(secret, owner.template)
      return isDeepStrictEqual(more, wanted) ? secret : { ...secret, isModified: true }
    },
    async remove(uid) {
      for (const [path, { owner }] of owned) {
        if (owner.uid !== uid) continue
        // What cannot be read now was ours when it was read last.
        const found = await find(path, owner.namespace).catch(() => ({ kind: 'owned' as const, owner }))
        if (found.kind === 'owned' && found.owner.uid === uid) await discard(path)
        owned.delete(path)
      }
    },
    owners: () => [...owned.values()].map(({ owner }) => owner),
    edited(now) {
      const refs: Ref[] = []
      const due = [...owned].filter(([, { checkedAt }]) => now - checkedAt >= CHECK_MS).slice(0, MAX_CHECKED_PER_CALL)
      for (const [path, { owner, signature: before }] of due) {
        const found = signature(path)
        if (before !== null && before !== found) refs.push({ kind: 'ApiKey', namespace: owner.namespace, name: owner.name })
        owned.delete(path)
        owned.set(path, { owner, signature: found, checkedAt: now })
      }
      return refs
    },
  }
}

function entriesOf({ uid, name, createdAt, template }: TemplateOwner, secret: KeySecret): Entries {
  return { ...secretEntries(secret, template), [OWNER]: `${JSON.stringify({ uid, name, createdAt, mac: secret.mac })}\n` }
}

async function find(path: string, namespace: string): Promise<Found> {
  const info = await lstat(path).catch(orAbsent)
  if (!info) return { kind: 'absent' }
  const owner = info.isDirectory() ? parseOwner(await readEntry(path, OWNER)) : null
  if (!owner) return { kind: 'foreign' }
  // Without a prototype, since an entry may have any name.
  const entries: Entries = Object.create(null)
  for (const entry of (await readdir(path).catch(orAbsent)) ?? []) {
    const text = await readEntry(path, entry)
    if (text !== null) entries[entry] = text
  }
  return { kind: 'owned', owner: { uid: owner.uid, namespace, name: owner.name, createdAt: owner.createdAt }, mac: owner.mac, entries }
}

function parseOwner(text: string | null): { uid: string; name: string; createdAt: number; mac: string } | null {
  try {
    const owner = JSON.parse(text ?? '')
    const isValid = [owner.uid, owner.name, owner.mac].every((value) => typeof value === 'string') && Number.isSafeInteger(owner.createdAt)
    return isValid ? owner : null
  } catch {
    return null
  }
}

/** Creates the folder with all its entries atomically. `exists` when a foreign one appeared there in the meantime. */
async function create(path: string, entries: Entries): Promise<'written' | 'exists'> {
  const temporary = temporaryBeside(path)
  await mkdir(temporary, { recursive: true, mode: 0o700 })
  try {
    for (const [entry, text] of Object.entries(entries)) await writeFile(join(temporary, entry), text, { mode: 0o600, flag: 'wx' })
    await rename(temporary, path)
    return 'written'
  } catch (error) {
    await rm(temporary, { recursive: true, force: true })
    if (['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return 'exists'
    throw error
  }
}

/** Rewrites entries that differ, removes those that are not wanted, and corrects file modes. */
async function repair(path: string, wanted: Entries, found: Entries): Promise<'written' | 'unchanged'> {
  let outcome: 'written' | 'unchanged' = 'unchanged'
  for (const [entry, text] of Object.entries(wanted)) {
    const isCorrect = found[entry] === text && (await modeOf(join(path, entry))) === 0o600
    if (isCorrect) continue
    await putFile(join(path, entry), text)
    outcome = 'written'
  }
  for (const entry of Object.keys(found).filter((entry) => !Object.hasOwn(wanted, entry))) {
    await rm(join(path, entry), { force: true })
    outcome = 'written'
  }
  if ((await modeOf(path)) === 0o700) return outcome
  await chmod(path, 0o700)
  return 'written'
}

/** Renames the folder first, so that it disappears atomically, then deletes it. */
async function discard(path: string): Promise<void> {
  const temporary = temporaryBeside(path)
  await rename(path, temporary)
  await rm(temporary, { recursive: true, force: true })
}

async function readEntry(path: string, entry: string): Promise<string | null> {
  return readFile(join(path, entry), 'utf8').catch(orAbsent)
}

/** Of what is not there, is no file, or is another user's. After any other error nobody can tell, and what is ours must not count as foreign. */
function orAbsent(error: unknown): null {
  if (['ENOENT', 'ENOTDIR', 'EISDIR', 'ELOOP', 'ENXIO', 'EACCES'].includes(codeOf(error))) return null
  throw error
}

async function modeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ mode }) => mode & 0o777,
    () => 0,
  )
}

function ownerAt(path: string): ReturnType<typeof parseOwner> {
  try {
    return lstatSync(path).isDirectory() ? parseOwner(readFileSync(join(path, OWNER), 'utf8')) : null
  } catch {
    return null
  }
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

/** Changes with every change of the folder or an entry. */
function signature(path: string): string {
  return ['.', ...namesIn(path)]
    .map((entry) => {
      const info = statSync(join(path, entry), { bigint: true, throwIfNoEntry: false })
      return info ? `${info.ino}:${info.size}:${info.ctimeNs}` : 'gone'
    })
    .join(' ')
}
