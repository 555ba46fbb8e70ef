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

t.test('a paused Plan and a paused ApiKey stay as they are, expire and go, and follow once they are not paused', async (t) => {
  const tenant = await openTenant(t)
  const paused = (manifest: object) => ({ ...manifest, metadata: { ...(manifest as { metadata: object }).metadata, annotations: { 'tollgate.dev/paused': 'true' } } })
  const end = new Date(tenant.time.now + HOUR).toISOString()
  await tenant.declare('a.yaml', codingPlan('coder'), ci({ expirationTime: end }))
  const running = await tenant.start()
  await running.settle()
  const key = await tenant.secret('ci-key')
  const active = async () => refusal((await tenant.versions(running, 'ci'))[0]!, tenant.time.now)
  await tenant.declare('a.yaml', paused(codingPlan('coder', { state: 'Suspended' })), paused(ci({ expirationTime: end, state: 'Suspended' })), paused(apiKey('new', 'coder', { secretName: 'new-key' })))
  await running.settle()
  t.same([await active(), inactiveReason(await tenant.store.subscription('acme/coder'), tenant.time.now)], [null, null])
  t.same([await tenant.secret('ci-key'), await tenant.secret('new-key')], [key, null])
  t.match(await tenant.conditions(running, 'ApiKey', 'ci'), { ...ALL_GOOD, Paused: 'True Paused' })
  t.match(await tenant.status(running, 'ApiKey', 'ci'), { observedGeneration: 1 }, 'its change was not observed')
  t.match(await tenant.status(running, 'ApiKey', 'new'), { observedGeneration: -1, conditions: [{ type: 'Paused' }] })
  t.match(await tenant.conditions(running, 'Plan', 'coder'), { Ready: 'True PlanActive', Paused: 'True Paused' })

  await tenant.declare('a.yaml', codingPlan('coder'), ci({ expirationTime: end, state: 'Suspended' }))
  await running.settle()
  t.equal(await active(), 'key_suspended')
  t.notOk('Paused' in (await tenant.conditions(running, 'ApiKey', 'ci')), 'the condition goes with the annotation')

  await tenant.declare('a.yaml', codingPlan('coder'), ci({ expirationTime: end }))
  await running.settle()
  await tenant.declare('a.yaml', codingPlan('coder'), paused(ci({ expirationTime: end })))
  await running.settle()
  tenant.time.now += HOUR
  t.equal(await active(), 'invalid_api_key', 'times take effect')
  await tenant.declare('a.yaml', codingPlan('coder'))
  await running.settle()
  t.equal(await tenant.secret('ci-key'), null, 'what is deleted goes')
})
