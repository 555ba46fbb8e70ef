/**
 * Baseline of the operator benchmark: the official client's informer, which writes a status for each ApiKey event. No Secret, no store, no check of the plan, and
 * no recovery from a broken connection.
 */
import { createServer } from 'node:http'
import { CustomObjectsApi, KubeConfig, makeInformer, PatchStrategy, setHeaderOptions, type KubernetesObject } from '@kubernetes/client-node'
import { openConcurrencyLimit } from '../../src/backends/resources/kubernetes/concurrency-limit.ts'

type Key = KubernetesObject & { metadata: { name: string; namespace: string; generation: number }; status?: { observedGeneration?: number } }

const PLACE = { group: 'tollgate.dev', version: 'v1alpha1', plural: 'apikeys' }
const CONDITIONS = ['Ready', 'PlanActive', 'KeyActive', 'SecretSynced']
/** As many requests at once as the operator's client has. */
const gate = openConcurrencyLimit(32)

const config = new KubeConfig()
config.loadFromFile(process.env['KUBECONFIG'] ?? '')
const api = config.makeApiClient(CustomObjectsApi)
const informer = makeInformer<Key>(config, `/apis/${PLACE.group}/${PLACE.version}/${PLACE.plural}`, () => api.listCustomObjectForAllNamespaces({ ...PLACE, resourcePlural: PLACE.plural }))

async function reconcile({ metadata, status }: Key): Promise<void> {
  const { name, namespace, generation } = metadata
  if (status?.observedGeneration === generation) return
  const lastTransitionTime = new Date().toISOString()
  const conditions = CONDITIONS.map((type) => ({ type, status: 'True', reason: 'Issued', message: 'The key is issued and may be used.', observedGeneration: generation, lastTransitionTime }))
  const body = { status: { observedGeneration: generation, conditions } }
  await gate(() => api.patchNamespacedCustomObjectStatus({ ...PLACE, namespace, name, body }, setHeaderOptions('Content-Type', PatchStrategy.MergePatch)))
}

const onEvent = (key: Key) => void reconcile(key).catch((error: Error) => process.stderr.write(`${key.metadata.name}: ${error.message}\n`))
informer.on('add', onEvent)
informer.on('update', onEvent)
await informer.start()

const server = createServer((_, response) => response.end('ok'))
server.listen(Number(process.env['PORT']), '127.0.0.1')
process.once('SIGTERM', () => process.exit(0))
