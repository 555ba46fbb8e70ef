/** What a manifest says beside the key itself: the template of its Secret, and the annotation that pauses its reconciliation. */
import t from 'tap'
import { refusal } from '../../src/domain/api-keys.ts'
import { inactiveReason } from '../../src/domain/subscription/subscription.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { openTenant } from './tenant.ts'

const HOUR = 3_600_000
const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }

const ci = (spec: Record<string, unknown> = {}) => apiKey('ci', 'coder', { secretName: 'ci-key', ...spec })

t.test('a change of the template alone reaches the Secret', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  const key = await tenant.secret('ci-key')
  for (const data of [{ OPENAI_API_KEY: '$(api-key)' }, { ID: '$(key-id)' }, {}]) {
    await tenant.declare('a.yaml', codingPlan('coder'), ci({ secretTemplate: { data } }))
    await running.settle()
    const entries = Object.entries(data).map(([name, text]) => [name, text === '$(api-key)' ? key?.['api-key'] : key?.['key-id']])
    t.same(await tenant.secret('ci-key'), { ...key, ...Object.fromEntries(entries) })
    t.same(await tenant.conditions(running, 'ApiKey', 'ci'), ALL_GOOD)
  }
})

const paused = (manifest: object) => ({ ...manifest, metadata: { ...(manifest as { metadata: object }).metadata, annotations: { 'tollgate.dev/paused': 'true' } } })

t.test('a paused Plan and a paused ApiKey stay as they are, and follow once they are not paused', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const running = await tenant.start()
  await running.settle()
  const key = await tenant.secret('ci-key')
  await tenant.declare('a.yaml', paused(codingPlan('coder', { state: 'Suspended' })), paused(ci({ rotationRevision: 1 })), paused(apiKey('new', 'coder', { secretName: 'new-key' })), apiKey('late', 'coder', { secretName: 'late-key' }))
  await running.settle()
  t.equal(inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now), null)
  t.same([await tenant.secret('ci-key'), await tenant.secret('new-key')], [key, null])
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { ...ALL_GOOD, Paused: 'True Paused' })
  t.match(await tenant.status(running, 'ApiKey', 'ci'), { observedGeneration: 1 }, 'its change was not observed')
  t.match(await tenant.status(running, 'ApiKey', 'new'), { observedGeneration: -1, conditions: [{ type: 'Ready', status: 'False', reason: 'Paused', observedGeneration: 0 }] })
  t.match(await tenant.conditions(running, 'Plan', 'coder'), { Ready: 'True PlanActive', Paused: 'True Paused' })
  t.same(await tenant.conditions(running, 'ApiKey', 'late'), ALL_GOOD, 'a paused plan has its keys issued')

  await tenant.declare('a.yaml', codingPlan('coder'), ci({ rotationRevision: 1 }))
  await running.settle()
  t.not((await tenant.secret('ci-key'))?.['api-key'], key?.['api-key'])
  t.notOk('Paused' in (await tenant.conditions(running, 'ApiKey', 'ci')), 'the condition goes with the annotation')

  await tenant.declare('a.yaml', paused(codingPlan('never')), apiKey('other', 'never'))
  await running.settle()
  t.match(await tenant.conditions(running, 'ApiKey', 'other'), { Ready: 'False Paused', PlanActive: 'False Paused' }, 'a paused plan that never was active')
})

t.test('a paused Plan does not escape PLAN_LIMITS that are lowered later, whatever its edit waits to be', async (t) => {
  const tenant = await openTenant(t)
  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  const before = await tenant.start()
  await before.settle()
  await tenant.declare('a.yaml', paused(codingPlan('coder', { requestsPerMinute: 1 })), ci())
  await before.app.close()
  const running = await tenant.start({ limits: { limits: [{ namespaces: ['*'], requestsPerMinute: 5 }] } })
  await running.settle()
  t.match(await tenant.conditions(running, 'Plan', 'coder'), { Ready: 'False PlanNotAllowed', Paused: 'True Paused' })
  t.equal(inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now), 'PlanNotAllowed')
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False PlanNotAllowed' })
  t.equal(await tenant.secret('ci-key'), null)
})

t.test('a paused ApiKey is suspended, revoked and moved, expires and goes, and is not resumed', async (t) => {
  const tenant = await openTenant(t)
  const end = new Date(tenant.time.now + HOUR).toISOString()
  const plan = codingPlan('coder', { keyPolicy: { maxKeys: 1 } })
  await tenant.declare('a.yaml', plan, ci())
  const running = await tenant.start()
  await running.settle()
  const key = await tenant.secret('ci-key')
  const refused = async () => refusal((await tenant.versions(running, 'ci'))[0]!, tenant.time.now)
  for (const manifest of [paused(ci({ state: 'Suspended' })), paused(ci())]) {
    await tenant.declare('a.yaml', plan, manifest)
    await running.settle()
    t.same([await refused(), await tenant.secret('ci-key')], ['key_suspended', null])
    t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False KeySuspended', KeyActive: 'False KeySuspended', Paused: 'True Paused' })
  }
  await tenant.declare('a.yaml', plan, ci())
  await running.settle()
  t.same([await refused(), await tenant.secret('ci-key')], [null, key])

  await tenant.declare('a.yaml', plan, codingPlan('other'), paused(apiKey('ci', 'other', { secretName: 'ci-key' })), apiKey('next', 'coder'))
  await running.settle()
  t.same((await tenant.versions(running, 'ci')).map(({ subscription }) => subscription), ['acme/other'], 'it does not work beside the next key of a plan for one')
  t.match(await tenant.conditions(running, 'ApiKey', 'next'), { Ready: 'True Issued' })

  await tenant.declare('a.yaml', codingPlan('other'), paused(apiKey('ci', 'other', { secretName: 'ci-key', expirationTime: end })))
  await running.settle()
  await tenant.pass(running, HOUR)
  t.same([await refused(), await tenant.secret('ci-key')], ['invalid_api_key', null], 'times take effect')

  await tenant.declare('a.yaml', codingPlan('other'), paused(apiKey('ci', 'other', { secretName: 'ci-key', state: 'Revoked' })))
  await running.settle()
  t.same((await tenant.versions(running, 'ci')).map(({ state }) => state), ['revoked'])
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { Ready: 'False KeyRevoked', Paused: 'True Paused' })

  await tenant.declare('a.yaml', codingPlan('coder'), ci())
  await running.settle()
  await tenant.declare('a.yaml', codingPlan('coder'), paused(ci()))
  await running.settle()
  await tenant.declare('a.yaml', codingPlan('coder'))
  await running.settle()
  t.equal(await tenant.secret('ci-key'), null, 'what is deleted goes')
})
