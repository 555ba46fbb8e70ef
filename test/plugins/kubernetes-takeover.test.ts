/** Takeover: a new leader refreshes its caches before it treats a missing resource as deleted, and leaves unreadable namespaces alone. */
import t from 'tap'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { openProxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { coder, leftovers, named } from './store-secret-agreement.ts'
import { LEASE } from './operator-chaos.ts'
import { openOperator, type Controller } from './operator.ts'

const watching = ({ resources }: Controller) => eventually('it to watch', async () => (resources.health().ok ? true : null))
/** Waits until the first pass over all resources is complete. */
const settled = ({ app, resources }: Controller) =>
  eventually('it to lead and complete its first pass', async () => {
    const checks = await Promise.all(app.checks.map((check) => check()))
    return resources.isLeading() && checks.find(({ name }) => name === 'controller')?.detail === '0 plans and 0 keys queued' ? true : null
  })

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('a new leader whose watch was silent deletes no key made meanwhile, and restores no key ended meanwhile', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const proxy = await openProxy(t, operator.api)
    await operator.declare(coder(), named(0), named(1), named(2))
    const one = await operator.start({ lease: LEASE })
    await Promise.all([0, 1, 2].map((n) => operator.becomes(operator.ref('ApiKey', `k${n}`), { Ready: 'True Issued' })))
    const two = await operator.start({ lease: LEASE }, proxy.kubeconfig)
    await watching(two)

    proxy.tells = () => false
    await operator.declare(named(0, { state: 'Suspended' }), named(1, { rotationRevision: 1 }), named(3), coder({ requestsPerMinute: 7 }))
    await operator.withdraw(operator.ref('ApiKey', 'k2'))
    await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'False KeySuspended' })
    await operator.becomes(operator.ref('ApiKey', 'k1'), { Ready: 'True RotationInProgress' })
    await operator.becomes(operator.ref('ApiKey', 'k3'), { Ready: 'True Issued' })
    const made = await operator.usableBySecret('k3-key')
    const states: string[] = []
    const { setKey } = operator.store
    operator.store.setKey = (id, change, notify) => {
      if (change.state) states.push(`${id} ${change.state}`)
      return setKey(id, change, notify)
    }
    await one.close()
    await settled(two)
    t.same(states, [], 'nothing was left to do')
    t.same(await operator.usableBySecret('k3-key'), made)
    t.equal(await operator.usableBySecret('k0-key'), null)
    t.match(await operator.store.subscription(`${operator.namespace('acme')}/coder`), { terms: { requestsPerMinute: 7 } })
    t.same(await leftovers(operator), [])
  })

  t.test('a namespace without read permission is left as it is, and the others are served', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const proxy = await openProxy(t, operator.api)
    const globex = operator.namespace('globex')
    const there = (document: ReturnType<typeof apiKey>) => ({ ...document, metadata: { ...(document['metadata'] as object), namespace: globex } })
    const theirs = { kind: 'ApiKey' as const, namespace: globex, name: 'theirs' }
    await operator.declare(coder(), named(0), there(codingPlan('coder')), there(apiKey('theirs', 'coder', { secretName: 'theirs-key' })))
    const one = await operator.start({ lease: LEASE })
    await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'True Issued' })
    await operator.becomes(theirs, { Ready: 'True Issued' })
    await one.close()

    proxy.fate = (_, path) => (path.includes(`/namespaces/${globex}/`) ? { status: 403, reason: 'Forbidden', message: `not in ${globex}` } : 'passes')
    const two = await operator.start({ lease: LEASE }, proxy.kubeconfig)
    await settled(two)
    t.same([operator.namespace('acme'), globex, 'elsewhere'].map(two.resources.serves), [true, false, false])
    t.match(two.resources.health(), { ok: true, detail: new RegExp(`not in ${globex}`) })
    await operator.declare(named(0, { state: 'Suspended' }), named(1))
    await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'False KeySuspended' })
    await operator.becomes(operator.ref('ApiKey', 'k1'), { Ready: 'True Issued' })
    const { uid } = (await operator.object(theirs)).metadata
    t.match(await operator.store.keyVersions(uid), [{ state: 'active' }])
    t.match(await operator.store.subscription(`${globex}/coder`), { plan: {} })
    t.ok((await operator.store.subscription(`${globex}/coder`))?.plan)

    proxy.fate = () => 'passes'
    await eventually('it to be read', async () => (two.resources.serves(globex) ? true : null))
    await operator.declare(there(apiKey('theirs', 'coder', { secretName: 'theirs-key', state: 'Suspended' })))
    await operator.becomes(theirs, { Ready: 'False KeySuspended' })
  })

  for (const plural of ['plans', 'apikeys', 'secrets']) {
    t.test(`while ${plural} alone cannot be listed, no plan, key or Secret is taken for a deleted one`, async (t) => {
      const operator = await openOperator(t, kubeconfig)
      const proxy = await openProxy(t, operator.api)
      await operator.declare(coder(), named(0))
      const one = await operator.start({ lease: LEASE })
      await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'True Issued' })
      const made = await operator.usableBySecret('k0-key')
      await one.close()

      const isFailed = (path: string) => path.includes(`/${plural}?`)
      proxy.fate = (_, path) => (isFailed(path) ? { status: 403, reason: 'Forbidden', message: `no ${plural}` } : 'passes')
      const two = await operator.start({ lease: LEASE }, proxy.kubeconfig)
      await settled(two)
      await operator.declare(named(1))
      await eventually('more lists to fail', async () => (proxy.seen.filter(isFailed).length > 9 ? true : null))
      t.same(await operator.usableBySecret('k0-key'), made)
      t.ok((await operator.store.subscription(`${operator.namespace('acme')}/coder`))?.plan)
      await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'True Issued' })

      proxy.fate = () => 'passes'
      await operator.becomes(operator.ref('ApiKey', 'k1'), { Ready: 'True Issued' })
      t.same(await operator.usableBySecret('k0-key'), made)
    })
  }

  t.test('a controller that takes over leaves a namespace alone whose permission is gone, and serves the others', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const proxy = await openProxy(t, operator.api)
    const globex = operator.namespace('globex')
    await operator.declare(coder(), named(0))
    const one = await operator.start({ lease: LEASE })
    await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'True Issued' })
    const two = await operator.start({ lease: LEASE }, proxy.kubeconfig)
    await eventually('both to be read', async () => ([operator.namespace('acme'), globex].every(two.resources.serves) ? true : null))
    proxy.fate = (_, path) => (path.includes(`/namespaces/${globex}/`) ? { status: 403, reason: 'Forbidden', message: `not in ${globex}` } : 'passes')
    await one.close()
    await settled(two)
    t.same([operator.namespace('acme'), globex].map(two.resources.serves), [true, false])
    await operator.declare(named(0, { state: 'Suspended' }))
    await operator.becomes(operator.ref('ApiKey', 'k0'), { Ready: 'False KeySuspended' })
    proxy.fate = () => 'passes'
    await eventually('it to be read', async () => (two.resources.serves(globex) ? true : null))
  })
}
