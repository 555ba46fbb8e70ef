/** The controller with the rights that the chart gives it: they suffice, each is used, and without any one of them it says what it lacks. */
import t, { type Test } from 'tap'
import type { Condition } from '../../src/backends/resources/resources.ts'
import { eventually } from '../flows/eventually.ts'
import { openOperator, type Operator } from '../plugins/operator.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { missing } from '../servers/client.ts'
import type { Answered, Api } from '../servers/kube/api.ts'
import { openProxy, type Fate, type Proxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { found, objects } from './chart.ts'
import { startController } from './controller.ts'

/** The rights without which a controller does nothing at all: they are missing where somebody looks first, in /readyz. */
const SHOWN = /^(list|watch) | leases$/
/** Those without which no new key comes about: its status says so to whoever declared it. */
const TOLD = /^(create secrets|patch apikeys)$/
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

type Rule = { apiGroups: string[]; resources: string[]; resourceNames?: string[]; verbs: string[] }

/** The same rights with a rule for each, so that any one can be left out: several verbs and resources may share a rule. */
function singly(rules: Rule[]): Rule[] {
  return rules.flatMap((rule) => rule.resources.flatMap((resource) => rule.verbs.map((verb) => ({ ...rule, resources: [resource], verbs: [verb] }))))
}

const named = ({ resources, verbs }: Rule) => `${verbs[0]} ${resources[0]}`

function rightsOf(rules: Rule[]): string[] {
  return [...new Set(singly(rules).map(named))].sort()
}

type Site = {
  operator: Operator
  proxy: Proxy
  url: string
  rights: string[]
  /** Writes the Roles of the namespace `acme`, without one right where one is named. Resolves once the API server judges by them. */
  grant(without: string | null): Promise<void>
  /** What the API server says to a request for which the account lacks the right. */
  refusal(right: string): string
}

const isOurs = ({ metadata }: Answered) => /-(controller|controller-secrets|lease)$/.test(metadata.name)

/** Gives an account of the operator's namespaces what the chart gives its controller, and a proxy that asks as that account. */
async function openSite(t: Test, kubeconfig: string): Promise<Site> {
  const operator = await openOperator(t, kubeconfig)
  const release = operator.namespace('acme')
  const namespaces = (['acme', 'globex', 'other'] as const).map((name) => operator.namespace(name))
  const all = await objects('required', ['--namespace', release, '--set', `namespaces={${namespaces.join(',')}}`, '--set', 'crds.enabled=false'])
  for (const [kind, plural] of [['Role', 'roles'], ['RoleBinding', 'rolebindings']] as const) {
    for (const one of all.filter((object) => object.kind === kind && isOurs(object))) {
      await done(operator.api, `${RBAC}/${one.metadata.namespace}/${plural}/${one.metadata.name}`, one)
    }
  }
  const account = `/api/v1/namespaces/${release}/serviceaccounts/tollgate-controller`
  await done(operator.api, account, all.find(({ kind, metadata }) => kind === 'ServiceAccount' && metadata.name === 'tollgate-controller'))
  const { body } = await operator.api.request('POST', `${account}/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })
  const proxy = await openProxy(t, { ...operator.api, token: body.status.token })
  const { env } = all.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'tollgate-controller').spec.template.spec.containers[0]
  const { value } = env.find(({ name }: Answered) => name === 'RESOURCES_URL')
  const roles = all.filter((object) => object.kind === 'Role' && object.metadata.namespace === release && isOurs(object))
  const rules: Rule[] = singly(roles.flatMap((role) => role.rules))
  return {
    operator,
    proxy,
    url: `${value}&kubeconfig=${proxy.kubeconfig}&leaseNamespace=${release}`,
    rights: rightsOf(rules),
    async grant(without) {
      for (const role of roles) {
        await done(operator.api, `${RBAC}/${release}/roles/${role.metadata.name}`, { ...role, rules: singly(role.rules).filter((rule) => named(rule) !== without) })
      }
      // The authorizer learns of a Role by a watch, as everybody does.
      await eventually(without === null ? 'all rights to be there' : `all rights but ${without} to be there`, async () => {
        const judged = await Promise.all(rules.map(async (rule) => (await isGranted(operator.api, release, rule)) === (named(rule) !== without)))
        return judged.every(Boolean) ? true : null
      })
    },
    refusal(right) {
      const { apiGroups, resources, verbs } = rules.find((rule) => named(rule) === right) as Rule
      return `User "system:serviceaccount:${release}:tollgate-controller" cannot ${verbs[0]} resource "${resources[0]}" in API group "${apiGroups[0]}" in the namespace "${release}"`
    },
  }
}

async function isGranted({ request }: Api, namespace: string, { apiGroups: [group], resources: [of = ''], resourceNames: [name] = [], verbs: [verb] }: Rule): Promise<boolean> {
  const [resource, subresource] = of.split('/')
  const spec = { user: `system:serviceaccount:${namespace}:tollgate-controller`, resourceAttributes: { verb, group, resource, subresource, namespace, name } }
  const { body } = await request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec })
  return body.status.allowed
}

async function done({ apply }: Api, path: string, object: Answered): Promise<void> {
  const { status, body } = await apply(path, object)
  if (status !== 200 && status !== 201) throw new Error(`${path} was answered ${status}: ${body.message}`)
}

/**
 * Everything for which the controller asks the API server: a key's whole life, a Secret that somebody edits, one that is not ours, a finalizer that another
 * writer was faster with, as the proxy pretends.
 */
async function live(site: Site, name: string): Promise<void> {
  const { operator, proxy } = site
  let isFirst = true
  proxy.fate = (method, path): Fate => {
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
    await site.grant(null)
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

  t.test('with these rights a controller whose store was restored from before a key was issued takes the key back from its Secret', async (t) => {
    const site = await openSite(t, kubeconfig)
    const { operator } = site
    const entries = () => operator.secretEntries(operator.namespace('acme'), 'ci-key')
    await site.grant(null)
    const before = await startController(t, site.url)
    await operator.declare(codingPlan('coder'), apiKey('ci', 'coder', { secretName: 'ci-key' }))
    await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'True Issued' })
    const issued = await entries()
    await before.close()
    // Its store is another, and empty.
    await startController(t, site.url)
    await operator.declare(apiKey('ci', 'coder', { secretName: 'ci-key', state: 'Suspended' }))
    await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'False KeySuspended' })
    t.equal(await entries(), null)
    await operator.declare(apiKey('ci', 'coder', { secretName: 'ci-key', state: 'Active' }))
    await operator.becomes(operator.ref('ApiKey', 'ci'), { Ready: 'True Issued' })
    t.same(await entries(), issued)
  })

  t.test('with one right less the controller says which one it lacks, and goes on once it has it', async (t) => {
    const site = await openSite(t, kubeconfig)
    for (const [i, right] of site.rights.entries()) {
      t.test(right, async (t) => {
        // The run before has made it.
        await site.operator.api.request('DELETE', `/apis/coordination.k8s.io/v1/namespaces/${site.operator.namespace('acme')}/leases/tollgate-controller`)
        // Before the controller comes: a watch that is open is not cut by a Role that changes.
        await site.grant(right)
        const lived = live(site, `less-${i}`).then(() => 'lived', (error: Error) => error)
        const { said, shown, close } = await startController(t, site.url)
        const isShown = async () => {
          const { conditions = [] } = (await site.operator.object(site.operator.ref('ApiKey', `less-${i}`)))?.status ?? {}
          return conditions.some(({ type, status, reason, message }: Condition) => type === 'Ready' && status === 'False' && reason === 'ClusterRefused' && message.includes(site.refusal(right)))
        }
        const isSaid = async () => said().includes(site.refusal(right)) && (!SHOWN.test(right) || (await shown()).includes(site.refusal(right)))
        const isTold = async () => (await isSaid()) && (!TOLD.test(right) || (await isShown()))
        const told = await eventually(`the controller to tell of ${right}`, async () => ((await isTold()) ? 'told' : null)).catch(() => null)
        t.equal(told, 'told', { controller: said().slice(-4000) })
        await site.grant(null)
        t.equal(await lived, 'lived', { controller: said().slice(-4000) })
        await close()
      })
    }
  })
}
