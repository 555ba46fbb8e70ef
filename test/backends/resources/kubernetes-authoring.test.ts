/** Issuing, rotating and revoking ApiKeys on an API server: missing permissions, conflicts and terminating namespaces. */
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openAuthoring } from '../../../src/backends/resources/kubernetes/api-key-authoring.ts'
import { openClient } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { pathOf } from '../../servers/kube/api.ts'
import { openProxy } from '../../servers/kube/proxy.ts'
import { kubernetes } from '../../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'
import { apiKey, codingPlan } from './manifests.ts'

async function openFixture(t: Test, kubeconfig: string) {
  const cluster = await openCluster(t, kubeconfig)
  const proxy = await openProxy(t, cluster.api)
  const credentials = await openCredentials(proxy.kubeconfig, {})
  t.teardown(() => credentials.close())
  await cluster.declare(codingPlan('coder'), apiKey('ci', 'coder'))
  const key = { namespace: cluster.namespace('acme'), name: 'ci' }
  const fresh = (name: string) => ({ ...key, name, spec: { planRef: { name: 'coder' }, secretName: `${name}-key` } })
  const specOf = async () => (await cluster.api.request('GET', pathOf({ kind: 'ApiKey', ...key }))).body.spec
  return { proxy, authoring: openAuthoring(openClient(credentials)), key, fresh, specOf }
}

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  const { proxy, authoring, key, fresh, specOf } = await openFixture(t, kubeconfig)

  t.test('a missing permission is an outcome, and nothing changes', async (t) => {
    const before = await specOf()
    for (const withheld of ['POST', 'PATCH', 'GET']) {
      proxy.fate = (method) => (method === withheld ? { status: 403, reason: 'Forbidden', message: 'not yours' } : 'passes')
      if (withheld === 'POST') t.same(await authoring.issueKey(fresh('web')), { outcome: 'forbidden' })
      else for (const change of [authoring.changeKey(key, { rotationRevision: 1 }), authoring.changeKey(key, { state: 'Revoked' })]) t.same(await change, { outcome: 'forbidden' }, withheld)
    }
    t.same(await specOf(), before)
  })

  t.test('a conflict is retried, a bounded number of times', async (t) => {
    let left = 2
    proxy.fate = (method) => (method === 'PATCH' && left-- > 0 ? { status: 409, reason: 'Conflict' } : 'passes')
    t.same(await authoring.changeKey(key, { rotationRevision: 1 }), { outcome: 'changed' })
    t.match(await specOf(), { rotationRevision: 1 })
    left = Infinity
    await t.rejects(authoring.changeKey(key, { rotationRevision: 2 }), Unavailable)
    t.match(await specOf(), { rotationRevision: 1 })
  })

  t.test('a terminating namespace refuses a key, which is not a missing permission', async (t) => {
    const causes = [{ reason: 'NamespaceTerminating', field: 'metadata.namespace', message: 'namespace is being terminated' }]
    proxy.fate = (method) => (method === 'POST' ? { status: 403, reason: 'Forbidden', details: { causes } } : 'passes')
    t.same(await authoring.issueKey(fresh('late')), { outcome: 'refused', faults: ['metadata.namespace: is being deleted'] })
  })
}
