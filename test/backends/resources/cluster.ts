/** The `kubernetes:` place of the contract of the resources backend: namespaces of a real API server. */
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { Test } from 'tap'
import { openKubernetes, type KubernetesOptions } from '../../../src/backends/resources/kubernetes/kubernetes.ts'
import type { ApiKeyResource, Kind, Ref, Resources } from '../../../src/backends/resources/resources.ts'
import type { Place } from '../../contracts/resources.ts'
import { eventually } from '../../flows/eventually.ts'
import { installCrds, makeNamespace, openApi, pathOf, type Answered, type Api } from '../../servers/kube/api.ts'
import type { Line } from './manifest-folder.ts'

export type Cluster = Omit<Place, 'open'> & {
  api: Api
  kubeconfig: string
  log: Line[]
  /** The `kubernetes:` address with the namespaces of this place. */
  url: string
  open(options?: KubernetesOptions, kubeconfig?: string): Promise<Resources>
  /** An object as the server has it, or null if it does not exist. Rejects on any other response. */
  object(ref: Ref): Promise<Answered>
  secretPath(name: string): string
}

const NAMES = ['acme', 'globex', 'other'] as const

/** Creates namespaces in the cluster of that kubeconfig, which are deleted when the test ends. */
export async function openCluster(t: Test, kubeconfig: string): Promise<Cluster> {
  const api = await openApi(kubeconfig)
  await installCrds(api)
  const suffix = randomUUID().slice(0, 8)
  const namespace = (name: string) => `${name}-${suffix}`
  for (const name of NAMES) await makeNamespace(api, namespace(name))
  const opened: Resources[] = []
  const log: Line[] = []
  const logger = (level: Line['level']) => (facts: object, message: string) => void log.push({ level, facts, message })
  const urlFor = (config: string) => `kubernetes:?kubeconfig=${config}&namespace=${NAMES.map(namespace).join(',')}&lease=tollgate`
  t.teardown(async () => {
    for (const resources of opened) await resources.close()
    await deleteNamespaces(api, NAMES.map(namespace))
    await api.close()
  })
  const object = async (ref: Ref) => {
    const { status, body } = await api.request('GET', pathOf(ref))
    if (status !== 200 && status !== 404) throw new Error(`GET of ${ref.name} returned ${status}: ${body.message}`)
    return status === 200 ? body : null
  }
  const secretPath = (name: string, of = namespace('acme')) => `/api/v1/namespaces/${of}/secrets/${name}`

  return {
    api,
    kubeconfig,
    log,
    url: urlFor(kubeconfig),
    namespace,
    secretPath,
    async open(options, config = kubeconfig) {
      const declarations = { declarations: async () => [], declare: async () => {}, undeclare: async () => {} }
      const resources = await openKubernetes({ url: urlFor(config), dataDir: '', environment: {}, declarations, log: { info: logger('info'), warn: logger('warn'), error: logger('error') } }, options)
      opened.push(resources)
      return resources
    },
    async declare(...documents) {
      for (const document of documents as Answered[]) {
        const { name, namespace: given } = document.metadata
        const metadata = { ...document.metadata, namespace: given === 'acme' ? namespace('acme') : given }
        const { status, body } = await api.apply(pathOf({ kind: document.kind, namespace: metadata.namespace, name }), { ...document, metadata })
        if (status !== 200 && status !== 201) throw new Error(body.message)
      }
    },
    async withdraw(ref) {
      const { status, body } = await api.request('DELETE', pathOf(ref))
      if (status !== 200) throw new Error(body.message)
    },
    object,
    isThere: async (ref) => (await object(ref)) !== null,
    async settle() {
      await eventually('the caches to have everything', async () => ((await isSynced(api, opened.at(-1), NAMES.map(namespace))) ? true : null))
    },
    async makeForeignSecret(of, name) {
      await api.request('POST', `/api/v1/namespaces/${of}/secrets`, { metadata: { name }, stringData: { password: 'hunter2' } })
    },
    async secretEntries(of, name) {
      const { status, body } = await api.request('GET', secretPath(name, of))
      if (status !== 200) return null
      return Object.fromEntries(Object.entries<string>(body.data ?? {}).map(([entry, text]) => [entry, Buffer.from(text, 'base64').toString()]))
    },
    async tamper(of, name) {
      await api.request('PATCH', secretPath(name, of), { stringData: { 'api-key': 'svc_live_forged' } }, 'application/merge-patch+json')
    },
  }
}

/** Whether a source has the same resources and Secrets as the server. */
async function isSynced({ request }: Api, resources: Resources | undefined, namespaces: string[]): Promise<boolean> {
  if (!resources) return true
  for (const namespace of namespaces) {
    for (const kind of ['Plan', 'ApiKey'] as Kind[]) {
      const { body } = await request('GET', pathOf({ kind, namespace }))
      const facts = ({ metadata: { name, uid, generation, labels } }: Answered) => ({ name, uid, generation, labels })
      const there = body.items.filter(({ metadata }: Answered) => metadata.deletionTimestamp === undefined).map(facts)
      const shown = (kind === 'Plan' ? resources.list('Plan', namespace) : resources.list('ApiKey', namespace)).map(facts)
      const byName = (a: Answered, b: Answered) => (a.name < b.name ? -1 : 1)
      if (!isDeepStrictEqual(there.sort(byName), shown.sort(byName))) return false
    }
    for (const key of resources.list('ApiKey', namespace)) if (!(await isSecretSynced(request, resources, key))) return false
  }
  return true
}

async function isSecretSynced(request: Api['request'], resources: Resources, key: ApiKeyResource): Promise<boolean> {
  const { metadata: { namespace, uid }, spec } = key
  if (spec.secretName === undefined) return true
  const shown = await resources.secret(key, spec.secretName)
  const { status, body } = await request('GET', `/api/v1/namespaces/${namespace}/secrets/${spec.secretName}`)
  const isOurs = status === 200 && body.metadata.ownerReferences?.[0]?.uid === uid
  return isOurs ? shown?.apiKey === Buffer.from(body.data['api-key'], 'base64').toString() : shown === null
}

/** Removes the finalizers of ApiKeys as well, since no controller runs any more that would do so. */
async function deleteNamespaces({ request }: Api, namespaces: string[]): Promise<void> {
  for (const namespace of namespaces) {
    const { body } = await request('GET', pathOf({ kind: 'ApiKey', namespace }))
    for (const { metadata } of body.items ?? []) {
      await request('PATCH', pathOf({ kind: 'ApiKey', namespace, name: metadata.name }), { metadata: { finalizers: null } }, 'application/merge-patch+json')
    }
    await request('DELETE', `/api/v1/namespaces/${namespace}`)
  }
}
