/**
 * Secrets in a folder, `<namespace>/<name>/{api-key,key-id}`, as a mounted Secret looks. Beside them lies `.owner`, which says that the folder is ours and whose;
 * a folder without it, or a link, belongs to somebody else and is left alone.
 */
import { lstatSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { chmod, lstat, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KeySecret, Ref, SecretOutcome } from '../resources.ts'
import { putFile, TEMPORARY, temporaryBeside } from './atomic-write.ts'

export type SecretOwner = { uid: string; namespace: string; name: string; createdAt: number }

export type Secrets = {
  put(owner: SecretOwner, secretName: string, secret: KeySecret): Promise<SecretOutcome>
  /** The Secret of that name if the uid owns it. */
  get(uid: string, namespace: string, secretName: string): Promise<KeySecret | null>
  /** Removes all that the uid owns. */
  remove(uid: string): Promise<void>
  /** Everybody who owns a Secret here. */
  owners(): SecretOwner[]
  /** Owners of Secrets that somebody changed since we last read or wrote them, each change once. Looks at those not looked at for ten seconds, some at a time. */
  tampered(now: number): Ref[]
}

const OWNER = '.owner'
type Entries = Record<'api-key' | 'key-id' | typeof OWNER, string>
type Found = { kind: 'absent' } | { kind: 'foreign' } | { kind: 'owned'; owner: SecretOwner; mac: string; entries: Partial<Entries> }
type PlanKeyIndex = { owner: SecretOwner; signature: string | null; checkedAt: number }

const CHECK_MS = 10_000
const CHECKED_AT_ONCE = 500

/** Opens the folder; it need not be there. Removes what an interrupted write or removal left. */
export function openSecrets(folder: string): Secrets {
  /** By path: every Secret that is ours, the one looked at longest ago first. */
  const known = new Map<string, PlanKeyIndex>()

  // Thousands of small files are read many times faster in one go, and nobody is served yet.
  for (const namespace of namesIn(folder)) {
    for (const name of namesIn(join(folder, namespace))) {
      const path = join(folder, namespace, name)
      const owner = name.startsWith(TEMPORARY) ? null : ownerAt(path)
      if (name.startsWith(TEMPORARY)) rmSync(path, { recursive: true, force: true })
      if (!owner) continue
      known.set(path, { owner: { uid: owner.uid, namespace, name: owner.name, createdAt: owner.createdAt }, signature: null, checkedAt: 0 })
      for (const entry of namesIn(path)) if (entry.startsWith(TEMPORARY)) rmSync(join(path, entry), { force: true })
    }
  }

  function remember(path: string, owner: SecretOwner): void {
    known.set(path, { owner, signature: signature(path), checkedAt: known.get(path)?.checkedAt ?? 0 })
  }

  return {
    async put(owner, secretName, secret) {
      const path = join(folder, owner.namespace, secretName)
      const entries = entriesOf(owner, secret)
      const found = await find(path, owner.namespace)
      if (found.kind === 'foreign' || (found.kind === 'owned' && found.owner.uid !== owner.uid)) return 'conflict'
      const isWritten = found.kind === 'absent' ? await create(path, entries) : await mend(path, entries, found.entries)
      if (isWritten === 'taken') return 'conflict'
      remember(path, owner)
      return isWritten
    },
    async get(uid, namespace, secretName) {
      const path = join(folder, namespace, secretName)
      const found = await find(path, namespace)
      if (found.kind !== 'owned' || found.owner.uid !== uid) return null
      remember(path, found.owner)
      const { 'api-key': apiKey, 'key-id': keyId } = found.entries
      return { apiKey: apiKey ?? '', keyId: keyId ?? '', mac: found.mac }
    },
    async remove(uid) {
      for (const [path, { owner }] of known) {
        if (owner.uid !== uid) continue
        const found = await find(path, owner.namespace)
        if (found.kind === 'owned' && found.owner.uid === uid) await discard(path)
        known.delete(path)
      }
    },
    owners: () => [...known.values()].map(({ owner }) => owner),
    tampered(now) {
      const refs: Ref[] = []
      const due = [...known].filter(([, { checkedAt }]) => now - checkedAt >= CHECK_MS).slice(0, CHECKED_AT_ONCE)
      for (const [path, { owner, signature: before }] of due) {
        const found = signature(path)
        if (before !== null && before !== found) refs.push({ kind: 'ApiKey', namespace: owner.namespace, name: owner.name })
        known.delete(path)
        known.set(path, { owner, signature: found, checkedAt: now })
      }
      return refs
    },
  }
}

function entriesOf({ uid, name, createdAt }: SecretOwner, { apiKey, keyId, mac }: KeySecret): Entries {
  return { 'api-key': apiKey, 'key-id': keyId, [OWNER]: `${JSON.stringify({ uid, name, createdAt, mac })}\n` }
}

async function find(path: string, namespace: string): Promise<Found> {
  const info = await lstat(path).catch(() => null)
  if (!info) return { kind: 'absent' }
  const owner = info.isDirectory() ? parseOwner(await readEntry(path, OWNER)) : null
  if (!owner) return { kind: 'foreign' }
  const entries: Partial<Entries> = {}
  for (const entry of ['api-key', 'key-id', OWNER] as const) {
    const text = await readEntry(path, entry)
    if (text !== null) entries[entry] = text
  }
  return { kind: 'owned', owner: { uid: owner.uid, namespace, name: owner.name, createdAt: owner.createdAt }, mac: owner.mac, entries }
}

function parseOwner(text: string | null): { uid: string; name: string; createdAt: number; mac: string } | null {
  try {
    const owner = JSON.parse(text ?? '')
    const isSound = [owner.uid, owner.name, owner.mac].every((value) => typeof value === 'string') && Number.isSafeInteger(owner.createdAt)
    return isSound ? owner : null
  } catch {
    return null
  }
}

/** The folder appears with all its entries at once. `taken` when somebody else's appeared there meanwhile. */
async function create(path: string, entries: Entries): Promise<'written' | 'taken'> {
  const temporary = temporaryBeside(path)
  await mkdir(temporary, { recursive: true, mode: 0o700 })
  try {
    for (const [entry, text] of Object.entries(entries)) await writeFile(join(temporary, entry), text, { mode: 0o600, flag: 'wx' })
    await rename(temporary, path)
    return 'written'
  } catch (error) {
    await rm(temporary, { recursive: true, force: true })
    if (['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return 'taken'
    throw error
  }
}

/** Puts right what differs, modes included. */
async function mend(path: string, wanted: Entries, found: Partial<Entries>): Promise<'written' | 'unchanged'> {
  let outcome: 'written' | 'unchanged' = 'unchanged'
  for (const [entry, text] of Object.entries(wanted)) {
    const isRight = found[entry as keyof Entries] === text && (await modeOf(join(path, entry))) === 0o600
    if (isRight) continue
    await putFile(join(path, entry), text)
    outcome = 'written'
  }
  if ((await modeOf(path)) === 0o700) return outcome
  await chmod(path, 0o700)
  return 'written'
}

/** Gone at once, then taken apart. */
async function discard(path: string): Promise<void> {
  const temporary = temporaryBeside(path)
  await rename(path, temporary)
  await rm(temporary, { recursive: true, force: true })
}

async function readEntry(path: string, entry: string): Promise<string | null> {
  return readFile(join(path, entry), 'utf8').catch(() => null)
}

async function modeOf(path: string): Promise<number> {
  return stat(path).then(({ mode }) => mode & 0o777, () => 0)
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

/** Changes whenever the folder or an entry does. */
function signature(path: string): string {
  return ['.', 'api-key', 'key-id', OWNER].map((entry) => {
    const info = statSync(join(path, entry), { bigint: true, throwIfNoEntry: false })
    return info ? `${info.ino}:${info.size}:${info.ctimeNs}` : 'gone'
  }).join(' ')
}
