/** The controller with the rights that the chart gives it: they suffice, each is used, and without any one of them it says what it lacks. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fastify, { type FastifyInstance } from 'fastify'
import pino from 'pino'
import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import controller from '../../plugins/controller/controller.ts'
import { openKubernetes } from '../../src/resources/kubernetes/kubernetes.ts'
import { openStore } from '../../src/store/store.ts'
import { eventually } from '../flows/eventually.ts'
import { openOperator, type Operator } from '../plugins/operator.ts'
import { SEALING } from '../plugins/tenant.ts'
import { apiKey, codingPlan } from '../resources/manifests.ts'
import { missing } from '../servers/client.ts'
import type { Answered, Api } from '../servers/kube/api.ts'
import { openProxy, type Fate, type Proxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { found, objects } from './chart.ts'

const RBAC = '/apis/rbac.authorization.k8s.io/v1/namespaces'

/** A right as RBAC names it, such as `patch apikeys/status`. */
function rightOf(request: string): string {
  const [method = '', target = ''] = request.split(' ')
  const { pathname, searchParams } = new URL(target, 'http://x')
  const [, of = ''] = /\/namespaces\/[^/]+\/(.+)$/.exec(pathname) ?? []
  const [plural = '', name, sub] = of.split('/')
  const read = searchParams.has('watch') ? 'watch' : name === undefined ? 'list' : 'get'
  const verb = { GET: read, POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' }[method]
  return `${verb} ${plural}${sub === undefined ? '' : `/${sub}`}`
}

function rightsOf(rules: { resources: string[]; verbs: string[] }[]): string[] {
  return [...new Set(rules.flatMap(({ resources, verbs }) => resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}`))))].sort()
}

type Site = { operator: Operator; proxy: Proxy; url: string; rights: string[]; withheld: string | null }

/** Gives an account of the operator's namespaces what the chart gives its controller, and a proxy that asks as that account. */
async function openSite(t: Test, kubeconfig: string): Promise<Site> {
  const operator = await openOperator(t, kubeconfig)
  const release = operator.namespace('acme')
  const namespaces = (['acme', 'globex', 'other'] as const).map((name) => operator.namespace(name))
  const all = await objects('required', ['--namespace', release, '--set', `namespaces={${namespaces.join(',')}}`, '--set', 'crds.install=false'])
  const roles: [string, string][] = [['Role', 'roles'], ['RoleBinding', 'rolebindings']]
  for (const [kind, plural] of roles) {
    for (const one of all.filter((object) => object.kind === kind && /-(controller|controller-secrets|lease)$/.test(object.metadata.name))) {
      await done(operator.api, `${RBAC}/${one.metadata.namespace}/${plural}/${one.metadata.name}`, one)
    }
  }
  const account = `/api/v1/namespaces/${release}/serviceaccounts/tollgate-controller`
  await done(operator.api, account, all.find(({ kind, metadata }) => kind === 'ServiceAccount' && metadata.name === 'tollgate-controller'))
  const { body } = await operator.api.request('POST', `${account}/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })
  const proxy = await openProxy(t, { ...operator.api, token: body.status.token })
  const { env } = all.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'tollgate-controller').spec.template.spec.containers[0]
  const { value } = env.find(({ name }: Answered) => name === 'RESOURCES_URL')
  const rules = all.filter(({ kind, metadata }) => kind === 'Role' && metadata.namespace === release && /-(controller|controller-secrets|lease)$/.test(metadata.name)).flatMap((role) => role.rules)
  return { operator, proxy, url: `${value}&kubeconfig=${proxy.kubeconfig}&leaseNamespace=${release}`, rights: rightsOf(rules), withheld: null }
}

async function done({ apply }: Api, path: string, object: Answered): Promise<void> {
  const { status, body } = await apply(path, object)
  if (status !== 200 && status !== 201) throw new Error(`${path} was answered ${status}: ${body.message}`)
}

