/** The contract of the resources backend, kept by `kubernetes:`, and what others may do to Secrets in a cluster. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import type { KeySecret } from '../../../src/backends/resources/resources.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { resourcesPromises } from '../../contracts/resources.ts'
import { ci, keyOf, ownerOf, SECRET, watching } from '../../contracts/resources/acme.ts'
import { eventually } from '../../flows/eventually.ts'
import { openProxy } from '../../servers/kube/proxy.ts'
import { kubernetes } from '../../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'
import { apiKey, mediaPlan } from './manifests.ts'

/** Too long to expire in a test: a follower gets the lease only if the leader released it. */
const LEASE = { durationMs: 600_000, renewDeadlineMs: 400_000, retryMs: 50 }
const MERGE = 'application/merge-patch+json'

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('the kubernetes: adapter keeps the contract of the resources backend', (t) =>
    runContract(t, resourcesPromises, async (t) => {
      const cluster = await openCluster(t, kubeconfig)
      return { ...cluster, open: () => cluster.open({ lease: LEASE }) }
    }),
  )

  t.test('large labelled Secrets of others take next to no memory, and few of them arrive at once', async (t) => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const cluster = await openCluster(t, kubeconfig)
    const proxy = await openProxy(t, cluster.api)
    for (let n = 0; n < 60; n++) {
      const metadata = { name: `large${n}`, labels: { 'tollgate.dev/api-key': '' } }
      const data = { text: Buffer.alloc(700_000, `${n}`).toString('base64') }
      t.equal((await cluster.api.request('POST', cluster.secretPath(''), { metadata, data })).status, 201)
    }
    collect()
    const before = process.memoryUsage().heapUsed
    const resources = await cluster.open({}, proxy.kubeconfig)
    await resources.watch(() => {})
    collect()
    t.ok(process.memoryUsage().heapUsed - before < 10_000_000, `${process.memoryUsage().heapUsed - before} bytes more`)
    const limits = proxy.seen.filter((request) => request.includes(`${cluster.secretPath('').replace(/\/$/, '')}?`)).flatMap((request) => /(?<=limit=)\d+/.exec(request) ?? [])
    t.same(limits, ['20', '80', '20', '20'], 'a page of more objects is cut off at 4 MiB, and asked for again in smaller ones')
  })

  t.test('a Secret of a key that others made immutable, or large, gets the next key', async (t) => {
    const cluster = await openCluster(t, kubeconfig)
    await cluster.declare(mediaPlan('studio'), apiKey('ci', 'studio', { secretName: 'ci-key' }))
    const { resources, told } = await watching(cluster)
    const key = keyOf(resources, ci(cluster))
    const next = async (secret: KeySecret, edit: object) => {
      const toldBefore = told.length
      t.equal((await cluster.api.request('PATCH', cluster.secretPath('ci-key'), edit, MERGE)).status, 200)
      await eventually('the edit to be seen', async () => (told.length > toldBefore ? true : null))
      t.equal(await resources.putSecret(key, 'ci-key', secret), 'written')
      t.same(await resources.secret(key, 'ci-key'), secret)
      t.equal(await resources.putSecret(key, 'ci-key', secret), 'unchanged')
      t.match(await cluster.secretEntries(cluster.namespace('acme'), 'ci-key'), { 'key-id': secret.keyId })
    }
    await resources.putSecret(key, 'ci-key', SECRET)
    await next({ ...SECRET, keyId: 'uid-1' }, { immutable: true })
    await next({ ...SECRET, keyId: 'uid-2' }, { metadata: { annotations: { note: 'x'.repeat(200_000) } } })
    await resources.removeSecrets(ownerOf(key))
    t.equal(await cluster.secretEntries(cluster.namespace('acme'), 'ci-key'), null)
  })
}
