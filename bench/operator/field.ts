/** Test data of the operator benchmark: many plans and keys on an API server, observed by a watch. */
import { readFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { parseAllDocuments } from 'yaml'
import { openCache, type Change } from '../../src/backends/resources/kubernetes/informer-cache.ts'
import { openClient, type Client } from '../../src/backends/resources/kubernetes/api-client.ts'
import { openCredentials } from '../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { COLLECTIONS, collectionPath, objectPath, type KubeObject } from '../../src/backends/resources/kubernetes/api-objects.ts'
import { openReflector } from '../../src/backends/resources/kubernetes/reflector.ts'
import { API_VERSION, type ApiKeyStatus, type Kind } from '../../src/backends/resources/resources.ts'
import { installCrds, makeNamespace, openApi, type Api } from '../../test/servers/kube/api.ts'
import type { Choice } from '../stage.ts'

/** The maximum of a plan. */
export const KEYS_OF_A_PLAN = 100
const NAMESPACES = 10
const LONGEST_MS = 900_000

/** Times are `performance.now()` at the watch event. */
export type Field = {
  plans: number
  /** Declares every key, as many at once as the client allows. Returns the milliseconds taken. */
  declareKeys(): Promise<number>
  /** How many keys are Ready by their latest spec. */
  ready(): number
  /** Resolves to the time at which the test became true. */
  until(what: string, test: () => boolean): Promise<number>
  /** Declares one more key, in the extra plan; milliseconds until it is Ready. */
  issue(n: number): Promise<number>
  /** Changes the spec of a key; milliseconds until that spec is Ready. */
  edit(n: number, spec: object): Promise<number>
  /** Suspends the n-th plan. */
  suspend(n: number): Promise<void>
  /** Number of keys of the n-th plan with Ready=False, which follows the removal of their Secrets. */
  closed(n: number): number
  /** The API key in the Secret of the n-th ApiKey. */
  secret(n: number): Promise<string>
  /** Events of the watch over keys so far. */
  events(): number
  close(): Promise<void>
}

const namespaceOf = (plan: number) => `bench-${plan % NAMESPACES}`
const planOf = (key: number) => Math.floor(key / KEYS_OF_A_PLAN)

/** Creates namespaces, plans for `keys` keys and one extra plan, and starts the watch. The controller is started afterwards. */
export async function openField(kubeconfig: string, { keys: count, finalizerPolicy }: Pick<Choice, 'keys' | 'finalizerPolicy'>): Promise<Field> {
  const plans = Math.ceil(count / KEYS_OF_A_PLAN)
  await prepare(kubeconfig, plans, finalizerPolicy)
  const credentials = await openCredentials(kubeconfig, {})
  const client = openClient(credentials, 'bench')
  const cache = openCache()
  const isReady = new Set<string>()
  const closed = new Map<string, Set<string>>()
  const waiting = new Set<{ test: () => boolean; resolve: (at: number) => void }>()
  let events = 0

  function changed({ after }: Change): void {
    events++
    if (!after) return
    const { name } = after.metadata
    const { ready, plan } = seen(after)
    const shut = closed.get(plan) ?? new Set()
    closed.set(plan, shut)
    if (ready === 'True') isReady.add(name)
    else isReady.delete(name)
    if (ready === 'False') shut.add(name)
    else shut.delete(name)
    for (const one of waiting) {
      if (!one.test()) continue
      waiting.delete(one)
      one.resolve(performance.now())
    }
  }

  async function until(what: string, test: () => boolean): Promise<number> {
    if (test()) return performance.now()
    const over = new AbortController()
    const late = pause(LONGEST_MS, undefined, { signal: over.signal }).then(() => {
      throw new Error(`timed out waiting for ${what}: ${isReady.size} keys are ready`)
    })
    late.catch(() => {})
    return Promise.race([new Promise<number>((resolve) => waiting.add({ test, resolve })), late]).finally(() => over.abort())
  }

  async function reach(n: number, sentAt: number, generation: number): Promise<number> {
    const is = () => {
      const object = cache.get(namespaceOf(planOf(n)), `key-${n}`)
      return object !== null && (object.metadata.generation ?? 0) >= generation && seen(object).ready === 'True'
    }
    return (await until(`key-${n} of generation ${generation}`, is)) - sentAt
  }

  const create = (n: number, plan: number) => send(client, 'POST', collectionPath(COLLECTIONS.ApiKey, namespaceOf(plan)), { body: keyOf(n, plan) })
  const merge = (kind: Kind, plan: number, name: string, spec: object) =>
    send(client, 'PATCH', objectPath(COLLECTIONS[kind], namespaceOf(plan), name), { body: { spec }, contentType: 'application/merge-patch+json' })

  const reflector = openReflector({ client, collection: COLLECTIONS.ApiKey, scope: null, cache, changed, log: { warn: (facts, message) => process.stderr.write(`${message} ${JSON.stringify(facts)}\n`) } })
  await reflector.start()

  return {
    plans,
    async declareKeys() {
      const sinceMs = performance.now()
      await Promise.all(Array.from({ length: count }, (_, n) => create(n, planOf(n))))
      return performance.now() - sinceMs
    },
    ready: () => isReady.size,
    until,
    async issue(n) {
      const sentAt = performance.now()
      await create(n, plans)
      const is = () => isReady.has(`key-${n}`)
      return (await until(`key-${n}`, is)) - sentAt
    },
    async edit(n, spec) {
      const sentAt = performance.now()
      const { metadata } = await merge('ApiKey', planOf(n), `key-${n}`, spec)
      return reach(n, sentAt, metadata.generation ?? 0)
    },
    suspend: async (n) => void (await merge('Plan', n, `plan-${n}`, { state: 'Suspended' })),
    closed: (n) => closed.get(`plan-${n}`)?.size ?? 0,
    async secret(n) {
      const { data } = await send(client, 'GET', objectPath(COLLECTIONS.Secret, namespaceOf(planOf(n)), `key-${n}`), {})
      return Buffer.from(data?.['api-key'] ?? '', 'base64').toString()
    },
    events: () => events,
    async close() {
      await reflector.stop()
      await credentials.close()
    },
  }
}

async function prepare(kubeconfig: string, plans: number, finalizerPolicy: boolean): Promise<void> {
  const api = await openApi(kubeconfig)
  await installCrds(api)
  for (let n = 0; n < NAMESPACES; n++) await makeNamespace(api, namespaceOf(n))
  for (let n = 0; n <= plans; n++) {
    const limits = { sessionWindow: { tokens: 1e12 }, weeklyWindow: { tokens: 1e12 } }
    const spec = { product: 'Coding', coding: limits, requestsPerMinute: 1_000_000, keyPolicy: { maxKeys: KEYS_OF_A_PLAN } }
    const plan = { apiVersion: API_VERSION, kind: 'Plan', metadata: { name: `plan-${n}`, namespace: namespaceOf(n) }, spec }
    const { status, body } = await api.request('POST', collectionPath(COLLECTIONS.Plan, namespaceOf(n)), plan)
    if (status !== 201) throw new Error(body.message)
  }
  if (finalizerPolicy) await installFinalizerPolicy(api)
  await api.close()
}

/** Installs the chart's policy. Resolves when it is in force. */
async function installFinalizerPolicy({ apply, request }: Api): Promise<void> {
  for (const document of parseAllDocuments(await readFile(new URL('../../charts/tollgate/files/finalizer-policy.yaml', import.meta.url), 'utf8'))) {
    const object = document.toJS() as KubeObject & { kind: string }
    const collection = object.kind.endsWith('Binding') ? 'mutatingadmissionpolicybindings' : 'mutatingadmissionpolicies'
    const { status, body } = await apply(`/apis/${object.apiVersion}/${collection}/${object.metadata.name}`, object)
    if (status !== 201) throw new Error(body.message)
  }
  const attempt = () => request('POST', `${collectionPath(COLLECTIONS.ApiKey, namespaceOf(0))}?dryRun=All`, keyOf(0, 0))
  while (!(await attempt()).body.metadata?.finalizers) await pause(100)
}

function keyOf(n: number, plan: number): object {
  return { apiVersion: API_VERSION, kind: 'ApiKey', metadata: { name: `key-${n}` }, spec: { planRef: { name: `plan-${plan}` }, secretName: `key-${n}` } }
}

/** Ready condition of the latest spec; null while the status belongs to an earlier generation. */
function seen({ metadata, spec, status }: KubeObject): { ready: string | null; plan: string } {
  const { observedGeneration, conditions } = (status ?? {}) as Partial<ApiKeyStatus>
  const ready = observedGeneration === metadata.generation ? conditions?.find(({ type }) => type === 'Ready')?.status : null
  return { ready: ready ?? null, plan: (spec as { planRef: { name: string } }).planRef.name }
}

async function send(client: Client, method: 'GET' | 'POST' | 'PATCH', path: string, options: { body?: object; contentType?: string }): Promise<KubeObject> {
  const { status, body } = await client.request<KubeObject>(method, path, options)
  if (status !== 200 && status !== 201) throw new Error(`${method} ${path} was answered ${status}: ${body.message}`)
  return body
}
