/**
 * `files:<folder>`: the manifests of a folder instead of Kubernetes. A folder holds what the API server would: documents (`declared.ts`), Secrets (`secrets.ts`)
 * and status (`statuses.ts`). Changes are seen by watching, and by looking every half second in case the watch says nothing.
 */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { Unavailable } from '../../errors.ts'
import type { ApiKeyResource, Ref, Resource, Resources, ResourcesConfig } from '../resources.ts'
import { openValidator } from '../validate.ts'
import { keyOf, openDeclared } from './declared.ts'
import { openFolder, type ManifestFile } from './folder.ts'
import { openPulse } from './pulse.ts'
import { openRefusals } from './refusals.ts'
import { openSecrets, type SecretOwner } from './secrets.ts'
import { openStatuses } from './statuses.ts'

const POLL_MS = 500
/** A file still changes, or a deletion is due: look again after this. */
const SOON_MS = 100
const SECRETS_CHECK_MS = 10_000
const SHOWN_PROBLEMS = 3

export type FilesOptions = {
  clock?: () => number
  newUid?: () => string
  /** False: nothing is looked at unless `look` is called. */
  isAutomatic?: boolean
}

export type FilesResources = Resources & {
  /** Looks at the folder now. */
  look(): Promise<void>
}

/** Opens the adapter. Throws `Unavailable` if the declarations cannot be read. */
export async function openFiles(config: ResourcesConfig, options: FilesOptions = {}): Promise<FilesResources> {
  const { clock = Date.now, newUid = randomUUID, isAutomatic = true } = options
  const { log, declarations } = config
  const path = config.url.slice('files:'.length)
  const folder = openFolder(path)
  const statuses = openStatuses(join(config.dataDir, 'status'))
  const secrets = await openSecrets(join(config.dataDir, 'secrets'))
  const owners = new Map(secrets.owners().map((owner) => [keyOf({ kind: 'ApiKey', ...owner }), owner]))
  const refusals = openRefusals(statuses, log)
  let changed: (ref: Ref) => void = () => {}
  const declared = await openDeclared({
    declarations,
    validator: await openValidator(),
    newUid,
    remembered: (ref) => owners.get(keyOf(ref)) ?? null,
    async leaving(resource) {
      if (resource.kind === 'ApiKey') await secrets.remove(resource.metadata.uid)
      await statuses.remove(refOf(resource))
    },
    changed: (ref) => changed(ref),
  })
  const pulse = openPulse(path, look, POLL_MS)
  let taken: ManifestFile[] | null = null
  let problem: string | null = 'the manifests were not read yet'
  let isCleaned = false
  let secretsCheckedAt = clock()

  /** Resolves to when to look again, in ms. */
  async function look(): Promise<number> {
    try {
      const seen = await folder.look()
      if (seen.outcome === 'unreadable') {
        declared.pause()
        became(seen.reason)
        return POLL_MS
      }
      if (!isSameAs(taken, seen.files) || declared.isWaiting()) {
        taken = null
        await declared.take(seen.files, clock())
        taken = seen.files
        await refusals.show(declared.troubles(), (ref) => declared.get(ref) !== null, clock())
      }
      if (!declared.isWaiting() && declared.troubles().length === 0 && !isCleaned) await clean()
      if (clock() - secretsCheckedAt >= SECRETS_CHECK_MS) await checkSecrets()
      became(null)
      return seen.isSettled && !declared.isWaiting() ? POLL_MS : SOON_MS
    } catch (error) {
      const { cause } = guarded(error)
      became(`changes of the manifests wait: ${error instanceof Unavailable ? error.message : String(cause)}`)
      return POLL_MS
    }
  }

  function became(next: string | null): void {
    if (next !== problem && next !== null) log.error({ folder: path }, next)
    if (next === null && problem !== null && changedYet) log.info({ folder: path }, 'the manifests are read')
    problem = next
    changedYet = true
  }
  let changedYet = false

  /** What belongs to nobody any more: its owner went while we were away. */
  async function clean(): Promise<void> {
    const uids = new Set(declared.all().map(({ metadata }) => metadata.uid))
    for (const { uid } of secrets.owners()) if (!uids.has(uid)) await secrets.remove(uid)
    for (const ref of await statuses.all()) if (!declared.get(ref)) await statuses.remove(ref)
    isCleaned = true
  }

  async function checkSecrets(): Promise<void> {
    secretsCheckedAt = clock()
    for (const ref of await secrets.tampered()) changed(ref)
  }

  /** Runs one verb; what the file system says never passes the door. */
  async function verb<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw guarded(error)
    }
  }

  const resources: FilesResources = {
    async look() {
      await pulse.now()
    },
    async watch(listener) {
      changed = listener
      await pulse.now()
      for (const resource of declared.all()) changed(refOf(resource))
      if (isAutomatic) pulse.start()
    },
    health: () => ({ ok: problem === null, detail: detailOf(problem, declared.troubles().map(({ file, message }) => `${file}: ${message}`)) }),
    get: (ref) => declared.get(ref),
    list: ((kind: Resource['kind'], namespace?: string) =>
      declared.all().filter((resource) => resource.kind === kind && (namespace === undefined || resource.metadata.namespace === namespace))) as Resources['list'],
    setStatus: (ref, status) =>
      verb(async () => {
        if (!declared.get(ref)) return false
        await statuses.put(ref, status, refusals.of(ref))
        if (declared.get(ref)) return true
        await statuses.remove(ref)
        return false
      }),
    status: (ref) => verb(() => statuses.get(ref)),
    putSecret: (owner, name, secret) =>
      verb(async () => {
        const isThere = () => declared.get(refOf(owner))?.metadata.uid === owner.metadata.uid
        if (!isThere()) return 'gone'
        const outcome = await secrets.put(ownerOf(owner), name, secret)
        if (isThere()) return outcome
        await secrets.remove(owner.metadata.uid)
        return 'gone'
      }),
    secret: ({ uid, namespace }, name) => verb(() => secrets.get(uid, namespace, name)),
    removeSecrets: ({ uid }) => verb(() => secrets.remove(uid)),
    close: () => pulse.stop(),
  }
  return resources
}

function refOf({ kind, metadata: { namespace, name } }: Resource): Ref {
  return { kind, namespace, name }
}

function ownerOf({ metadata: { uid, namespace, name, creationTimestamp } }: ApiKeyResource): SecretOwner {
  return { uid, namespace, name, createdAt: Date.parse(creationTimestamp) }
}

function isSameAs(before: ManifestFile[] | null, now: ManifestFile[]): boolean {
  return before?.length === now.length && now.every(({ name, parsed }, i) => before[i]?.name === name && before[i].parsed === parsed)
}

function guarded(error: unknown): Unavailable {
  return error instanceof Unavailable ? error : new Unavailable('resources', error)
}

function detailOf(problem: string | null, troubles: string[]): string {
  const all = [...(problem === null ? [] : [problem]), ...troubles]
  const more = all.length - SHOWN_PROBLEMS
  return all.length === 0 ? 'the manifests are read' : `${all.slice(0, SHOWN_PROBLEMS).join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}
