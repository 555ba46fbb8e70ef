/** The controller over a folder of manifests and SQLite: issuing, rotating, revoking, limits, outages and crashes. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import t from 'tap'
import { resourceMetrics } from '../../plugins/controller/resource-metrics.ts'
import type { Ref, Resources } from '../../src/backends/resources/resources.ts'
import { hashKey, open, refusal } from '../../src/domain/api-keys.ts'
import { inactiveReason } from '../../src/domain/subscription/subscription.ts'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import { admit, hold, settle, taskId } from '../contracts/store/acme.ts'
import { openTenant, SEALING, type Fate, type Running, type Tenant } from './tenant.ts'

const HOUR = 3_600_000
const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }

const ci = (spec: Record<string, unknown> = {}) => apiKey('ci', 'coder', { secretName: 'ci-key', ...spec })

t.test('a Plan and an ApiKey yield a working key, a Secret with it, and a Ready status', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  t.same(await tenant.conditions(running, 'ApiKey', 'ci'), ALL_GOOD)
  const entries = await tenant.secret('ci-key')
  t.match(entries?.['api-key'], /^svc_live_[0-9A-Za-z]{49}$/)
  const version = await tenant.store.findKey(hashKey(entries?.['api-key'] ?? ''))
  t.match(version, { id: entries?.['key-id'], revision: 0, tenant: 'acme', name: 'ci', subscription: 'acme/coder', product: 'Coding', state: 'active', secretName: 'ci-key', tell: [] })
  t.equal(open(version!.sealed, version!.id, SEALING), entries?.['api-key'])
  t.equal(inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now), null)
  await running.settle()
  t.match(await tenant.status(running, 'Plan', 'coder'), { observedGeneration: 1, activeKeys: 1, conditions: [{ type: 'Ready', status: 'True' }] })
  for (const check of running.app.checks) t.match(await check(), { ok: true })
})

t.test('a restart with nothing to do writes nothing', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), mediaPlan('studio'), ci(), apiKey('web', 'studio', { limit: { amountPerPeriod: '1' } }), apiKey('lost', 'nowhere'))
  const first = await tenant.start()
  await first.settle()
  await first.app.close()
  const files = async () => Promise.all(['apikey/ci', 'apikey/web', 'apikey/lost', 'plan/coder'].map((name) => readFile(join(tenant.secretPath('x'), '../../../status/acme', `${name}.yaml`), 'utf8')))
  const [before, versions] = [await files(), (await tenant.store.subscription('acme/coder'))?.version]
  tenant.time.now += HOUR
  const second = await tenant.start()
  await second.settle()
  t.same(second.writes.filter((verb) => verb !== 'setStatus'), [])
  t.same(await files(), before)
  t.equal((await tenant.store.subscription('acme/coder'))?.version, versions)
})

t.test('what a plan has used is in its status a minute later, is written once a minute at most, and stays over a restart', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  const use = async (id: string, tokens: number) => {
    const [{ keyId } = { keyId: '' }] = await tenant.versions(running, 'ci')
    const { keysVersion = 0 } = (await tenant.store.subscription('acme/coder')) ?? {}
    t.match(await tenant.store.change('acme/coder', admit(id, tokens, { keyId, keysVersion }), tenant.time.now), { outcome: 'admitted' })
    await tenant.store.change('acme/coder', settle(id, tokens), tenant.time.now)
  }
  const usage = async (of = running) => {
    const status = await tenant.status(of, 'Plan', 'coder')
    return status && 'activeKeys' in status ? status.usage : null
  }
  t.equal(await usage(), undefined)
  await use('one', 30)
  await tenant.pass(running, 60_000)
  const first = await usage()
  t.match(first, { sessionTokens: 30, weeklyTokens: 30 })
  await use('two', 12)
  await tenant.declare('a.yaml', codingPlan('coder', { displayName: 'Coder' }), ci())
  await running.settle()
  t.match(await tenant.status(running, 'Plan', 'coder'), { observedGeneration: 2, usage: first }, 'another write of the status leaves it')
  await tenant.pass(running, 60_000)
  const second = await usage()
  t.match(second, { sessionTokens: 42, weeklyTokens: 42 })
  await running.app.close()
  tenant.time.now += HOUR
  const restarted = await tenant.start()
  await restarted.settle()
  t.same(await usage(restarted), second)
})

t.test('metrics tell how many resources are ready and why others are not, which end within a week, and which plans are nearly or wholly used up', async (t) => {
  const tenant = await openTenant(t)
  const inDays = (days: number) => new Date(tenant.time.now + days * 24 * HOUR).toISOString()
  const plans = (tokens: number) => [codingPlan('coder', { expirationTime: inDays(6) }, { sessionWindow: { tokens, durationSeconds: 18_000 }, weeklyWindow: { tokens } }), mediaPlan('studio', { expirationTime: inDays(8) }), codingPlan('asleep', { state: 'Suspended', expirationTime: inDays(1) })]
  await tenant.declare('a.yaml', ...plans(50), ci(), apiKey('lost', 'nowhere', { expirationTime: inDays(7) }))
  const running = await tenant.start()
  await running.settle()
  const series = async (name: string) => {
    const found = (await running.app.metrics.registry.getMetricsAsJSON()).find((metric) => metric.name === name)?.values ?? []
    return Object.fromEntries(found.map(({ labels, value }) => [Object.values(labels).join(' '), value]))
  }
  t.same(await series('tollgate_declared_resources'), { 'plan True PlanActive': 2, 'plan False PlanSuspended': 1, 'apikey True Issued': 1, 'apikey False PlanNotFound': 1 })
  t.same(await series('tollgate_declared_resources_ending'), { plan: 1, apikey: 1 })
  t.same(await series('tollgate_declared_plans_used'), { 'week 0.8': 0, 'week 1': 0, 'allowance 0.8': 0, 'allowance 1': 0 })

  const [{ keyId } = { keyId: '' }] = await tenant.versions(running, 'ci')
  const { keysVersion = 0 } = (await tenant.store.subscription('acme/coder')) ?? {}
  await tenant.store.change('acme/coder', admit('one', 40, { keyId, keysVersion }), tenant.time.now)
  await tenant.store.change('acme/coder', settle('one', 40), tenant.time.now)
  await tenant.pass(running, 60_000)
  t.match(await series('tollgate_declared_plans_used'), { 'week 0.8': 1, 'week 1': 0 })
  await tenant.declare('a.yaml', ...plans(40), ci())
  await running.settle()
  t.match(await series('tollgate_declared_plans_used'), { 'week 0.8': 1, 'week 1': 1 })
  t.same(await series('tollgate_declared_resources_ending'), { plan: 1, apikey: 0 }, 'what is removed counts no longer')
  t.same(await series('tollgate_manifests_refused'), { '': 0 })
  await tenant.declare('b.yaml', codingPlan('broken', { state: 'Sleepy' }))
  await running.settle()
  t.same(await series('tollgate_manifests_refused'), { '': 1 })
  await tenant.pass(running, 6 * 24 * HOUR)
  await running.settle()
  t.match(await series('tollgate_declared_resources'), { 'plan False PlanExpired': 1, 'apikey False PlanExpired': 1 })
})

t.test('the metrics forget a resource with its deletion, even if nobody reads them', async (t) => {
  const registry = new Registry()
  const present = new Map<string, object>()
  const asked: string[] = []
  let changed: (ref: Ref) => void = () => {}
  const source = {
    watch: async (listener: typeof changed) => void (changed = listener),
    get: ({ name }: Ref) => (asked.push(name), present.get(name) ?? null),
    setStatus: async () => true,
    isLeading: () => true,
    health: () => ({}),
  } as unknown as Resources
  const resources = resourceMetrics(registry, { resources: source, clock: () => 0, byTenant: false })
  await resources.watch(() => {})
  for (const name of ['kept', 'deleted', 'late']) {
    const ref: Ref = { kind: 'Plan', namespace: 'acme', name }
    if (name !== 'late') present.set(name, { kind: 'Plan', spec: {} })
    await resources.setStatus(ref, { observedGeneration: 1, activeKeys: 0, conditions: [] })
    if (name === 'deleted' && present.delete(name)) changed(ref)
  }
  asked.length = 0
  await registry.metrics()
  t.same([...new Set(asked)], ['kept'])
})

t.test('an edit of a plan and its revert reach its record and its keys', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'))
  await tenant.declare('b.yaml', ci())
  const running = await tenant.start()
  const key = await tenant.secret('ci-key')
  await tenant.declare('a.yaml', codingPlan('coder', { state: 'Suspended' }))
  await running.settle()
  t.equal(inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now), 'PlanSuspended')
  t.equal(await tenant.secret('ci-key'), null)
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False PlanSuspended', KeyActive: 'True Issued' })
  t.match(await tenant.status(running, 'Plan', 'coder'), { activeKeys: 0, conditions: [{ status: 'False', reason: 'PlanSuspended' }] })
  await tenant.declare('a.yaml', codingPlan('coder', { requestsPerMinute: 1 }))
  await running.settle()
  t.same(await tenant.secret('ci-key'), key, 'the same key comes back')
  t.match(await tenant.store.subscription('acme/coder'), { plan: { generation: 3 }, terms: { requestsPerMinute: 1 } })
  await tenant.withdraw('a.yaml')
  await running.settle()
  t.equal((await tenant.store.subscription('acme/coder'))?.plan, null)
  t.equal(await tenant.secret('ci-key'), null)
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False PlanNotFound' })
  await tenant.declare('a.yaml', codingPlan('coder'))
  await running.settle()
  t.same(await tenant.secret('ci-key'), key)
})

t.test('tasks that an edit of their plan lets run are published', async (t) => {
  const tenant = await openTenant(t)
  const atOnce = (maxConcurrentTasks: number) => mediaPlan('studio', {}, { maxConcurrentTasks })
  await tenant.declare('a.yaml', atOnce(1))
  const running = await tenant.start()
  await running.settle()
  for (const n of [1, 2, 3]) await tenant.store.change('acme/studio', hold(taskId(n)), tenant.time.now)
  await tenant.store.change('acme/studio', { op: 'claim', claim: 'one', kinds: ['image'] }, tenant.time.now)
  t.same(running.messages, [])
  await tenant.declare('a.yaml', atOnce(2))
  await running.settle()
  t.match(running.messages, [{ type: 'task.ready', subscription: 'acme/studio', task: taskId(2) }])
  t.equal(running.messages.length, 1)
})

t.test('without an edit a plan starts, a key expires and an overlap ends at their times', async (t) => {
  const tenant = await openTenant(t)
  const at = (ms: number) => new Date(tenant.time.now + ms).toISOString()
  await tenant.declare('a.yaml', codingPlan('coder', { startTime: at(HOUR) }), ci({ expirationTime: at(5 * HOUR) }))
  const running = await tenant.start()
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False PlanNotActive' })
  t.same(await tenant.versions(running, 'ci'), [])
  await tenant.pass(running, HOUR)
  t.same(await tenant.conditions(running, 'ApiKey', 'ci'), ALL_GOOD)
  const { expirationTime } = (running.resources.list('ApiKey')[0]!).spec
  await tenant.declare('a.yaml', codingPlan('coder', { startTime: new Date(Date.UTC(2026, 0, 5, 1)).toISOString() }), ci({ expirationTime, rotationRevision: 1 }))
  await running.settle()
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'True RotationInProgress' })
  t.same((await tenant.versions(running, 'ci')).map((version) => refusal(version, tenant.time.now)), [null, null])
  t.equal((await tenant.usableBySecret('ci-key'))?.revision, 1)
  await tenant.pass(running, HOUR)
  t.same((await tenant.versions(running, 'ci')).map(({ revision, state }) => [revision, state]), [[1, 'active'], [0, 'deleted']])
  t.same(await tenant.conditions(running, 'ApiKey', 'ci'), ALL_GOOD)
  await tenant.pass(running, 3 * HOUR)
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False KeyExpired' })
  t.equal(await tenant.secret('ci-key'), null)
})

t.test('the next controller does what came due while none was running', async (t) => {
  const tenant = await openTenant(t)
  const expirationTime = new Date(tenant.time.now + HOUR).toISOString()
  const declare = (rotationRevision: number) => tenant.declare('a.yaml', codingPlan('coder'), codingPlan('ending', { expirationTime }), ci({ rotationRevision }), apiKey('late', 'coder', { expirationTime }), apiKey('last', 'ending'))
  await declare(0)
  const first = await tenant.start()
  await declare(1)
  await first.settle()
  t.match(await tenant.conditions(first, 'ApiKey', 'ci'), { Ready: 'True RotationInProgress' })
  await first.app.close()
  tenant.time.now += HOUR
  const next = await tenant.start()
  await next.settle()
  t.same(await tenant.conditions(next, 'ApiKey', 'ci'), ALL_GOOD)
  t.match(await tenant.conditions(next, 'ApiKey', 'late'), { Ready: 'False KeyExpired' })
  t.match(await tenant.conditions(next, 'ApiKey', 'last'), { Ready: 'False PlanExpired' })
  t.match(await tenant.conditions(next, 'Plan', 'ending'), { Ready: 'False PlanExpired' })
})

t.test('a change of a key notifies every subscription that may have it cached', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), codingPlan('other'), ci())
  const running = await tenant.start()
  const seen = async () => Promise.all(['coder', 'other'].map(async (name) => (await tenant.store.subscription(`acme/${name}`))?.keysVersion))
  const before = await seen()
  await tenant.declare('a.yaml', codingPlan('coder'), codingPlan('other'), ci({ planRef: { name: 'other' } }))
  await running.settle()
  t.same(await seen(), before.map((version) => (version ?? 0) + 1))
  t.match(await tenant.versions(running, 'ci'), [{ subscription: 'acme/other', tell: [] }])
  t.match(await tenant.status(running, 'Plan', 'coder'), { activeKeys: 0 })
  t.match(await tenant.status(running, 'Plan', 'other'), { activeKeys: 1 })
})

t.test('the keys created first are admitted up to maxKeys; a deleted one makes room for the next', async (t) => {
  const tenant = await openTenant(t)
  const two = codingPlan('coder', { keyPolicy: { maxKeys: 2 } })
  const named = (name: string) => apiKey(name, 'coder', { secretName: `${name}-key` })
  await tenant.declare('a.yaml', two)
  const running = await tenant.start()
  for (const name of ['z', 'y', 'x']) {
    await tenant.declare(`${name}.yaml`, named(name))
    await running.settle()
  }
  const ready = async () => Promise.all(['z', 'y', 'x'].map(async (name) => (await tenant.conditions(running, 'ApiKey', name))['Ready']))
  t.same(await ready(), ['True Issued', 'True Issued', 'False PlanKeyLimitReached'])
  t.equal(await tenant.secret('x-key'), null)
  await tenant.withdraw('z.yaml')
  await running.settle()
  t.same((await ready()).slice(1), ['True Issued', 'True Issued'])
  await tenant.declare('a.yaml', codingPlan('coder', { keyPolicy: { maxKeys: 1 } }))
  await running.settle()
  t.same((await ready()).slice(1), ['True Issued', 'False PlanKeyLimitReached'])
  t.match(await tenant.versions(running, 'x'), [{ state: 'suspended' }], 'a key that is no longer admitted does not work')
  t.match(await tenant.status(running, 'Plan', 'coder'), { activeKeys: 1 })
})

t.test('a key that expires makes room at that moment, also without a Secret; a key that was never issued becomes KeyExpired', async (t) => {
  const tenant = await openTenant(t)
  const expiry = tenant.time.now + 150_000
  const expirationTime = new Date(expiry).toISOString()
  await tenant.declare('a.yaml', codingPlan('coder', { keyPolicy: { maxKeys: 1 } }), apiKey('a', 'coder', { expirationTime }))
  const running = await tenant.start()
  await running.settle()
  await tenant.declare('b.yaml', apiKey('b', 'coder'), apiKey('c', 'coder', { expirationTime }))
  await running.settle()
  const ready = async (name: string) => (await tenant.conditions(running, 'ApiKey', name))['Ready']
  t.same(await Promise.all(['a', 'b', 'c'].map(ready)), ['True Issued', 'False PlanKeyLimitReached', 'False PlanKeyLimitReached'])
  await tenant.pass(running, expiry - tenant.time.now)
  t.same(await Promise.all(['a', 'b', 'c'].map(ready)), ['False KeyExpired', 'True Issued', 'False KeyExpired'])
  t.match(await tenant.status(running, 'Plan', 'coder'), { activeKeys: 1 })
})

t.test('a deleted key is unusable and its Secret is removed, even if no controller ran when it was deleted', async (t) => {
  for (const isAway of [false, true]) {
    const tenant = await openTenant(t)
    await tenant.declare('a.yaml', codingPlan('coder'))
    await tenant.declare('b.yaml', ci())
    await tenant.declare('c.yaml', codingPlan('other'))
    let running = await tenant.start()
    const version = await tenant.usableBySecret('ci-key')
    if (isAway) await running.app.close()
    await tenant.withdraw('b.yaml')
    if (isAway) {
      await tenant.withdraw('a.yaml')
      await running.resources.close()
      running = await tenant.start()
    }
    await running.settle()
    t.match(await tenant.store.keyVersions(version!.keyId), [{ state: 'deleted', tell: [] }])
    t.equal(await tenant.secret('ci-key'), null)
    if (isAway) t.equal((await tenant.store.subscription('acme/coder'))?.plan, null)
    await tenant.declare('a.yaml', codingPlan('coder'))
    await tenant.declare('b.yaml', ci())
    await running.settle()
    t.same(await tenant.conditions(running, 'ApiKey', 'ci'), ALL_GOOD)
    t.not((await tenant.usableBySecret('ci-key'))?.keyId, version!.keyId, 'a new key of its name is another key')
  }
})

t.test('PLAN_LIMITS refuses a plan beyond its limits, with the limit in the message', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start({ limits: { limits: [{ namespaces: ['ac*'], coding: { maxWeeklyTokens: 5 } }] } })
  t.match(await tenant.status(running, 'Plan', 'coder'), { conditions: [{ status: 'False', reason: 'PlanNotAllowed', message: /coding\.weeklyWindow\.tokens may be at most 5/ }] })
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False PlanNotAllowed' })
  t.equal(inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now), 'PlanNotAllowed')
  t.equal(await tenant.secret('ci-key'), null)
})

t.test('the plans of a namespace share PLAN_LIMITS, whichever comes first, and one that was refused is served once there is room', async (t) => {
  const tenant = await openTenant(t)
  const names = ['a', 'b', 'c', 'd']
  const plans = names.map((name) => mediaPlan(name, {}, { allowance: '60' }))
  for (const [i, one] of plans.entries()) await tenant.declare(`${names[i]}.yaml`, one)
  const running = await tenant.start({ limits: { limits: [{ namespaces: ['*'], media: { maxAllowanceOfNamespace: '150' } }] } })
  await running.settle()
  const ready = async () => (await Promise.all(names.map(async (name) => ({ name, is: (await tenant.conditions(running, 'Plan', name))['Ready'] })))).filter(({ is }) => is === 'True PlanActive').map(({ name }) => name)
  const served = await ready()
  t.equal(served.length, 2)
  const refused = names.find((name) => !served.includes(name)) ?? ''
  t.match(await tenant.status(running, 'Plan', refused), { conditions: [{ status: 'False', reason: 'PlanNotAllowed', message: /media\.allowance may be at most 30\.0000: the plans of a namespace may grant 150\.0000 together/ }] })
  await tenant.withdraw(`${served[0]}.yaml`)
  await running.settle()
  t.same(await ready(), served.slice(1), 'the removed one counts until its period ends')
  await tenant.pass(running, 31 * 24 * HOUR)
  await running.settle()
  t.equal((await ready()).length, 2)
})

t.test('a store outage shows in the status, and its changes are applied afterwards', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  let isAway = false
  const running = await tenant.start({ fate: (verb) => (isAway && ['subscription', 'keyVersions', 'change', 'setKey'].includes(verb) ? 'away' : 'lives') })
  await running.settle()
  isAway = true
  await tenant.declare('a.yaml', codingPlan('coder', { state: 'Suspended' }), ci({ state: 'Suspended' }), apiKey('new', 'coder'))
  await running.settle()
  t.same(await tenant.conditions(running, 'ApiKey', 'ci'), { ...ALL_GOOD, Ready: 'False StoreUnavailable' })
  t.match(await tenant.conditions(running, 'ApiKey', 'new'), { Ready: 'Unknown StoreUnavailable', KeyActive: 'Unknown StoreUnavailable' })
  t.match(await tenant.conditions(running, 'Plan', 'coder'), { Ready: 'False StoreUnavailable' })
  isAway = false
  await tenant.pass(running, 60_000)
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False KeySuspended', PlanActive: 'False PlanSuspended' })
  t.match(await tenant.conditions(running, 'ApiKey', 'new'), { Ready: 'False PlanSuspended' })
  t.equal(await tenant.secret('ci-key'), null)
  t.ok((await running.metric('controller_runtime_reconcile_errors_total')).some(({ value }) => value > 0))
})

const SCENARIOS: Record<string, { before?: object[]; after: object[]; end: Record<string, string> | null }> = {
  'a key is issued': { after: [codingPlan('coder'), ci()], end: ALL_GOOD },
  'a key is rotated': { before: [codingPlan('coder'), ci()], after: [codingPlan('coder'), ci({ rotationRevision: 1 })], end: { Ready: 'True RotationInProgress' } },
  'a key is revoked': { before: [codingPlan('coder'), ci()], after: [codingPlan('coder'), ci({ state: 'Revoked' })], end: { Ready: 'False KeyRevoked' } },
  'a key moves': { before: [codingPlan('coder'), codingPlan('other'), ci()], after: [codingPlan('coder'), codingPlan('other'), ci({ planRef: { name: 'other' } })], end: ALL_GOOD },
  'a plan is suspended': { before: [codingPlan('coder'), ci()], after: [codingPlan('coder', { state: 'Suspended' }), ci()], end: { Ready: 'False PlanSuspended' } },
  'a key and its plan are deleted': { before: [codingPlan('coder'), ci()], after: [], end: null },
}

/** Runs a scenario in a process that crashes after its nth write, then in a second one to its end. Returns the number of writes. */
async function runScenario(t: Parameters<typeof openTenant>[0], name: string, dieAfter: number): Promise<{ tenant: Tenant; running: Running; writes: number }> {
  const { before, after } = SCENARIOS[name]!
  const tenant = await openTenant(t)
  let writes = -1
  const fate: Fate = (verb) => {
    if (writes < 0 || !['change', 'mintKey', 'setKey', 'told', 'putSecret', 'removeSecrets', 'setStatus'].includes(verb)) return 'lives'
    return ++writes === dieAfter ? 'dies' : 'lives'
  }
  if (before) await tenant.declare('a.yaml', ...before)
  else writes = 0
  if (!before) await tenant.declare('a.yaml', ...after)
  const mortal = await tenant.start({ fate })
  if (before) {
    await mortal.settle()
    writes = 0
    await tenant.declare('a.yaml', ...after)
  }
  await mortal.settle()
  await mortal.app.close()
  await mortal.resources.close()
  const running = await tenant.start()
  await running.settle()
  return { tenant, running, writes }
}

