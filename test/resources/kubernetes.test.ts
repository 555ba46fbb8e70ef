import t from 'tap'
import { keepsPromises } from '../contracts/promises.ts'
import { resourcesPromises } from '../contracts/resources.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('an API server keeps the promises of a source of resources', (t) => keepsPromises(t, resourcesPromises, (t) => openCluster(t, kubeconfig)))
}
