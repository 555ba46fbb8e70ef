/** The reflector against a real API server behind a faulty proxy: cut connections, refusals, expired versions, missed events, crashes. */
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openCache } from '../../../src/backends/resources/kubernetes/informer-cache.ts'
import { openClient } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { COLLECTIONS } from '../../../src/backends/resources/kubernetes/api-objects.ts'
import { openReflector, type ReflectorOptions } from '../../../src/backends/resources/kubernetes/reflector.ts'
import { seeded } from '../../contracts/store/acme.ts'
import { eventually } from '../../flows/eventually.ts'
import { openProxy, type Fate } from '../../servers/kube/proxy.ts'
import { kubernetes, ownKubernetes } from '../../servers/kubernetes.ts'
import { openCluster } from './cluster.ts'
import { compact } from './compaction.ts'
import { codingPlan } from './manifests.ts'

const quiet = { info: () => {}, warn: () => {}, error: () => {} }
const plan = (n: number, displayName = `${n}`) => codingPlan(`p${n}`, { displayName })

async function openFixture(t: Test, kubeconfig: string, options: Partial<ReflectorOptions> = {}) {
  const cluster = await openCluster(t, kubeconfig)
  const proxy = await openProxy(t, cluster.api)
  const credentials = await openCredentials(proxy.kubeconfig, {})
  const client = openClient(credentials)
  const cache = openCache()
  const notified: string[] = []
  const scope = cluster.namespace('acme')
  const reflector = openReflector({ client, collection: COLLECTIONS.Plan, scope, cache, changed: ({ before, after }) => notified.push((after ?? before)!.metadata.name), log: quiet, ...options })
  t.teardown(async () => {
    await reflector.stop()
    await credentials.close()
  })
  const shown = () => [...cache.all()].map(({ metadata, spec }) => `${metadata.name} ${(spec as { displayName: string }).displayName}`).sort()
  const shows = (...wanted: string[]) => eventually(`the cache to show ${wanted.join(', ')}`, async () => (JSON.stringify(shown()) === JSON.stringify(wanted.sort()) ? true : null))
  return { cluster, proxy, reflector, notified, shown, shows, scope, client, ref: (n: number) => ({ kind: 'Plan' as const, namespace: scope, name: `p${n}` }) }
}