t.test('a scenario ends in the same state, whichever write is the last before a crash', async (t) => {
  for (const [name, { end }] of Object.entries(SCENARIOS)) {
    const { writes } = await runScenario(t, name, Infinity)
    t.ok(writes >= 2, `${name}: ${writes} writes`)
    for (let dieAfter = 1; dieAfter <= writes; dieAfter++) {
      const { tenant, running } = await runScenario(t, name, dieAfter)
      const why = `${name}, crashed after write ${dieAfter}`
      t.match(await tenant.conditions(running, 'ApiKey', 'ci'), end ?? {}, why)
      const alive = await tenant.store.keysAlive('', 100)
      t.same(alive.filter(({ tell }) => tell.length > 0), [], why)
      const live = alive.filter((version) => refusal(version, tenant.time.now) === null)
      const wanted = end?.['Ready'] === 'True RotationInProgress' ? 2 : name === 'a key is revoked' || end === null ? 0 : 1
      t.equal(live.length, wanted, `${why}: usable keys`)
      const held = await tenant.usableBySecret('ci-key')
      t.equal(held?.state ?? null, end?.['Ready']?.startsWith('True') ? 'active' : null, `${why}: the Secret`)
      if (end === null) t.equal((await tenant.store.subscription('acme/coder'))?.plan, null, why)
    }
  }
})