/** Runs a controller. `said` is all that it logs and what /readyz shows. */
async function startController(t: Test, url: string): Promise<{ said(): string; close(): Promise<void> }> {
  let logged = ''
  const log = pino({ level: 'info' }, { write: (line: string) => void (logged += line) })
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const store = await openStore(`sqlite:${folder}/tollgate.db`)
  const resources = await openKubernetes({ url, dataDir: '', declarations: store, log })
  const app = fastify({ loggerInstance: log }) as unknown as FastifyInstance
  const parts = { clock: Date.now, store, resources, sealingKeys: SEALING, planLimits: null, engines: { offer: () => null }, config: { BRAND: 'SVC' }, metrics: { registry: new Registry() }, checks: [] }
  for (const [name, part] of Object.entries(parts)) app.decorate(name, part as never)
  await app.register(controller)
  await app.ready()
  let isClosed = false
  const close = async () => {
    if (isClosed) return
    isClosed = true
    await app.close()
    await resources.close()
    await store.close()
    await rm(folder, { recursive: true })
  }
  t.teardown(close)
  return { said: () => `${logged}${resources.health().detail}`, close }
}

/**
 * Everything for which the controller asks the API server: a key's whole life, a Secret that somebody edits, one that is not ours, a finalizer that another
 * writer was faster with. Whatever the site withholds is refused.
 */
async function live(site: Site, name: string): Promise<void> {
  const { operator, proxy } = site
  let isFirst = true
  proxy.fate = (method, path): Fate => {
    if (rightOf(`${method} ${path}`) === site.withheld) return { status: 403, reason: 'Forbidden', message: `${site.withheld} is forbidden to this account` }
    if (!isFirst || method !== 'PATCH' || !path.endsWith(`/apikeys/${name}`)) return 'passes'
    isFirst = false
    return { status: 409, reason: 'Conflict' }
  }
  const secret = `${name}-key`
  await operator.makeForeignSecret(operator.namespace('acme'), `${name}-foreign`)
  await operator.declare(codingPlan(name), apiKey(name, name, { secretName: secret }), apiKey(`${name}-clash`, name, { secretName: `${name}-foreign` }))
  await operator.becomes(operator.ref('ApiKey', name), { Ready: 'True Issued' })
  await operator.becomes(operator.ref('ApiKey', `${name}-clash`), { SecretSynced: 'False SecretConflict' })
  const issued = await operator.secretEntries(operator.namespace('acme'), secret)
  await operator.tamper(operator.namespace('acme'), secret)
  await eventually('the Secret to be put right', async () => ((await operator.secretEntries(operator.namespace('acme'), secret))?.['api-key'] === issued?.['api-key'] ? true : null))
  await operator.declare(codingPlan(name, { state: 'Suspended' }))
  await eventually('the Secret to go', async () => ((await operator.secretEntries(operator.namespace('acme'), secret)) === null ? true : null))
}

const kubeconfig = missing(t, ['helm']) ? null : await kubernetes(t)
if (kubeconfig !== null) {
  t.test("the chart's rights suffice for the controller, and each of them is used", async (t) => {
    const site = await openSite(t, kubeconfig)
    const { close } = await startController(t, site.url)
    await live(site, 'all')
    await close()
    const used = [...new Set(site.proxy.seen.map(rightOf))].sort()
    t.same(used, site.rights)
    // In a cluster-wide installation the same rules are in ClusterRoles.
    const cluster = await objects('required')
    const rules = ['ClusterRole/tollgate-controller', 'ClusterRole/tollgate-controller-secrets', 'Role/tollgate-lease'].flatMap((name) => found(cluster, name).rules)
    t.same(rightsOf(rules), site.rights)
  })

  t.test('with one right less the controller says which one it lacks, and goes on once it has it', async (t) => {
    const site = await openSite(t, kubeconfig)
    for (const [i, right] of site.rights.entries()) {
      t.test(right, async (t) => {
        // The run before has made it.
        await site.operator.api.request('DELETE', `/apis/coordination.k8s.io/v1/namespaces/${site.operator.namespace('acme')}/leases/tollgate-controller`)
        site.withheld = right
        const lived = live(site, `less-${i}`).then(() => 'lived', (error: Error) => error)
        const { said, close } = await startController(t, site.url)
        const told = eventually(`the controller to tell of ${right}`, async () => (said().includes(`${right} is forbidden`) ? 'told' : null)).catch(() => null)
        // An Event that cannot be written is no news that the status does not have.
        if (right === 'create events') t.equal(await lived, 'lived')
        else t.equal(await told, 'told')
        site.withheld = null
        t.equal(await lived, 'lived', { controller: said().slice(-4000) })
        await close()
      })
    }
  })
}