const isWatch = (path: string) => path.includes('watch=true')

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('a list is read page by page, the watch continues from it and is renewed at its timeout', async (t) => {
    const { cluster, proxy, reflector, shows, ref } = await openFixture(t, kubeconfig, { pageSize: 2, watchSeconds: 1, random: () => 0 })
    await cluster.declare(...[1, 2, 3, 4, 5].map((n) => plan(n)))
    await reflector.start()
    await shows('p1 1', 'p2 2', 'p3 3', 'p4 4', 'p5 5')
    t.equal(proxy.seen.filter((request) => request.includes('limit=2')).length, 3)
    await eventually('a second watch', async () => (reflector.stats().watches >= 3 ? true : null))
    await cluster.declare(plan(1, 'new'))
    await cluster.withdraw(ref(2))
    await shows('p1 new', 'p3 3', 'p4 4', 'p5 5')
    t.equal(reflector.stats().lists, 1, 'a watch that ends at its timeout needs no list')
    t.equal(reflector.lastError(), null)
  })

  t.test('after cut connections and refusals the cache catches up', async (t) => {
    const { cluster, proxy, reflector, shows, ref } = await openFixture(t, kubeconfig)
    proxy.fate = () => 'cut'
    let isStarted = false
    const started = reflector.start().then(() => (isStarted = true))
    await eventually('it to fail', async () => (reflector.stats().failures > 1 ? true : null))
    t.ok(reflector.lastError())
    proxy.fate = () => ({ status: 500, reason: 'InternalError', message: 'no list today' })
    await eventually('it to say why', async () => (reflector.lastError()?.includes('no list today') ? true : null))
    t.equal(isStarted, false)
    proxy.fate = () => ({ status: 403, reason: 'Forbidden', message: 'plans is forbidden' })
    await eventually('it to say why', async () => (reflector.lastError()?.includes('plans is forbidden') ? true : null))
    // `start` resolves, so that the other collections can be used.
    await started
    t.equal(reflector.isSynced(), false)
    proxy.fate = () => 'passes'
    await eventually('it to be listed', async () => (reflector.isSynced() ? true : null))
    t.equal(reflector.lastError(), null)
    const faults = [() => {}, () => (proxy.fate = (_, path) => (isWatch(path) ? 'cut' : 'passes')), () => (proxy.fate = () => ({ status: 503, reason: 'ServiceUnavailable' }))]
    let n = 0
    for (const inject of faults) {
      inject()
      proxy.cut()
      n++
      await cluster.declare(plan(n), plan(100, `${n}`))
      if (n > 1) await cluster.withdraw(ref(n - 1))
      proxy.fate = () => 'passes'
      await shows('p100 ' + n, `p${n} ${n}`)
    }
    await eventually('the error to be cleared', async () => (reflector.lastError() === null ? true : null))
    t.equal(reflector.stats().missed, 0)
    t.equal(reflector.stats().lists, 1, 'the watch continues where it broke')
  })

  t.test('a list that fails between its pages starts again, without any trace of the first try in the cache', async (t) => {
    const { cluster, proxy, reflector, shown, shows, ref } = await openFixture(t, kubeconfig, { pageSize: 2 })
    await cluster.declare(...[1, 2, 3, 4, 5].map((n) => plan(n)))
    const isNext = (path: string) => path.includes('continue=')
    // The third page fails, then the second; objects of the first pages are deleted meanwhile.
    let nexts = 0
    const fates: Fate[] = ['passes', { status: 500, reason: 'InternalError' }, { status: 410, reason: 'Expired' }, 'halved']
    proxy.fate = async (_, path) => {
      const fate = isNext(path) ? (fates[nexts++] ?? 'passes') : 'passes'
      if (fate !== 'passes') {
        t.same(shown(), [])
        await cluster.declare(plan(2, `after ${nexts}`))
        if (nexts === 2) await cluster.withdraw(ref(1))
      }
      return fate
    }
    await reflector.start()
    await shows('p2 after 4', 'p3 3', 'p4 4', 'p5 5')
    t.match(reflector.stats(), { lists: 1, failures: 3, missed: 0 })
  })

  t.test('a list after an expired version is retried until it reports changes and deletions', async (t) => {
    const { cluster, proxy, reflector, notified, shown, shows, ref } = await openFixture(t, kubeconfig, { pageSize: 2 })
    await cluster.declare(...[1, 2, 3, 4, 5].map((n) => plan(n)))
    await reflector.start()
    await shows('p1 1', 'p2 2', 'p3 3', 'p4 4', 'p5 5')
    let asked = 0
    const fates: Fate[] = [{ status: 500, reason: 'InternalError' }, 'passes', { status: 410, reason: 'Expired' }, 'cut', 'passes', 'halved']
    proxy.fate = (_, path) => {
      if (isWatch(path)) return asked === 0 ? { status: 410, reason: 'Expired' } : 'passes'
      if (asked < fates.length) t.equal(shown().length, 5, 'the cache is kept until a list is complete')
      return fates[asked++] ?? 'passes'
    }
    notified.length = 0
    proxy.cut()
    await cluster.declare(plan(1, 'new'))
    await cluster.withdraw(ref(2))
    await shows('p1 new', 'p3 3', 'p4 4', 'p5 5')
    t.ok(asked > fates.length, 'each of these lists and pages was requested')
    t.same([...new Set(notified)].sort(), ['p1', 'p2'], 'unchanged objects are not reported')
  })

  t.test('a watch that ends within an event continues with that event', async (t) => {
    const { cluster, proxy, reflector, notified, shows } = await openFixture(t, kubeconfig)
    await cluster.declare(plan(0))
    await reflector.start()
    const random = seeded(11)
    let ended = 0
    // Each event, when it first comes, is the last of its watch, complete or cut anywhere, also within a character.
    const seen = new Set<string>()
    proxy.tells = (event) => {
      if (seen.has(event)) return true
      seen.add(event)
      ended++
      return { bytes: Math.floor(random() * (Buffer.byteLength(event) + 2)), isBroken: random() < 0.5 }
    }
    const name = '€😀'.repeat(20)
    for (let n = 1; n <= 12; n++) await cluster.declare(plan(1, `${name}${n}`))
    await shows(`p1 ${name}12`, 'p0 0')
    t.ok(ended >= 12)
    t.equal(notified.filter((which) => which === 'p1').length, 12, 'each change is reported once')
    t.match(reflector.stats(), { lists: 1, missed: 0 })
  })

  t.test('changes that a watch misses are found by the next list, and counted', async (t) => {
    const { cluster, proxy, reflector, shows } = await openFixture(t, kubeconfig)
    await cluster.declare(plan(1), plan(3))
    await reflector.start()
    await shows('p1 1', 'p3 3')
    proxy.tells = (event) => !/"name":"p[12]"/.test(event)
    await cluster.declare(plan(1, 'new'), plan(2))
    await cluster.declare(plan(3, 'new'))
    await shows('p1 1', 'p3 new')
    t.equal(reflector.stats().missed, 0)
    proxy.fate = (_, path) => (isWatch(path) ? { status: 410, reason: 'Expired' } : 'passes')
    proxy.cut()
    await shows('p1 new', 'p2 2', 'p3 new')
    t.equal(reflector.stats().missed, 2)
    const { lists } = reflector.stats()
    await eventually('another list', async () => (reflector.stats().lists > lists ? true : null))
    t.equal(reflector.stats().missed, 2, 'a list without changes counts nothing')
  })

  t.test('the periodic list finds changes while the watch is silent, and does not count them as missed', async (t) => {
    const { cluster, proxy, reflector, shows } = await openFixture(t, kubeconfig, { relistMs: 1_500, random: () => 0 })
    await cluster.declare(plan(1), plan(2))
    proxy.tells = () => false
    await reflector.start()
    await shows('p1 1', 'p2 2')
    await cluster.declare(plan(1, 'new'))
    await shows('p1 new', 'p2 2')
    t.ok(reflector.stats().lists >= 2)
    t.equal(reflector.stats().missed, 0)
  })

  t.test('lastEventAgeMs is that of the most silent watch', async (t) => {
    const cluster = await openCluster(t, kubeconfig)
    const resources = await cluster.open()
    t.equal(resources.stats()?.lastEventAgeMs, null)
    await resources.watch(() => {})
    const listedAt = performance.now()
    await pause(300)
    await cluster.declare(plan(1))
    await eventually('the plan to be listed', async () => resources.list('Plan')[0] ?? null)
    const waitedMs = performance.now() - listedAt
    t.ok(resources.stats()!.lastEventAgeMs! >= waitedMs, 'there was no event of keys, Secrets and other namespaces')
  })

  t.test('a 429 is retried after its Retry-After', async (t) => {
    const { proxy, client, reflector } = await openFixture(t, kubeconfig)
    let refusals = 0
    proxy.fate = () => (refusals++ < 2 ? { status: 429, reason: 'TooManyRequests', headers: { 'retry-after': '0' } } : 'passes')
    await reflector.start()
    t.equal(reflector.stats().failures, 0)
    t.match(client.counts().find(({ code }) => code === '429'), { method: 'GET', count: 2 })
  })
}

t.test('compactions of etcd and kills of the API server lose no change', async (t) => {
  const server = await ownKubernetes(t)
  if (!server) return
  const { cluster, proxy, reflector, shows } = await openFixture(t, server.kubeconfig)
  await reflector.start()
  for (let n = 1; n <= 2; n++) {
    await cluster.declare(plan(1, `${n}`))
    await server.killApiServer()
    await server.startApiServer()
    await cluster.declare(plan(2, `${n}`))
    await shows(`p1 ${n}`, `p2 ${n}`)
  }
  const { lists } = reflector.stats()
  proxy.fate = () => 'cut'
  proxy.cut()
  await cluster.declare(plan(1, 'unseen'), plan(3))
  await server.killApiServer()
  await compact(server.etcd)
  await server.startApiServer()
  proxy.fate = () => 'passes'
  await shows('p1 unseen', 'p2 2', 'p3 3')
  t.ok(reflector.stats().lists > lists, 'the version of the watch had expired')
})