t.test('the metrics have the names of controller-runtime', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  t.match(await running.metric('controller_runtime_reconcile_total'), [{ labels: { controller: String, result: String }, value: Number }])
  for (const name of ['controller_runtime_reconcile_time_seconds', 'controller_runtime_active_workers', 'workqueue_depth', 'workqueue_adds_total', 'workqueue_queue_duration_seconds', 'workqueue_work_duration_seconds']) {
    t.ok((await running.metric(name)).length > 0, name)
  }
  await tenant.declare('b.yaml', apiKey('later', 'coder'))
  await running.settle()
  t.ok((await running.metric('tollgate_key_ready_seconds')).some(({ value }) => value === 1))
})

t.test('a controller that does not lead is ready, and reports no depth of queues that it does not work on', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start({ election: { lead: async () => {}, isLeading: () => false } })
  await running.settle()
  t.match(await Promise.all(running.app.checks.map((check) => check())), [{ name: 'resources', ok: true }, { name: 'controller', ok: true, detail: 'this process is not the leader' }])
  t.same((await running.metric('workqueue_depth')).map(({ value }) => value), [0, 0])
  t.ok((await running.metric('workqueue_adds_total')).some(({ value }) => value > 0), 'they are filled for a takeover')
  t.same(running.writes, [])
})

t.test('a start that is retried goes on when the leader changes in the meantime', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  let isLeading = false
  let changed: (isLeading: boolean) => void = () => {}
  let watches = 0
  const running = await tenant.start({
    election: { lead: async (listener) => void (changed = listener), isLeading: () => isLeading },
    fate: (verb) => (verb === 'watch' && watches++ === 0 ? 'away' : 'lives'),
  })
  isLeading = true
  changed(isLeading)
  await tenant.pass(running, 1_000)
  t.ok(await tenant.usableBySecret('ci-key'))
})

t.test('closing waits for the pass in progress and starts no other', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  await running.app.close()
  const { length } = running.writes
  await tenant.declare('a.yaml', codingPlan('coder', { state: 'Suspended' }), ci())
  for (let i = 0; i < 3; i++) await running.resources.sync()
  t.equal(running.writes.length, length)
})
