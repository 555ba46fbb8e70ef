/**
 * `kubernetes:`: Plans and ApiKeys as custom resources. What is read comes from caches that reflectors keep (`reflector.ts`); what is written goes to the API
 * server, and its answer into the cache, so that nobody acts on what was there before.
 */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { isDeepStrictEqual } from 'node:util'
import { API_VERSION, type ApiKeyResource, type Kind, type Ref, type Resource, type Resources, type ResourcesConfig, type SourceFigures } from '../resources.ts'
import { readAddress } from './kubernetes-url.ts'
import { openAuthoring } from './api-key-authoring.ts'
import { openCache, type Cache, type Change } from './informer-cache.ts'
import { openClient, type Client, type Counts } from './api-client.ts'
import { openCredentials } from './credentials/credentials.ts'
import { openEvents } from './event-recorder.ts'
import { addFinalizer, removeFinalizer } from './finalizer.ts'
import { openLeader, type Leader } from './leader-election.ts'
import { COLLECTIONS, type KubeObject } from './api-objects.ts'
import { openReflector, type Reflector, type ReflectorOptions } from './reflector.ts'
import { openSecrets, SECRET_LABEL, type Owner } from './secrets.ts'
import { applyStatus } from './status-subresource.ts'

export type KubernetesOptions = Pick<ReflectorOptions, 'relistMs' | 'watchSeconds' | 'pageSize'> & {
  lease?: { durationMs: number; renewDeadlineMs: number; retryMs: number }
}

type Caches = Record<Kind | 'Secret', Cache>

/** Opens the adapter; nothing is asked of the API server before `watch`. Throws an Error of one sentence if nobody says where it is. */
export async function openKubernetes(config: ResourcesConfig, options: KubernetesOptions = {}): Promise<Resources> {
  const { lease: leaseTimes, ...reflectorOptions } = options
  const address = readAddress(config.url)
  const credentials = await openCredentials(address.kubeconfig, config.environment)
  const counts: Counts = new Map()
  const client = openClient(credentials, 'tollgate', counts)
  // The Lease must not wait behind writes that hang: whoever is late with it stops leading.
  const leaseClient = openClient(credentials, 'tollgate/leader-election', counts)
  const caches: Caches = { Plan: openCache(), ApiKey: openCache(), Secret: openCache() }
  const staying = (ref: Ref) => present(caches[ref.kind].get(ref.namespace, ref.name))
  const secrets = openSecrets(client, caches.Secret, (owner) => staying(owner)?.metadata.uid === owner.uid)
  const events = openEvents(client, config.log)
  const follow = (kind: Kind | 'Secret', scope: string | null, changed: (change: Change) => void): Reflector =>
    openReflector({
      ...reflectorOptions,
      client,
      collection: COLLECTIONS[kind],
      scope,
      cache: caches[kind],
      changed,
      log: config.log,
      ...(kind === 'Secret' && { labelSelector: SECRET_LABEL }),
    })
  let followed: { scope: string | null; reflectors: Reflector[] }[] = []
  let leader: Leader | null = null
  let isClosed = false
  const reflectors = () => followed.flatMap((one) => one.reflectors)

  return {
    async watch(changed) {
      if (followed.length === 0) {
        followed = (address.namespaces ?? [null]).map((scope) => ({
          scope,
          reflectors: [
            follow('Plan', scope, (change) => isNews(change) && changed(refOf('Plan', change))),
            follow('ApiKey', scope, (change) => isNews(change) && changed(refOf('ApiKey', change))),
            follow('Secret', scope, (change) => secrets.changed(change).forEach(changed)),
          ],
        }))
      }
      await Promise.all(reflectors().map((reflector) => reflector.start()))
    },
    // One that never listed does so as soon as it may, and until then its namespace is not served.
    refresh: async () => void (await Promise.all(reflectors().map((reflector) => reflector.isSynced() && reflector.refresh()))),
    serves: (namespace) => followed.some(({ scope, reflectors }) => (scope ?? namespace) === namespace && reflectors.every((reflector) => reflector.isSynced())),
    health() {
      if (followed.length === 0) return { ok: false, detail: 'the API server was not asked yet' }
      const troubles = followed.map(({ reflectors }) => reflectors.map((reflector) => reflector.trouble()).find((trouble) => trouble !== null) ?? null)
      // Without the lease everything is followed all the same, and one namespace that may not be read keeps nobody from the others.
      return { ok: troubles.includes(null), detail: troubles.find((trouble) => trouble !== null) ?? leader?.trouble() ?? 'the API server is followed' }
    },
    get: (ref) => resourceOf(ref.kind, staying(ref)),
    list: ((kind: Kind, namespace?: string) =>
      [...caches[kind].all()]
        .filter((object) => (namespace === undefined || object.metadata.namespace === namespace) && present(object))
        .map((object) => resourceOf(kind, object))) as Resources['list'],
    going(ref) {
      const object = caches[ref.kind].get(ref.namespace, ref.name)
      return object && !present(object) ? { uid: object.metadata.uid } : null
    },
    retain: async (owner) => ((await addFinalizer(client, caches.ApiKey, owner)) === 'done' ? 'retained' : 'gone'),
    release: async (owner) => void (await removeFinalizer(client, caches.ApiKey, owner)),
    async setStatus(ref, status) {
      const before = await applyStatus(client, caches[ref.kind], ref, status)
      if (typeof before === 'object') events.transition(ref.kind, before, status)
      return before !== 'gone'
    },
    async status({ kind, namespace, name }) {
      const status = caches[kind].get(namespace, name)?.status as { conditions?: unknown } | undefined
      // One that somebody else wrote in part is none.
      return Array.isArray(status?.conditions) ? (status as never) : null
    },
    isObserved(ref) {
      const object = staying(ref)
      return object !== null && (object.status as { observedGeneration?: number } | undefined)?.observedGeneration === object.metadata.generation
    },
    putSecret: (owner, name, secret) => secrets.put(ownerOf(owner), name, secret),
    secret: async (owner, name) => secrets.get(owner, name),
    removeSecrets: (owner) => secrets.remove(owner),
    ...openAuthoring(client),
    async lead(changed) {
      if (isClosed || leader) return leader?.tried
      const namespace = address.leaseNamespace ?? credentials.namespace ?? address.namespaces?.[0] ?? 'default'
      leader = openLeader({ client: leaseClient, namespace, name: address.lease, identity: `${hostname()}_${randomUUID()}`, changed, log: config.log, ...leaseTimes })
      await leader.tried
    },
    isLeading: () => leader?.isLeading() ?? false,
    resign: async () => leader?.resign(),
    figures: () => ({ host: credentials.host, lease: address.lease, ...figuresOf(client, reflectors()) }),
    observe: (observer) => [client, leaseClient].forEach((one) => one.observe(observer)),
    async close() {
      if (isClosed) return
      isClosed = true
      await leader?.resign()
      await Promise.all(reflectors().map((reflector) => reflector.stop()))
      await credentials.close()
    },
  }
}

