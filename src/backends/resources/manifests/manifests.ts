/**
 * `files:<folder>`: Plans and ApiKeys from manifests in a folder, without Kubernetes. Files take the place of the API server's objects: manifests
 * (`declared-resources.ts`), Secrets (`secret-files.ts`) and statuses (`status-files.ts`).
 */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { Unavailable } from '../../../domain/errors.ts'
import type { ApiKeyResource, Ref, Resource, Resources, ResourcesConfig, SecretTemplate } from '../resources.ts'
import { openValidator } from '../manifest-validation.ts'
import { openAuthoring } from './api-key-authoring.ts'
import { keyOf } from './manifest-index.ts'
import { openDeclared, type Declared } from './declared-resources.ts'
import { openFolderSync } from './folder-sync.ts'
import { openPollLoop } from './poll-loop.ts'
import { openManifestErrorReports, type ManifestErrorReports } from './manifest-error-reports.ts'
import { openSecrets, type SecretOwner, type Secrets } from './secret-files.ts'
import { openStatuses, type Statuses } from './status-files.ts'

export type FilesOptions = {
  clock?: () => number
  /** Monotonic clock in ms: how long a document is missing must not depend on the time of day, which may be set. */
  uptime?: () => number
  newUid?: () => string
  /** False: the folder is read only when `sync` is called. */
  isPolling?: boolean
}

export type FilesResources = Resources & {
  /** Reads the folder now. */
  sync(): Promise<void>
}

/** Opens the adapter. Throws `Unavailable` if the declarations cannot be read. */
export async function openFiles(config: Omit<ResourcesConfig, 'environment'>, options: FilesOptions = {}): Promise<FilesResources> {
  const { clock = Date.now, uptime = performance.now.bind(performance), newUid = randomUUID, isPolling = true } = options
  const path = config.url.slice('files:'.length)
  const statuses = openStatuses(join(config.dataDir, 'status'))
  const secrets = openSecrets(join(config.dataDir, 'secrets'))
  const errorReports = openManifestErrorReports(statuses, config.log)
  const owners = new Map(secrets.owners().map((owner) => [keyOf({ kind: 'ApiKey', ...owner }), owner]))
  let changed: (ref: Ref) => void = () => {}
  const validator = await openValidator()
  const declared = await openDeclared({
    declarations: config.declarations,
    validator,
    newUid,
    formerIdentity(ref) {
      const owner = owners.get(keyOf(ref))
      return owner && secrets.owners().some(({ uid }) => uid === owner.uid) ? owner : null
    },
    async beforeDelete(resource) {
      if (resource.kind === 'ApiKey') await secrets.remove(resource.metadata.uid)
      await statuses.remove(refOf(resource))
    },
    changed: (ref) => changed(ref),
  })
  const folderSync = openFolderSync({
    path,
    declared,
    secrets,
    statuses,
    errorReports,
    clock,
    uptime,
    log: config.log,
    changed: (ref) => changed(ref),
  })
  const pollLoop = openPollLoop(path, folderSync.sync)

  return {
    sync: pollLoop.runNow,
    async watch(listener) {
      changed = listener
      await pollLoop.runNow()
      for (const resource of declared.all()) changed(refOf(resource))
      if (isPolling) pollLoop.start()
    },
    refresh: pollLoop.runNow,
    serves: () => true,
    health: folderSync.health,
    get: (ref) => declared.get(ref),
    list: ((kind: Resource['kind'], namespace?: string) =>
      declared
        .all()
        .filter(
          (resource) => resource.kind === kind && (namespace === undefined || resource.metadata.namespace === namespace),
        )) as Resources['list'],
    ...openOutputs(declared, statuses, secrets, errorReports),
    ...openAuthoring({ path, declared, validator, statuses, sync: pollLoop.runNow }),
    // A folder has no finalizers, and no second controller.
    retain: async (owner) => (isPresent(declared, owner) ? 'retained' : 'gone'),
    release: async () => {},
    terminating: () => null,
    isObserved: () => true,
    lead: async (leadershipChanged) => leadershipChanged(true),
    isLeading: () => true,
    resign: async () => {},
    stats: () => null,
    observe: () => {},
    close: pollLoop.stop,
  }
}

type Outputs = Pick<Resources, 'setStatus' | 'status' | 'putSecret' | 'secret' | 'removeSecrets'>

/** Statuses and Secrets. If a resource is deleted during a write, what was written is removed again. */
function openOutputs(declared: Declared, statuses: Statuses, secrets: Secrets, errorReports: ManifestErrorReports): Outputs {
  return {
    setStatus: (ref, status) =>
      guarded(async () => {
        if (!declared.isPresent(ref)) return false
        await statuses.put(ref, status, errorReports.of(ref))
        if (declared.isPresent(ref)) return true
        await statuses.remove(ref)
        return false
      }),
    status: (ref) => guarded(() => statuses.get(ref)),
    putSecret: (owner, name, secret) =>
      guarded(async () => {
        const ref = { ...refOf(owner), uid: owner.metadata.uid }
        if (!isPresent(declared, ref)) return 'gone'
        const outcome = await secrets.put(ownerOf(owner), name, secret)
        if (isPresent(declared, ref)) return outcome
        await secrets.remove(owner.metadata.uid)
        return 'gone'
      }),
    secret: (owner, name) => guarded(() => secrets.get(ownerOf(owner), name)),
    removeSecrets: ({ uid }) => guarded(() => secrets.remove(uid)),
  }
}

/** Whether the resource of that uid, and not another one of its name, exists and is not being deleted. */
function isPresent(declared: Declared, { uid, ...ref }: Ref & { uid: string }): boolean {
  return declared.isPresent(ref) && declared.get(ref)?.metadata.uid === uid
}

/** Turns errors of the file system into `Unavailable`. */
async function guarded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw error instanceof Unavailable ? error : new Unavailable('resources', error)
  }
}

function refOf({ kind, metadata: { namespace, name } }: Resource): Ref {
  return { kind, namespace, name }
}

function ownerOf({ metadata, spec: { secretTemplate = {} } }: ApiKeyResource): SecretOwner & { template: SecretTemplate } {
  const { uid, namespace, name, creationTimestamp } = metadata
  return { uid, namespace, name, createdAt: Date.parse(creationTimestamp), template: secretTemplate }
}
