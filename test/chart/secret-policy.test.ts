/** The controller's own token on a real API server, with its rights on the Secrets of the whole cluster, as they are by default: what somebody who has it cannot do. */
import t from 'tap'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { found, objects } from './chart.ts'
import { openAccount } from './controller-account.ts'
import { startController } from './controller.ts'

const RBAC = '/apis/rbac.authorization.k8s.io/v1'
const SYSTEM = '/api/v1/namespaces/kube-system/secrets'
const DENIED = /ValidatingAdmissionPolicy '.*-controller-secrets' with binding '.*' denied request: The controller of Tollgate may /

const kubeconfig = missing(t, ['helm']) ? null : await kubernetes(t)
if (kubeconfig !== null) {
  t.test("with the controller's token nobody writes a Secret but those of ApiKeys, and so nobody becomes another account", async (t) => {
    const site = await openAccount(t, kubeconfig)
    const { operator, own } = site
    const release = operator.namespace('acme')
    const admin = operator.api
    await site.grant(null)
    const everywhere = { metadata: { name: `${release}-secrets` }, rules: found(await objects('required'), 'ClusterRole/tollgate-controller-secrets').rules }
    const subject = { kind: 'ServiceAccount', name: 'tollgate-controller', namespace: release }
    const bound = { metadata: everywhere.metadata, roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: everywhere.metadata.name }, subjects: [subject] }
    for (const [plural, object] of [['clusterroles', everywhere], ['clusterrolebindings', bound]] as const) {
      t.equal((await admin.request('POST', `${RBAC}/${plural}`, object)).status, 201)
      t.teardown(() => admin.request('DELETE', `${RBAC}/${plural}/${everywhere.metadata.name}`))
    }
    await eventually('the rights everywhere', async () => ((await own.request('GET', SYSTEM)).status === 200 ? true : null))

    await startController(t, site.url)
    await operator.declare(codingPlan('coder'), apiKey('ci', 'coder', { secretName: 'ci-key' }))
    await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'True Issued' })
    const mine = `/api/v1/namespaces/${release}/secrets`
    const issued = (await admin.request('GET', `${mine}/ci-key`)).body
    await operator.makeForeignSecret(release, 'foreign')
    const foreign = (await admin.request('GET', `${mine}/foreign`)).body

    const owner = { apiVersion: 'tollgate.dev/v1alpha1', kind: 'ApiKey', name: 'ci', uid: issued.metadata.ownerReferences[0].uid, controller: true }
    const labels = { 'tollgate.dev/api-key': 'ci' }
    const data = { 'api-key': 'eA==', 'key-id': 'eA==' }
    const token = (metadata: object = {}) => ({ metadata: { name: `${release}-token`, annotations: { 'kubernetes.io/service-account.name': 'clusterrole-aggregation-controller' }, ...metadata }, type: 'kubernetes.io/service-account-token' })
    const ours = (metadata: object, more: object = {}) => ({ metadata: { name: `${release}-new`, ...metadata }, type: 'tollgate.dev/api-key', data, ...more })
    const bootstrap = { metadata: { name: 'bootstrap-token-abcdef' }, type: 'bootstrap.kubernetes.io/token', stringData: { 'token-id': 'abcdef', 'token-secret': '0123456789abcdef', 'usage-bootstrap-authentication': 'true' } }
    const attacks: [what: string, method: string, path: string, body?: object][] = [
      ['a token of another account', 'POST', SYSTEM, token()],
      ['the same, as if an ApiKey owned it', 'POST', SYSTEM, token({ ownerReferences: [owner], labels })],
      ['a bootstrap token', 'POST', SYSTEM, bootstrap],
      ['any Secret', 'POST', mine, { metadata: { name: `${release}-new` }, data }],
      ['one without an owner', 'POST', mine, ours({ labels })],
      ['one whose owner is no controller', 'POST', mine, ours({ labels, ownerReferences: [{ ...owner, controller: false }] })],
      ['one that another kind owns', 'POST', mine, ours({ labels, ownerReferences: [{ ...owner, kind: 'Plan' }] })],
      ['one of another group', 'POST', mine, ours({ labels, ownerReferences: [{ ...owner, apiVersion: 'tollgate.dev.example.com/v1' }] })],
      ['one without a label', 'POST', mine, ours({ ownerReferences: [owner] })],
      ['one with the label of another', 'POST', mine, ours({ labels: { 'tollgate.dev/api-key': 'other' }, ownerReferences: [owner] })],
      ['one without the key', 'POST', mine, ours({ labels, ownerReferences: [owner] }, { data: { 'tls.key': 'eA==' } })],
      ['one without entries', 'POST', mine, ours({ labels, ownerReferences: [owner] }, { data: undefined })],
      ["somebody else's Secret", 'PUT', `${mine}/foreign`, { ...foreign, data }],
      ["somebody else's Secret, as if it were a key's", 'PUT', `${mine}/foreign`, { ...foreign, metadata: { ...foreign.metadata, labels, ownerReferences: [owner] } }],
      ["its own, for another ApiKey", 'PUT', `${mine}/ci-key`, { ...issued, metadata: { ...issued.metadata, ownerReferences: [{ ...owner, uid: 'another' }] } }],
      ['its own, of nobody', 'PUT', `${mine}/ci-key`, { ...issued, metadata: { ...issued.metadata, ownerReferences: [] } }],
      ["somebody else's removal", 'DELETE', `${mine}/foreign`],
    ]
    // The API server learns of a policy by a watch, and compiles it some time later.
    await eventually('the API server to judge by the policy', async () => {
      const { status } = await own.request('POST', `${SYSTEM}?dryRun=All`, { apiVersion: 'v1', kind: 'Secret', ...bootstrap })
      return status === 403 ? true : null
    })
    for (const [what, method, path, body] of attacks) {
      const { status, body: said } = await own.request(method, path, body && { apiVersion: 'v1', kind: 'Secret', ...body })
      t.equal(status, 403, `${what}: ${JSON.stringify(said).slice(0, 300)}`)
      t.match(said.message, DENIED, what)
    }
    for (const [method, path] of [['PATCH', `${mine}/foreign`], ['DELETE', mine], ['POST', `/api/v1/namespaces/kube-system/serviceaccounts/default/token`], ['GET', `/api/v1/namespaces/${release}/pods`]] as const) {
      const { status, body } = await own.request(method, path, method === 'GET' || method === 'DELETE' ? undefined : {}, method === 'PATCH' ? 'application/merge-patch+json' : undefined)
      t.match({ status, message: body.message }, { status: 403, message: /cannot (patch|deletecollection|create|list) resource/ }, `${method} ${path}`)
    }
    t.same((await admin.request('GET', `${mine}/foreign`)).body, foreign)
    t.same((await admin.request('GET', `${mine}/ci-key`)).body, issued)
    // What it may write is no key to anything, and goes as its owner does not exist.
    const made = await own.request('POST', SYSTEM, { apiVersion: 'v1', kind: 'Secret', ...token({ labels, ownerReferences: [owner] }), type: 'tollgate.dev/api-key', data })
    t.same([made.status, Object.keys(made.body.data)], [201, ['api-key', 'key-id']])
    // An administrator's own writes are nobody's business.
    t.equal((await admin.request('POST', mine, { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'theirs' }, data })).status, 201)

    // Without the policy the first of these leads to every right there is.
    const bindings = '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings'
    t.equal((await admin.request('DELETE', `${bindings}/${release}-tollgate-controller-secrets`)).status, 200)
    const { metadata } = await eventually('the API server to judge without the policy', async () => {
      const { status, body } = await own.request('POST', SYSTEM, { apiVersion: 'v1', kind: 'Secret', ...token() })
      return status === 201 ? (body as Answered) : null
    })
    t.teardown(() => admin.request('DELETE', `${SYSTEM}/${metadata.name}`))
    await eventually('the token of another account', async () => ((await own.request('GET', `${SYSTEM}/${metadata.name}`)).body.data?.token ? true : null))
  })
}
