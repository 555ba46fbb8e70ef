/**
 * `kubernetes:`: Plans and ApiKeys as custom resources. Reads come from caches that reflectors fill (`reflector.ts`). Writes go to the API server, and their
 * responses into the cache, so that the next read sees them.
 */
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { isDeepStrictEqual } from 'node:util'
import {
  API_VERSION,
  type ApiKeyResource,
  type ApiServerStats,
  type Kind,
  type Ref,
  type Resource,
  type Resources,
  type ResourcesConfig,
} from '../resources.ts'
import { readAddress } from './kubernetes-url.ts'
import { openAuthoring } from './api-key-authoring.ts'
import { openCache, type Cache, type Change } from './informer-cache.ts'
import { openClient, type Client, type Counts } from './api-client.ts'
import { openCredentials } from './credentials/credentials.ts'
import { openEvents } from './event-recorder.ts'
import { setFinalizer } from './finalizer.ts'
import { openLeader, type Leader } from './leader-election.ts'
import { COLLECTIONS, type KubeObject } from './api-objects.ts'
import { openReflector, type Reflector, type ReflectorOptions } from './reflector.ts'
import { keptSecret, openSecrets, SECRET_LABEL, type TemplateOwner } from './secrets.ts'
import { applyStatus } from './status-subresource.ts'

export type KubernetesOptions = Pick<ReflectorOptions, 'relistMs' | 'watchSeconds' | 'pageSize'> & {
  lease?: { durationMs: number; renewDeadlineMs: number; retryMs: number }
}

