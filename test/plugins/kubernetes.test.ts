/** Lifecycle of Plans and ApiKeys on a real API server, from `kubectl apply` to the store, the Secret and the status. */
import t from 'tap'
import { FINALIZER } from '../../src/backends/resources/kubernetes/finalizer.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { pathOf } from '../servers/kube/api.ts'
import { openProxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { openOperator, type Operator } from './operator.ts'

const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }
const MERGE = 'application/merge-patch+json'
const ci = (spec: Record<string, unknown> = {}) => apiKey('ci', 'coder', { secretName: 'ci-key', ...spec })

async function issued(t: Parameters<typeof openOperator>[0], kubeconfig: string): Promise<Operator & { secret: () => Promise<Record<string, string> | null> }> {
  const operator = await openOperator(t, kubeconfig)
  await operator.declare(codingPlan('coder'), ci())
  await operator.start()
  await operator.becomes(operator.ref('ApiKey', 'ci'), ALL_GOOD)
  return { ...operator, secret: () => operator.secretEntries(operator.namespace('acme'), 'ci-key') }
}

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('an applied ApiKey becomes a working key in a Secret that the ApiKey owns', async (t) => {
    const operator = await issued(t, kubeconfig)
    const key = await operator.object(operator.ref('ApiKey', 'ci'))
    const { body: secret } = await operator.api.request('GET', operator.secretPath('ci-key'))
    t.match(secret, {
      type: 'tollgate.dev/api-key',
      metadata: {
        labels: { 'app.kubernetes.io/managed-by': 'tollgate', 'tollgate.dev/api-key': 'ci' },
        annotations: { 'tollgate.dev/mac': /^[0-9a-f]{64}$/ },
        ownerReferences: [{ apiVersion: 'tollgate.dev/v1alpha1', kind: 'ApiKey', name: 'ci', uid: key.metadata.uid, controller: true }],
      },
    })
    t.same(Object.keys(secret.data).sort(), ['api-key', 'key-id'])
    const version = await operator.usableBySecret('ci-key')
    t.match(version, { keyId: key.metadata.uid, state: 'active', tenant: operator.namespace('acme'), tell: [] })
    t.match(key, { metadata: { finalizers: [FINALIZER] }, status: { observedGeneration: 1, keyID: version?.id, keyPrefix: version?.prefix, rotationRevision: 0, secretRef: { name: 'ci-key' } } })
    await operator.becomes(operator.ref('Plan', 'coder'), { Ready: 'True PlanActive' })
    await eventually('the plan to count its key', async () => ((await operator.object(operator.ref('Plan', 'coder'))).status.activeKeys === 1 ? true : null))
    const event = await eventually('an Event', async () => {
      const { body } = await operator.api.request('GET', `/apis/events.k8s.io/v1/namespaces/${operator.namespace('acme')}/events`)
      return body.items.find(({ regarding, reason }: { regarding: { name: string }; reason: string }) => regarding.name === 'ci' && reason === 'Issued') ?? null
    })
    t.match(event, { type: 'Normal', action: 'Reconcile', reportingController: 'tollgate.dev/controller', regarding: { kind: 'ApiKey', uid: key.metadata.uid } })
  })

  t.test('observedGeneration is -1 until the first pass, so that kstatus waits for it', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    await operator.declare(codingPlan('coder'), ci())
    const refs = [operator.ref('Plan', 'coder'), operator.ref('ApiKey', 'ci')]
    const seen = () => Promise.all(refs.map(async (ref) => (await operator.object(ref)).status))
    t.same(await seen(), [{ observedGeneration: -1 }, { observedGeneration: -1 }])
    await operator.start()
    await operator.becomes(operator.ref('ApiKey', 'ci'), ALL_GOOD)
    t.match(await seen(), [{ observedGeneration: 1 }, { observedGeneration: 1 }])
  })

  t.test('a deleted key is unusable before it is gone, and a new key of its name is another one', async (t) => {
    const operator = await issued(t, kubeconfig)
    const version = await operator.usableBySecret('ci-key')
    await operator.withdraw(operator.ref('ApiKey', 'ci'))
    await eventually('the key to be gone', async () => ((await operator.object(operator.ref('ApiKey', 'ci'))) === null ? true : null))
    t.match(await operator.store.keyVersions(version!.keyId), [{ state: 'deleted', tell: [] }])
    t.equal(await operator.secret(), null)
    await operator.declare(ci())
    await operator.becomes(operator.ref('ApiKey', 'ci'), ALL_GOOD)
    t.not((await operator.usableBySecret('ci-key'))?.keyId, version!.keyId)
  })

  t.test('a Secret that someone edits, empties, relabels, disowns or deletes is restored', async (t) => {
    const operator = await issued(t, kubeconfig)
    const path = operator.secretPath('ci-key')
    const { body: before } = await operator.api.request('GET', path)
    const patches = [
      { data: { 'api-key': 'eA==' } },
      { data: { 'key-id': null } },
      { data: { other: 'eA==' } },
      { metadata: { annotations: { 'tollgate.dev/mac': null } } },
      { metadata: { labels: null } },
      { metadata: { labels: { 'tollgate.dev/api-key': 'other' } } },
    ]
    const isRestored = async () => {
      const { status, body } = await operator.api.request('GET', path)
      const { labels, annotations, ownerReferences } = body.metadata ?? {}
      const facts = JSON.stringify([body.data, labels, annotations, ownerReferences?.[0]?.uid])
      return status === 200 && facts === JSON.stringify([before.data, before.metadata.labels, before.metadata.annotations, before.metadata.ownerReferences[0].uid]) ? true : null
    }
    for (const patch of patches) {
      t.equal((await operator.api.request('PATCH', path, patch, MERGE)).status, 200)
      await eventually(`the Secret to be restored after ${JSON.stringify(patch)}`, isRestored)
    }
    await operator.api.request('DELETE', path)
    await eventually('the Secret to be back', isRestored)
    t.pass()
  })

  t.test('a foreign Secret is not changed; a finalizer that someone removes is added again', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    await operator.makeForeignSecret(operator.namespace('acme'), 'ci-key')
    await operator.declare(codingPlan('coder'), ci())
    await operator.start()
    const key = operator.ref('ApiKey', 'ci')
    await operator.becomes(key, { Ready: 'False SecretConflict' })
    t.same(await operator.secretEntries(operator.namespace('acme'), 'ci-key'), { password: 'hunter2' })
    await operator.api.request('DELETE', operator.secretPath('ci-key'))
    await operator.declare({ ...ci(), metadata: { name: 'ci', namespace: 'acme', annotations: { touched: 'yes' } } })
    await operator.becomes(key, ALL_GOOD)
    await operator.api.request('PATCH', `/apis/tollgate.dev/v1alpha1/namespaces/${key.namespace}/apikeys/ci`, { metadata: { finalizers: null } }, MERGE)
    await eventually('the finalizer to be back', async () => ((await operator.object(key)).metadata.finalizers?.includes(FINALIZER) ? true : null))
  })

  t.test('a rejection by the API server shows in the status and an Event, is retried with back-off, and is cured once it is allowed', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const namespace = operator.namespace('acme')
    const quota = `/api/v1/namespaces/${namespace}/resourcequotas/none`
    await operator.api.apply(quota, { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'none', namespace }, spec: { hard: { 'count/secrets': '0' } } })
    await eventually('the quota to be in force', async () => ((await operator.api.request('GET', quota)).body.status.hard?.['count/secrets'] === '0' ? true : null))
    await operator.declare(codingPlan('coder'), ci(), apiKey('web', 'coder'))
    const startedAtMs = performance.now()
    const { resources } = await operator.start()
    const [key, refused] = [operator.ref('ApiKey', 'ci'), 'False ClusterRefused']
    await operator.becomes(key, { Ready: refused, PlanActive: 'True PlanActive', KeyActive: refused, SecretSynced: refused })
    await operator.becomes(operator.ref('ApiKey', 'web'), { Ready: 'True Issued', SecretSynced: 'True NoSecretRequested' })
    const { metadata, status } = await operator.object(key)
    const says = /^The API server rejected a request for this key; the controller retries\. POST \S+\/secrets returned 403: secrets "ci-key" is forbidden: exceeded quota: none/
    t.match(status, { observedGeneration: 1, conditions: [{ type: 'Ready', message: says }, {}, {}, { type: 'SecretSynced', message: says }] })
    const event = await eventually('an Event', async () => {
      const { body } = await operator.api.request('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`)
      return body.items.find(({ regarding, reason }: { regarding: { name: string }; reason: string }) => regarding.name === 'ci' && reason === 'ClusterRefused') ?? null
    })
    t.match(event, { type: 'Warning', note: says })

    const refusals = () => resources.stats()?.requests.find(({ method, code }) => method === 'POST' && code === '403')?.count ?? 0
    const before = refusals()
    await eventually('more tries', async () => (refusals() >= before + 3 ? true : null))
    const maxTries = Math.log2((performance.now() - startedAtMs) / 37.5 + 1) + 4
    t.ok(refusals() <= maxTries, `${refusals()} tries, each after twice the wait of the one before, and a few for changes`)
    t.equal((await operator.object(key)).metadata.resourceVersion, metadata.resourceVersion, 'an unchanged status is not written again')
    await operator.api.request('DELETE', quota)
    await operator.becomes(key, ALL_GOOD)
    t.match(await operator.usableBySecret('ci-key'), { keyId: metadata.uid, state: 'active' })
  })

  t.test('a rejected write that does not affect its use leaves a working key Ready, and a suspension takes effect despite rejections', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const proxy = await openProxy(t, operator.api)
    await operator.declare(codingPlan('coder'), ci())
    const { registry } = await operator.start({}, proxy.kubeconfig)
    const key = operator.ref('ApiKey', 'ci')
    await operator.becomes(key, ALL_GOOD)
    const failures = async () => Number(/controller_runtime_reconcile_errors_total\{controller="apikey"\} (\d+)/.exec(await registry.metrics())?.[1] ?? 0)
    proxy.fate = (method, path) => (method === 'PATCH' && path.endsWith('/apikeys/ci') ? { status: 403, reason: 'Forbidden' } : 'passes')
    const before = await failures()
    await operator.api.request('PATCH', pathOf(key), { metadata: { finalizers: null } }, MERGE)
    await eventually('the refusal', async () => ((await failures()) >= before + 3 ? true : null))
    await operator.becomes(key, ALL_GOOD)
    await operator.declare(ci({ state: 'Suspended' }))
    await operator.becomes(key, { Ready: 'False KeySuspended', SecretSynced: 'False ClusterRefused' })
    t.match(await operator.usableBySecret('ci-key'), { state: 'suspended' })
    proxy.fate = () => 'passes'
    await operator.becomes(key, { SecretSynced: 'False KeySuspended' })
    t.equal(await operator.secretEntries(operator.namespace('acme'), 'ci-key'), null)
  })

  t.test('a status that someone else wrote is restored', async (t) => {
    const operator = await issued(t, kubeconfig)
    const key = operator.ref('ApiKey', 'ci')
    const wrong = { status: { keyPrefix: 'svc_live_forged', conditions: [{ type: 'Ready', status: 'False', reason: 'Forged', message: '', lastTransitionTime: new Date().toISOString() }] } }
    await operator.api.request('PATCH', `/apis/tollgate.dev/v1alpha1/namespaces/${key.namespace}/apikeys/ci/status`, wrong, MERGE)
    await eventually('the status to be right', async () => ((await operator.object(key)).status.keyPrefix === 'svc_live_forged' ? null : true))
    await operator.becomes(key, ALL_GOOD)
  })

  t.test('a deleted namespace removes all its resources, and its keys are unusable', async (t) => {
    const operator = await issued(t, kubeconfig)
    const version = await operator.usableBySecret('ci-key')
    await operator.api.request('DELETE', `/api/v1/namespaces/${operator.namespace('acme')}`)
    await eventually('the namespace to be gone', async () => ((await operator.api.request('GET', `/api/v1/namespaces/${operator.namespace('acme')}`)).status === 404 ? true : null))
    t.match(await operator.store.keyVersions(version!.keyId), [{ state: 'deleted' }])
    await eventually('the plan to be gone', async () => ((await operator.store.subscription(`${operator.namespace('acme')}/coder`))?.plan === null ? true : null))
  })

  t.test('requests are counted and timed under the names of client-go, and a watch has no duration', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const { resources, registry } = await operator.start()
    const { host } = new URL(operator.api.server)
    const shown = async (name: string, of: Record<string, string>) => {
      const values = ((await registry.getSingleMetric(name)?.get())?.values ?? []) as { labels: Record<string, string>; value: number; metricName?: string }[]
      return values.filter(({ labels }) => Object.entries(of).every(([label, value]) => labels[label] === value))
    }
    const gets = () => shown('rest_client_request_duration_seconds', { verb: 'GET', host })
    await eventually('as many durations as responses, watches excepted', async () => {
      const answers = (await shown('rest_client_requests_total', { method: 'GET', host })).reduce((sum, { value }) => sum + value, 0)
      const { lists = 0, watches = 0 } = resources.stats() ?? {}
      return lists === 9 && watches === 9 && (await gets()).at(-1)?.value === answers - watches ? true : null
    })
    const [buckets, sums] = [(await gets()).slice(0, -2), (await gets()).slice(-2)]
    t.same(buckets.map(({ labels }) => labels['le']), [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, '+Inf'])
    t.match(sums, [{ metricName: /_sum$/ }, { metricName: /_count$/ }])
  })

  t.test('a new leader reconciles what changed before it led ahead of unchanged resources', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const names = ['a', 'b', 'c', 'd', 'e']
    await operator.declare(codingPlan('coder'), ...names.map((name) => apiKey(name, 'coder')))
    const first = await operator.start()
    for (const name of names) await operator.becomes(operator.ref('ApiKey', name), { Ready: 'True Issued' })
    await first.close()
    const [edited, deleted] = [await operator.object(operator.ref('ApiKey', 'd')), await operator.object(operator.ref('ApiKey', 'e'))]
    await operator.declare(apiKey('d', 'coder', { limit: { weeklyTokens: 5 } }))
    await operator.withdraw(operator.ref('ApiKey', 'e'))
    const asked: string[] = []
    const store: Store = { ...operator.store, keyVersions: (uid) => (asked.push(uid), operator.store.keyVersions(uid)) }
    await operator.start({}, undefined, { store })
    await eventually('a pass over every key', async () => (new Set(asked).size === names.length ? true : null))
    t.same(asked.slice(0, 2).toSorted(), [edited.metadata.uid, deleted.metadata.uid].toSorted())
  })
}
