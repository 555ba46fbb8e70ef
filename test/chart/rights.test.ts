/** The controller with the rights that the chart gives it: they suffice, each is used, and without any one of them it says what it lacks. */
import t from 'tap'
import type { Condition } from '../../src/backends/resources/resources.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { missing } from '../servers/client.ts'
import type { Fate } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { found, objects } from './chart.ts'
import { openAccount, rightsOf, type Account } from './controller-account.ts'
import { startController } from './controller.ts'

/** The rights without which a controller does nothing at all: they are missing where somebody looks first, in /readyz. */
const SHOWN = /^(list|watch) | leases$/
/** Those without which no new key comes about: its status says so to whoever declared it. */
const TOLD = /^(create secrets|patch apikeys)$/

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

/**
 * Everything for which the controller asks the API server: a key's whole life, a Secret that somebody edits, one that is not ours, a finalizer that another
 * writer was faster with, as the proxy pretends.
 */
async function live(site: Account, name: string): Promise<void> {
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
    const site = await openAccount(t, kubeconfig)
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
    const site = await openAccount(t, kubeconfig)
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

  t.test('with one right less the controller names the missing one, and continues once it has it', async (t) => {
    const site = await openAccount(t, kubeconfig)
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