/** Opens the adapter; the first request follows with `watch` or `lead`. Throws an Error of one sentence if the API server's address is not configured. */
export async function openKubernetes(config: ResourcesConfig, options: KubernetesOptions = {}): Promise<Resources> {
  const { lease: leaseTimes, ...reflectorOptions } = options
  const address = readAddress(config.url)
  const credentials = await openCredentials(address.kubeconfig, config.environment)
  const counts: Counts = new Map()
  const client = openClient(credentials, 'tollgate', counts)
  // A client of its own, so that requests for the Lease do not queue behind slow writes: a leader that renews late stops leading.
  const leaseClient = openClient(credentials, 'tollgate/leader-election', counts)
  const caches: Record<Kind | 'Secret', Cache> = { Plan: openCache(), ApiKey: openCache(), Secret: openCache() }
  const presentOf = (ref: Ref) => unlessTerminating(caches[ref.kind].get(ref.namespace, ref.name))
  const secrets = openSecrets(client, caches.Secret, (owner) => presentOf(owner)?.metadata.uid === owner.uid)
  const events = openEvents(client, config.log)
  const reflectorOf = (kind: Kind | 'Secret', scope: string | null, changed: (change: Change) => void): Reflector =>
    openReflector({
      ...reflectorOptions,
      client,
      collection: COLLECTIONS[kind],
      scope,
      cache: caches[kind],
      changed,
      log: config.log,
      ...(kind === 'Secret' && { labelSelector: SECRET_LABEL, keep: keptSecret }),
    })
  let scopes: { scope: string | null; reflectors: Reflector[] }[] = []
  let leader: Leader | null = null
  let isClosed = false
  const reflectors = () => scopes.flatMap((one) => one.reflectors)

  return {
    async watch(changed) {
      if (scopes.length === 0) {
        scopes = (address.namespaces ?? [null]).map((scope) => ({
          scope,
          reflectors: [
            reflectorOf('Plan', scope, (change) => isRelevant(change) && changed(refOf('Plan', change))),
            reflectorOf('ApiKey', scope, (change) => isRelevant(change) && changed(refOf('ApiKey', change))),
            reflectorOf('Secret', scope, (change) => secrets.changed(change).forEach(changed)),
          ],
        }))
      }
      await Promise.all(reflectors().map((reflector) => reflector.start()))
    },
    // A reflector without a first list retries it by itself, and its namespace is not served until then.
    refresh: async () => void (await Promise.all(reflectors().map((reflector) => reflector.isSynced() && reflector.refresh()))),
    serves: (namespace) =>
      scopes.some(({ scope, reflectors }) => (scope ?? namespace) === namespace && reflectors.every((reflector) => reflector.isSynced())),
    health() {
      if (scopes.length === 0) return { ok: false, detail: 'the API server was not contacted yet' }
      const errors = scopes.map(
        ({ reflectors }) => reflectors.map((reflector) => reflector.lastError()).find((error) => error !== null) ?? null,
      )
      // Watches work without the lease, and a namespace without permissions does not affect the others.
      return {
        ok: errors.includes(null),
        detail: errors.find((error) => error !== null) ?? leader?.lastError() ?? 'the API server is watched',
      }
    },
    get: (ref) => resourceOf(ref.kind, presentOf(ref)),
    list: ((kind: Kind, namespace?: string) =>
      [...caches[kind].all()]
        .filter((object) => (namespace === undefined || object.metadata.namespace === namespace) && unlessTerminating(object))
        .map((object) => resourceOf(kind, object))) as Resources['list'],
    terminating(ref) {
      const object = caches[ref.kind].get(ref.namespace, ref.name)
      return object && !unlessTerminating(object) ? { uid: object.metadata.uid } : null
    },
    retain: async (owner) => ((await setFinalizer(client, caches.ApiKey, owner, true)) === 'done' ? 'retained' : 'gone'),
    release: async (owner) => void (await setFinalizer(client, caches.ApiKey, owner, false)),
    async setStatus(ref, status) {
      const before = await applyStatus(client, caches[ref.kind], ref, status)
      if (typeof before === 'object') events.transition(ref.kind, before, status)
      return before !== 'gone'
    },
    async status({ kind, namespace, name }) {
      const status = caches[kind].get(namespace, name)?.status as { conditions?: unknown } | undefined
      // A status without conditions was not written by the controller.
      return Array.isArray(status?.conditions) ? (status as never) : null
    },
    isObserved(ref) {
      const object = presentOf(ref)
      return (
        object !== null && (object.status as { observedGeneration?: number } | undefined)?.observedGeneration === object.metadata.generation
      )
    },
    putSecret: (owner, name, secret) => secrets.put(ownerOf(owner), name, secret),
    secret: (owner, name) => secrets.get(ownerOf(owner), name),
    removeSecrets: (owner) => secrets.remove(owner),
    ...openAuthoring(client),
    async lead(changed) {
      if (isClosed || leader) return leader?.firstTry
      const namespace = address.leaseNamespace ?? credentials.namespace ?? address.namespaces?.[0] ?? 'default'
      leader = openLeader({
        client: leaseClient,
        namespace,
        name: address.lease,
        identity: `${hostname()}_${randomUUID()}`,
        changed,
        log: config.log,
        ...leaseTimes,
      })
      await leader.firstTry
    },
    isLeading: () => leader?.isLeading() ?? false,
    resign: async () => leader?.resign(),
    stats: () => ({ host: credentials.host, lease: address.lease, ...statsOf(client, reflectors()) }),
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

/** The object, or null if it is being deleted: `get` and `list` do not return it, only `terminating` does. */
function unlessTerminating(object: KubeObject | null): KubeObject | null {
  return object?.metadata.deletionTimestamp === undefined ? object : null
}

/** Whether a change needs a pass. The controller's own status does not, since the cache has it from the response; a status that someone else wrote does. */
function isRelevant({ before, after }: Change): boolean {
  if (!before || !after) return true
  const relevant = ({ metadata, status }: KubeObject) => {
    const { uid, generation, deletionTimestamp, labels, annotations, finalizers } = metadata
    return { uid, generation, deletionTimestamp, labels, annotations, finalizers, status }
  }
  return !isDeepStrictEqual(relevant(before), relevant(after))
}

function refOf(kind: Kind, { before, after }: Change): Ref {
  const { namespace, name } = ((after ?? before) as KubeObject).metadata
  return { kind, namespace, name }
}

function ownerOf({ kind, metadata: { namespace, name, uid }, spec: { secretTemplate = {} } }: ApiKeyResource): TemplateOwner {
  return { kind, namespace, name, uid, template: secretTemplate }
}

function resourceOf(kind: Kind, object: KubeObject | null): Resource | null {
  if (!object) return null
  const { name, namespace, uid, generation = 1, creationTimestamp, labels, annotations } = object.metadata
  const metadata = { name, namespace, uid, generation, creationTimestamp, ...(labels && { labels }), ...(annotations && { annotations }) }
  return { apiVersion: API_VERSION, kind, metadata, spec: object.spec } as Resource
}

function statsOf(client: Client, reflectors: Reflector[]): Omit<ApiServerStats, 'host' | 'lease'> {
  const stats = reflectors.map((reflector) => reflector.stats())
  const sum = (of: (one: (typeof stats)[number]) => number) => stats.reduce((total, one) => total + of(one), 0)
  const ages = stats.map(({ lastEventAgeMs }) => lastEventAgeMs).filter((age) => age !== null)
  return {
    requests: client.counts(),
    lists: sum(({ lists }) => lists),
    watches: sum(({ watches }) => watches),
    failures: sum(({ failures }) => failures),
    missed: sum(({ missed }) => missed),
    // The maximum, so that a busy watch does not hide a silent one.
    lastEventAgeMs: ages.length === 0 ? null : Math.max(...ages),
  }
}