/** What is being deleted is gone for everybody but those who clean up after it. */
function present(object: KubeObject | null): KubeObject | null {
  return object?.metadata.deletionTimestamp === undefined ? object : null
}

/** Our own status is no news, since it came into the cache with the answer to its write; one that somebody else wrote is. */
function isNews({ before, after }: Change): boolean {
  if (!before || !after) return true
  const told = ({ metadata, status }: KubeObject) => {
    const { uid, generation, deletionTimestamp, labels, annotations, finalizers } = metadata
    return { uid, generation, deletionTimestamp, labels, annotations, finalizers, status }
  }
  return !isDeepStrictEqual(told(before), told(after))
}

function refOf(kind: Kind, { before, after }: Change): Ref {
  const { namespace, name } = ((after ?? before) as KubeObject).metadata
  return { kind, namespace, name }
}

function ownerOf({ kind, metadata: { namespace, name, uid } }: ApiKeyResource): Owner {
  return { kind, namespace, name, uid }
}

function resourceOf(kind: Kind, object: KubeObject | null): Resource | null {
  if (!object) return null
  const { name, namespace, uid, generation = 1, creationTimestamp, labels, annotations } = object.metadata
  const metadata = { name, namespace, uid, generation, creationTimestamp, ...(labels && { labels }), ...(annotations && { annotations }) }
  return { apiVersion: API_VERSION, kind, metadata, spec: object.spec } as Resource
}

function figuresOf(client: Client, reflectors: Reflector[]): Omit<SourceFigures, 'host' | 'lease'> {
  const figures = reflectors.map((reflector) => reflector.figures())
  const sum = (of: (one: (typeof figures)[number]) => number) => figures.reduce((total, one) => total + of(one), 0)
  const ages = figures.map(({ lastEventAgeMs }) => lastEventAgeMs).filter((age) => age !== null)
  return {
    requests: client.counts(),
    lists: sum(({ lists }) => lists),
    watches: sum(({ watches }) => watches),
    failures: sum(({ failures }) => failures),
    missed: sum(({ missed }) => missed),
    // Of the one that is silent longest, which the others would hide.
    lastEventAgeMs: ages.length === 0 ? null : Math.max(...ages),
  }
}
