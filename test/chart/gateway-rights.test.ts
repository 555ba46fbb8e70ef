/** The gateways' account of the chart on a real API server: with `dashboard.keyManagement` its rights suffice for the keys of the dashboard, each is used, and nothing is watched. */
import fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import pino from 'pino'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors/errors.ts'
import { keyRoutes } from '../../plugins/dashboard/key-routes.ts'
import { readConfig } from '../../src/config/config.ts'
import { wellFormed } from '../../src/domain/api-keys.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import type { Session } from '../../src/domain/sessions.ts'
import { openResources } from '../../src/backends/resources/resources.ts'
import { deriveKeys } from '../../src/domain/derived-keys.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { eventually } from '../flows/eventually.ts'
import { openOperator, type Operator } from '../plugins/operator.ts'
import { SEALING } from '../plugins/tenant.ts'
import { missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { openProxy, type Proxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { objects } from './chart.ts'

const RBAC = '/apis/rbac.authorization.k8s.io/v1/namespaces'

type Site = { operator: Operator; proxy: Proxy; send(verb: string, body?: object): Promise<Answered> }

/** A controller with all rights, and the key routes of a gateway with the account of the chart, which is granted its rights only where `isGranted`. */
async function openSite(t: Test, kubeconfig: string, isGranted: boolean): Promise<Site> {
  const operator = await openOperator(t, kubeconfig)
  const namespace = operator.namespace('acme')
  const all = await objects('dashboard', ['--namespace', namespace, '--set', `namespaces={${namespace}}`, '--set', 'crds.enabled=false'])
  const put = async (path: string, object: Answered) => {
    const { status, body } = await operator.api.apply(path, object)
    if (status !== 200 && status !== 201) throw new Error(`${path} was answered ${status}: ${body.message}`)
  }
  for (const [kind, plural] of [['Role', 'roles'], ['RoleBinding', 'rolebindings']] as const) {
    const one = all.find((object) => object.kind === kind && object.metadata.name === 'tollgate-gateway')
    if (isGranted) await put(`${RBAC}/${namespace}/${plural}/tollgate-gateway`, one)
  }
  const account = `/api/v1/namespaces/${namespace}/serviceaccounts/tollgate-gateway`
  await put(account, all.find(({ kind, metadata }) => kind === 'ServiceAccount' && metadata.name === 'tollgate-gateway'))
  const { body } = await operator.api.request('POST', `${account}/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })
  const proxy = await openProxy(t, { ...operator.api, token: body.status.token })
  await operator.start()
  await operator.declare(codingPlan('coder'), apiKey('ci', 'coder'))
  await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'True Issued' })

  const { config } = readConfig({ DASHBOARD: 'oidc', OIDC_ISSUER: 'https://id.example', OIDC_CLIENT_ID: 'x', DASHBOARD_KEY_MANAGEMENT: 'true', RESOURCES_URL: `kubernetes:?kubeconfig=${proxy.kubeconfig}` })
  const log = pino({ level: 'silent' })
  const resources = await openResources({ url: config.RESOURCES_URL, dataDir: '/nowhere', environment: {}, declarations: operator.store, log }, Date.now)
  const app: FastifyInstance = fastify({ loggerInstance: log as FastifyBaseLogger })
  t.teardown(async () => {
    await app.close()
    await resources.close()
  })
  app.decorate('config', { ...config, ROLE: 'gateway' as const })
  app.decorate('store', operator.store)
  app.decorate('clock', Date.now)
  app.decorate('sealingKeys', SEALING)
  app.decorate('derivedKeys', deriveKeys(SEALING))
  app.decorate('resources', resources)
  await app.register(errors)
  app.setValidatorCompiler(strictValidator)
  const session: Session = { id: 's', user: { id: 'ada', name: 'Ada' }, signIn: 'oidc', tenants: [namespace], tenant: namespace, createdAt: 0, expiresAt: Infinity }
  app.decorateRequest('session', null)
  app.addHook('onRequest', async (request) => void (request.session = { session, tenant: namespace }))
  keyRoutes(app)
  await app.ready()
  const send = async (path: string, payload?: object) => (await app.inject({ method: payload || path.includes('/reveal') ? 'POST' : 'GET', url: path, ...(payload ? { payload } : {}) })).json()
  return { operator, proxy, send }
}

const kubeconfig = missing(t, ['helm']) ? null : await kubernetes(t)
if (kubeconfig !== null) {
  t.test('with its rights a gateway lists, issues, rotates, suspends and revokes keys as kubectl shows them, and uses each right', async (t) => {
    const { operator, proxy, send } = await openSite(t, kubeconfig, true)
    const until = (name: string, satisfies: (key: Answered) => boolean) =>
      eventually(`the key ${name}`, async () => {
        const key = await send(`/keys/${name}`)
        return satisfies(key) ? key : null
      })
    t.match(await send('/keys'), { data: [{ name: 'ci', state: 'Active', plan: 'coder' }], locked: [] })
    t.match(await send('/keys', { name: 'laptop', plan: 'coder' }), { name: 'laptop' })
    const issued = await until('laptop', ({ state }) => state === 'Active')
    t.match(await operator.object(operator.ref('ApiKey', 'laptop')), { spec: { planRef: { name: 'coder' }, state: 'Active' } })
    const { key } = await send('/keys/laptop/reveal')
    t.ok(wellFormed(key))
    t.match(await send('/keys/laptop/rotate', { revision: issued.revision }), { name: 'laptop' })
    t.match(await send('/keys/laptop/rotate', { revision: issued.revision }), { error: { code: 'conflict' } })
    const rotated = await until('laptop', ({ state, overlap_until }) => state === 'Active' && overlap_until !== null)
    t.not((await send('/keys/laptop/reveal')).key, key)
    t.match(await send('/keys/laptop/suspend', { revision: rotated.revision }), { state: 'Suspended' })
    const suspended = await until('laptop', ({ state }) => state === 'Suspended')
    t.match(await send('/keys/laptop/revoke', { revision: suspended.revision }), { state: 'Revoked' })
    t.match(await operator.object(operator.ref('ApiKey', 'laptop')), { spec: { state: 'Revoked', rotationRevision: 1 } })
    t.match(await send('/keys', { name: 'ci', plan: 'coder' }), { error: { code: 'conflict' } })
    const methods = new Set(proxy.seen.map((request) => request.split(' ')[0]))
    t.same([...methods].sort(), ['GET', 'PATCH', 'POST'])
    t.notOk(proxy.seen.some((request) => /watch=|\/secrets|\/plans/.test(request)), 'nothing is watched, and nothing but ApiKeys is read')
    t.ok(proxy.seen.some((request) => /^GET \S+\/apikeys\?limit=500$/.test(request)))
  })

  t.test('without these rights keys are shown from the store, with the reason why they cannot be changed', async (t) => {
    const { send } = await openSite(t, kubeconfig, false)
    t.match(await send('/keys'), { data: [{ name: 'ci', state: 'Active', revision: null }] })
    t.ok(wellFormed((await send('/keys/ci/reveal')).key))
    t.match(await send('/keys', { name: 'laptop', plan: 'coder' }), { error: { code: 'key_management_off' } })
    t.match(await send('/keys/ci/rotate', { revision: 'a.1' }), { error: { code: 'key_management_off', message: /ApiKey resource/ } })
  })

  t.test('while the API server is away keys are shown from the store, and a change answers that it was not made', async (t) => {
    const { proxy, send } = await openSite(t, kubeconfig, true)
    const { revision } = await send('/keys/ci')
    proxy.fate = () => 'cut'
    t.match(await send('/keys'), { data: [{ name: 'ci', state: 'Active', revision: null }] })
    t.match(await send('/keys', { name: 'laptop', plan: 'coder' }), { error: { code: 'unavailable' } })
    t.match(await send('/keys/ci/rotate', { revision }), { error: { code: 'unavailable' } })
  })
}
