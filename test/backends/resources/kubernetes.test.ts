/** The contract of the resources backend, kept by `kubernetes:`. */
import t from 'tap'
import { runContract } from '../../contracts/run-contract.ts'
import { resourcesPromises } from '../../contracts/resources.ts'
import { kubernetes } from '../../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'

/** Too long to expire in a test: a follower gets the lease only if the leader released it. */
const LEASE = { durationMs: 600_000, renewDeadlineMs: 400_000, retryMs: 50 }

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('the kubernetes: adapter keeps the contract of the resources backend', (t) =>
    runContract(t, resourcesPromises, async (t) => {
      const cluster = await openCluster(t, kubeconfig)
      return { ...cluster, open: () => cluster.open({ lease: LEASE }) }
    }),
  )
}
