/**
 * `files:<folder>`: the manifests of a folder instead of Kubernetes. A folder holds what the API server would: documents (`declared.ts`), Secrets (`secrets.ts`)
 * and status (`statuses.ts`).
 */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { Unavailable } from '../../../domain/errors.ts'
import type { ApiKeyResource, Ref, Resource, Resources, ResourcesConfig } from '../resources.ts'
import { openValidator } from '../manifest-validation.ts'
import { openAuthoring } from './api-key-authoring.ts'
import { keyOf } from './manifest-index.ts'
import { openDeclared, type Declared } from './declared-resources.ts'
import { openFolderSync } from './folder-sync.ts'
import { openPollLoop } from './poll-loop.ts'
import { openRefusals, type Refusals } from './manifest-errors.ts'
import { openSecrets, type SecretOwner, type Secrets } from './secret-files.ts'
import { openStatuses, type Statuses } from './status-files.ts'

export type FilesOptions = {
  clock?: () => number
  /** Milliseconds of a clock that only rises: how long something was missing is no matter of the time of day, which may be set. */
  uptime?: () => number
  newUid?: () => string
  /** False: the folder is looked at when `look` is called, and not otherwise. */
  isAutomatic?: boolean
}

export type FilesResources = Resources & {
  /** Looks at the folder now. */
  look(): Promise<void>
}

/** Opens the adapter. Throws `Unavailable` if the declarations cannot be read. */
export async function openFiles(config: Omit<ResourcesConfig, 'environment'>, options: FilesOptions = {}): Promise<FilesResources> {
  const { clock = Date.now, uptime = performance.now.bind(performance), newUid = randomUUID, isAutomatic = true } = options
  const path = config.url.slice('files:'.length)
  const statuses = openStatuses(join(config.dataDir, 'status'))
  const secrets = openSecrets(join(config.dataDir, 'secrets'))
  const refusals = openRefusals(statuses, config.log)
  const owners = new Map(secrets.owners().map((owner) => [keyOf({ kind: 'ApiKey', ...owner }), owner]))
  let changed: (ref: Ref) => void = () => {}
  const validator = await openValidator()
  const declared = await openDeclared({
    declarations: config.declarations,
    validator,
    newUid,
    remembered(ref) {
      const owner = owners.get(keyOf(ref))
      return owner && secrets.owners().some(({ uid }) => uid === owner.uid) ? owner : null
    },
    async leaving(resource) {
      if (resource.kind === 'ApiKey') await secrets.remove(resource.metadata.uid)
      await statuses.remove(refOf(resource))
    },
    changed: (ref) => changed(ref),
  })
  const looking = openFolderSync({ path, declared, secrets, statuses, refusals, clock, uptime, log: config.log, changed: (ref) => changed(ref) })
  const pulse = openPollLoop(path, looking.look)

  return {
    look: pulse.now,
    async watch(listener) {
      changed = listener
      await pulse.now()
      for (const resource of declared.all()) changed(refOf(resource))
      if (isAutomatic) pulse.start()
    },
    refresh: pulse.now,
    serves: () => true,
    health: looking.health,
    get: (ref) => declared.get(ref),
    list: ((kind: Resource['kind'], namespace?: string) =>
      declared.all().filter((resource) => resource.kind === kind && (namespace === undefined || resource.metadata.namespace === namespace))) as Resources['list'],
    ...written(declared, statuses, secrets, refusals),
    ...openAuthoring({ path, declared, validator, look: pulse.now }),
    // A folder tells nobody beforehand what goes, and is ours alone.
    retain: async (owner) => (isThere(declared, owner) ? 'retained' : 'gone'),
    release: async () => {},
    going: () => null,
    isObserved: () => true,
    lead: async (told) => told(true),
    isLeading: () => true,
    resign: async () => {},
    figures: () => null,
    observe: () => {},
    close: pulse.stop,
  }
}

type Written = Pick<Resources, 'setStatus' | 'status' | 'putSecret' | 'secret' | 'removeSecrets'>

/** The verbs that write beside the manifests. A resource that goes meanwhile takes along what was written for it. */
function written(declared: Declared, statuses: Statuses, secrets: Secrets, refusals: Refusals): Written {
  return {
    setStatus: (ref, status) =>
      guarded(async () => {
        if (!declared.isStaying(ref)) return false
        await statuses.put(ref, status, refusals.of(ref))
        if (declared.isStaying(ref)) return true
        await statuses.remove(ref)
        return false
      }),
    status: (ref) => guarded(() => statuses.get(ref)),
    putSecret: (owner, name, secret) =>
      guarded(async () => {
        const staying = { ...refOf(owner), uid: owner.metadata.uid }
        if (!isThere(declared, staying)) return 'gone'
        const outcome = await secrets.put(ownerOf(owner), name, secret)
        if (isThere(declared, staying)) return outcome
        await secrets.remove(owner.metadata.uid)
        return 'gone'
      }),
    secret: ({ uid, namespace }, name) => guarded(() => secrets.get(uid, namespace, name)),
    removeSecrets: ({ uid }) => guarded(() => secrets.remove(uid)),
  }
}

/** Whether it, and not another one of its name, is there and not about to go. */
function isThere(declared: Declared, { uid, ...ref }: Ref & { uid: string }): boolean {
  return declared.isStaying(ref) && declared.get(ref)?.metadata.uid === uid
}

/** Runs one verb; what the file system says never passes the backend. */
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

function ownerOf({ metadata: { uid, namespace, name, creationTimestamp } }: ApiKeyResource): SecretOwner {
  return { uid, namespace, name, createdAt: Date.parse(creationTimestamp) }
}
