import t from 'tap'
import { runContract } from '../../contracts/run-contract.ts'
import { resourcesPromises } from '../../contracts/resources.ts'
import { kubernetes } from '../../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'

/** Nobody gets it by waiting: whoever resigned must have given it up. */
const LEASE = { durationMs: 600_000, renewDeadlineMs: 400_000, retryMs: 50 }

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('an API server keeps the promises of a source of resources', (t) =>
    runContract(t, resourcesPromises, async (t) => {
      const cluster = await openCluster(t, kubeconfig)
      return { ...cluster, open: () => cluster.open({ lease: LEASE }) }
    }),
  )
}
