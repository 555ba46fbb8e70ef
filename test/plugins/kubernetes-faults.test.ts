/** Faults between a controller, its API server and its store: specs, status, Secrets and store agree afterwards, and no key is minted twice. */
import t from 'tap'
import { seeded } from '../contracts/store/acme.ts'
import { eventually } from '../flows/eventually.ts'
import type { ApiKeyResource, Resources } from '../../src/backends/resources/resources.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { pathOf } from '../servers/kube/api.ts'
import { openProxy } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { ownMongodb } from '../servers/mongodb.ts'
import { agree, coder, KEYS, leftovers, named } from './store-secret-agreement.ts'
import { openAway } from './unavailable-store.ts'
import { openTime } from './movable-clock.ts'
import { LEASE } from './operator-chaos.ts'
import { openOperator, type Operator } from './operator.ts'
import { inject, API_FAULTS } from './api-server-faults.ts'

/** A lease that outlives the faults of these tests. */
const LASTING = { durationMs: 60_000, renewDeadlineMs: 40_000, retryMs: 100 }

const MINUTE_MS = 60_000

const gone = (operator: Operator, name: string) => eventually(`${name} to be gone`, async () => ((await operator.object(operator.ref('ApiKey', name))) === null ? true : null))

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  for (const [what, make] of Object.entries(API_FAULTS)) {
    t.test(`${what}: everything agrees afterwards`, async (t) => {
      const operator = await openOperator(t, kubeconfig)
      const proxy = await openProxy(t, operator.api)
      const made = make({ api: operator.api, random: seeded(7) })
      const struck = inject(proxy, made)
      await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
      // The keys are two pages.
      const one = await operator.start({ lease: LASTING, pageSize: KEYS / 2 }, proxy.kubeconfig)
      await agree(operator)
      await operator.declare(named(0, { state: 'Suspended' }), named(1, { rotationRevision: 1 }), named(2, { state: 'Revoked' }))
      proxy.cut()
      await agree(operator)
      await operator.withdraw(operator.ref('ApiKey', 'k3'))
      await operator.declare(named(0), named(4, { rotationRevision: 1 }))
      await gone(operator, 'k3')
      await agree(operator)
      t.same(await leftovers(operator), [])
      t.same(made.strikes.filter((sort) => !struck().has(sort)), [], 'the fault hit every sort of request that it is meant for')
      const answered = new Set(one.resources.stats()?.requests.map(({ method, code }) => `${method} ${code}`))
      t.same((made.answers ?? []).filter((answer) => !answered.has(answer)), [])
    })
  }

  t.test('a store whose server is killed under load, once for a minute of the controller\'s clock, loses no update, and what came due meanwhile is done', async (t) => {
    const server = await ownMongodb(t)
    if (!server) return
    const time = openTime()
    const operator = await openOperator(t, kubeconfig, `${server.url}operator`)
    const random = seeded(3)
    await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
    const one = await operator.start({}, undefined, { clock: time.clock, after: time.after })
    await agree(operator, time.clock)
    const specs = Array.from({ length: KEYS }, () => ({ rotationRevision: 0, state: 'Active' }))
    // Every key changes, and the server is killed after some of the changes, while the controller reconciles them.
    async function strike(): Promise<void> {
      const after = Math.floor(random() * KEYS)
      let killed = Promise.resolve()
      for (const [n, spec] of specs.entries()) {
        if (random() < 0.5) spec.rotationRevision++
        else spec.state = spec.state === 'Active' ? 'Suspended' : 'Active'
        await operator.declare(named(n, spec))
        if (n === after) killed = server!.kill()
      }
      await killed
      await operator.declare(named(KEYS, { state: specs[0]!.state === 'Active' ? 'Suspended' : 'Active' }))
    }
    for (let kills = 1; kills <= 2; kills++) {
      await strike()
      await server.start()
      time.pass(MINUTE_MS / 2)
      await agree(operator, time.clock)
    }

    await strike()
    const failures = async () => Number(/controller_runtime_reconcile_errors_total\{controller="apikey"\} (\d+)/.exec(await one.registry.metrics())?.[1] ?? 0)
    const expirationTime = new Date(time.clock() + MINUTE_MS / 2).toISOString()
    await operator.declare(named(KEYS + 1), named(4, { ...specs[4], state: 'Active', expirationTime }))
    await operator.becomes(operator.ref('ApiKey', `k${KEYS + 1}`), { Ready: 'Unknown StoreUnavailable' })
    for (let passed = 0; passed < MINUTE_MS; passed += MINUTE_MS / 4) {
      const before = await failures()
      time.pass(MINUTE_MS / 4)
      await eventually('a retry', async () => ((await failures()) > before ? true : null))
    }
    await operator.becomes(operator.ref('ApiKey', 'k4'), { Ready: 'False StoreUnavailable' })
    await server.start()
    // Longer than any back-off.
    time.pass(MINUTE_MS / 2)
    await agree(operator, time.clock)
    await operator.becomes(operator.ref('ApiKey', 'k4'), { Ready: 'False KeyExpired' })
    t.same(await leftovers(operator), [])
  })

  t.test('work begun under a lease is not written after it', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const proxy = await openProxy(t, operator.api)
    const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const ref = operator.ref('ApiKey', 'k0')
    // A pass uses the spec of the key as it is when the versions are read.
    let source: Resources | null = null
    const isSuspended = () => (source?.get(ref) as ApiKeyResource | null)?.spec.state === 'Suspended'
    const keyVersions: Store['keyVersions'] = async (uid) => {
      const isHeld = isSuspended()
      const versions = await operator.store.keyVersions(uid)
      if (isHeld) await (asked.resolve(), goOn.promise)
      return versions
    }
    await operator.declare(coder(), named(0))
    const one = await operator.start({ lease: LEASE }, proxy.kubeconfig, { store: { ...operator.store, keyVersions } })
    source = one.resources
    await operator.becomes(ref, { Ready: 'True Issued' })
    const { uid } = (await operator.object(ref)).metadata
    const states = async () => (await operator.store.keyVersions(uid)).map(({ state }) => state)
    const failures = async () => Number(/controller_runtime_reconcile_errors_total\{controller="apikey"\} (\d+)/.exec(await one.registry.metrics())?.[1] ?? 0)
    await operator.declare(named(0, { state: 'Suspended' }))
    await asked.promise
    proxy.fate = () => 'cut'
    proxy.cut()
    await eventually('the lease to be lost', async () => (one.resources.isLeading() ? null : true))
    const before = await failures()
    goOn.resolve()
    await eventually('its pass to end', async () => ((await failures()) > before ? true : null))
    t.same(await states(), ['active'], 'another process may lead by now')
    proxy.fate = () => 'passes'
    await operator.becomes(ref, { Ready: 'False KeySuspended' })
    t.same(await states(), ['suspended'])
  })

  t.test('clock skew between controllers that take over from each other causes no writes and mints no key again', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const skewed = (minutes: number) => operator.start({ lease: { ...LASTING, retryMs: 30_000 } }, undefined, { clock: () => Date.now() + minutes * 60_000 })
    await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
    const first = await skewed(-20)
    await agree(operator)
    await operator.declare(named(0, { rotationRevision: 1 }), named(1, { state: 'Suspended' }))
    await agree(operator)
    await eventually('the plan to count its keys', async () => ((await operator.object(operator.ref('Plan', 'coder'))).status?.activeKeys === KEYS - 1 ? true : null))
    await first.close()
    const second = await skewed(20)
    await eventually('the first pass', async () => ((await Promise.all(second.app.checks.map((check) => check()))).every(({ detail }) => !/not complete|not the leader/.test(detail)) ? true : null))
    t.equal(second.writes(), 1, 'the write of its Lease')
    await operator.declare(named(0, { rotationRevision: 2 }), named(1), named(2, { state: 'Revoked' }))
    await agree(operator)
  })

  t.test('during a store outage a deleted key stays until the store is back; a key whose finalizer is removed by hand is unusable then', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    const away = openAway(operator.store, 'store')
    await operator.declare(coder(), named(0), named(1))
    await operator.start({}, undefined, { store: away.backend })
    await agree(operator)
    const ids = await Promise.all(['k0-key', 'k1-key'].map(async (name) => (await operator.usableBySecret(name))!.keyId))
    away.isAway = true
    for (const name of ['k0', 'k1']) await operator.withdraw(operator.ref('ApiKey', name))
    t.ok((await operator.object(operator.ref('ApiKey', 'k0'))).metadata.deletionTimestamp)
    await operator.api.request('PATCH', pathOf(operator.ref('ApiKey', 'k1')), { metadata: { finalizers: null } }, 'application/merge-patch+json')
    t.equal(await operator.object(operator.ref('ApiKey', 'k1')), null, 'the documented way to remove it')
    away.isAway = false
    await gone(operator, 'k0')
    for (const id of ids) await eventually('it to be unusable', async () => ((await operator.store.keyVersions(id)).every(({ state }) => state === 'deleted') ? true : null))
  })
}
