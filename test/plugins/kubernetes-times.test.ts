/** Transitions by time (overlap, expiry, start) on a real API server, under a clock that the test moves to the last millisecond before and to the time itself. */
import t, { type Test } from 'tap'
import { refusal } from '../../src/domain/api-keys.ts'
import { inactiveReason } from '../../src/domain/subscription/subscription.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { openTime, type MovedTime } from './movable-clock.ts'
import { openOperator, type Controller, type Operator } from './operator.ts'

const HOUR = 3_600_000
const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }
const ci = (spec: Record<string, unknown> = {}) => apiKey('ci', 'coder', { secretName: 'ci-key', ...spec })

type ClockFixture = {
  operator: Operator
  time: MovedTime
  /** The time in `ms`, as in a manifest, in whole seconds. */
  at(ms: number): string
  start(): Promise<Controller>
  secret(): Promise<Record<string, string> | null>
  /** The revisions of the key that gateways accept now. */
  working(): Promise<number[]>
}

async function openClockFixture(t: Test, kubeconfig: string): Promise<ClockFixture> {
  const operator = await openOperator(t, kubeconfig)
  const time = openTime(Math.floor(Date.now() / 1000) * 1000)
  return {
    operator,
    time,
    at: (ms) => new Date(time.clock() + ms).toISOString(),
    start: () => operator.start({}, undefined, { clock: time.clock, after: time.after }),
    secret: () => operator.secretEntries(operator.namespace('acme'), 'ci-key'),
    async working() {
      const { uid } = (await operator.object(operator.ref('ApiKey', 'ci'))).metadata
      return (await operator.store.keyVersions(uid)).filter((version) => refusal(version, time.clock()) === null).map(({ revision }) => revision)
    },
  }
}

/** Triggers a pass over the key and over the plan, and waits for both. */
async function awaitPass(operator: Operator, { registry }: Controller): Promise<void> {
  const passes = async (of: string) => [...(await registry.metrics()).matchAll(new RegExp(`^controller_runtime_reconcile_total\\{controller="${of}".*\\} (\\d+)`, 'gm'))].reduce((sum, [, count]) => sum + Number(count), 0)
  for (const [kind, of, plural, name] of [['Plan', 'plan', 'plans', 'coder'], ['ApiKey', 'apikey', 'apikeys', 'ci']] as const) {
    const before = await passes(of)
    const path = `/apis/tollgate.dev/v1alpha1/namespaces/${operator.namespace('acme')}/${plural}/${name}`
    const { status } = await operator.api.request('PATCH', path, { metadata: { annotations: { touched: `${before}` } } }, 'application/merge-patch+json')
    if (status !== 200) throw new Error(`the PATCH of the ${kind} returned ${status}`)
    await eventually(`a pass over the ${kind}`, async () => ((await passes(of)) > before ? true : null))
  }
}

const kubeconfig = await kubernetes(t)
if (kubeconfig !== null) {
  t.test('both keys of a rotation work to the last moment of their overlap, and only the new one from then on', async (t) => {
    const { operator, time, start, secret, working } = await openClockFixture(t, kubeconfig)
    const key = operator.ref('ApiKey', 'ci')
    await operator.declare(codingPlan('coder', { keyPolicy: { rotationOverlapSeconds: 7200 } }), ci())
    const controller = await start()
    await operator.becomes(key, ALL_GOOD)
    await operator.declare(ci({ rotationRevision: 1 }))
    await operator.becomes(key, { Ready: 'True RotationInProgress', KeyActive: 'True RotationInProgress' })
    const rotated = await secret()
    time.pass(2 * HOUR - 1)
    await awaitPass(operator, controller)
    await operator.becomes(key, { Ready: 'True RotationInProgress' })
    t.same(await working(), [1, 0])
    time.pass(1)
    t.same(await working(), [1], 'gateways do not need the controller for it')
    await operator.becomes(key, ALL_GOOD)
    const { uid } = (await operator.object(key)).metadata
    t.same((await operator.store.keyVersions(uid)).map(({ revision, state }) => [revision, state]), [[1, 'active'], [0, 'deleted']])
    t.same(await secret(), rotated)
  })

  for (const secretName of ['ci-key', undefined]) {
    t.test(`a key ${secretName ? 'with' : 'without'} a Secret expires at its time, makes room for the next one, and is the same key under a later time`, async (t) => {
      const { operator, time, at, start, secret, working } = await openClockFixture(t, kubeconfig)
      const [key, next] = [operator.ref('ApiKey', 'ci'), operator.ref('ApiKey', 'next')]
      const expiring = (expirationTime: string) => ci({ expirationTime, ...(secretName === undefined && { secretName: undefined }) })
      const expirationTime = at(5 * HOUR)
      await operator.declare(codingPlan('coder', { keyPolicy: { maxKeys: 1 } }), expiring(expirationTime))
      const controller = await start()
      await operator.becomes(key, { Ready: 'True Issued' })
      const entries = await secret()
      t.equal(entries === null, secretName === undefined)
      await operator.declare(apiKey('next', 'coder'))
      await operator.becomes(next, { Ready: 'False PlanKeyLimitReached' })
      time.pass(5 * HOUR - 1)
      await awaitPass(operator, controller)
      await operator.becomes(key, { Ready: 'True Issued' })
      await operator.becomes(next, { Ready: 'False PlanKeyLimitReached' })
      t.same(await working(), [0])
      time.pass(1)
      t.same(await working(), [], 'gateways do not need the controller for it')
      await operator.becomes(key, { Ready: 'False KeyExpired', KeyActive: 'False KeyExpired' })
      t.equal(await secret(), null)
      await operator.becomes(next, { Ready: 'True Issued' })

      await operator.withdraw(next)
      await operator.declare(expiring(at(HOUR)))
      await operator.becomes(key, { Ready: 'True Issued' })
      t.same([await secret(), await working()], [entries, [0]])
    })
  }

  t.test('a plan is active from its start to its end; its key is issued at the start and stays admitted after the end', async (t) => {
    const { operator, time, at, start, secret, working } = await openClockFixture(t, kubeconfig)
    const [key, plan] = [operator.ref('ApiKey', 'ci'), operator.ref('Plan', 'coder')]
    const [startTime, expirationTime] = [at(HOUR), at(3 * HOUR)]
    const refused = async () => inactiveReason(await operator.store.subscription(`${operator.namespace('acme')}/coder`), time.clock())
    await operator.declare(codingPlan('coder', { startTime, expirationTime }), ci())
    const controller = await start()
    const isNotActiveYet = async () => {
      await operator.becomes(plan, { Ready: 'False PlanNotActive' })
      await operator.becomes(key, { Ready: 'False PlanNotActive', PlanActive: 'False PlanNotActive' })
      t.same([await refused(), await secret(), await working()], ['PlanNotActive', null, []])
    }
    await isNotActiveYet()
    time.pass(HOUR - 1)
    await awaitPass(operator, controller)
    await isNotActiveYet()
    time.pass(1)
    t.equal(await refused(), null)
    await operator.becomes(plan, { Ready: 'True PlanActive' })
    await operator.becomes(key, ALL_GOOD)
    const entries = await secret()
    time.pass(2 * HOUR - 1)
    await awaitPass(operator, controller)
    await operator.becomes(plan, { Ready: 'True PlanActive' })
    await operator.becomes(key, ALL_GOOD)
    t.equal(await refused(), null)
    time.pass(1)
    t.equal(await refused(), 'PlanExpired', 'gateways do not need the controller for it')
    await operator.becomes(plan, { Ready: 'False PlanExpired' })
    await operator.becomes(key, { Ready: 'False PlanExpired', KeyActive: 'True Issued' })
    t.equal(await secret(), null)
    await operator.declare(codingPlan('coder', { startTime, expirationTime: at(HOUR) }), ci())
    await operator.becomes(key, ALL_GOOD)
    t.same([await secret(), await working()], [entries, [0]], 'the same key works again')
  })

  t.test('the next controller does what came due while none was running', async (t) => {
    const { operator, time, at, start, secret, working } = await openClockFixture(t, kubeconfig)
    const key = operator.ref('ApiKey', 'ci')
    await operator.declare(codingPlan('coder'), codingPlan('ending', { expirationTime: at(HOUR) }), ci(), apiKey('late', 'coder', { expirationTime: at(HOUR) }), apiKey('last', 'ending'))
    const first = await start()
    for (const name of ['ci', 'late', 'last']) await operator.becomes(operator.ref('ApiKey', name), { Ready: 'True Issued' })
    await operator.declare(ci({ rotationRevision: 1 }))
    await operator.becomes(key, { Ready: 'True RotationInProgress' })
    const rotated = await secret()
    await first.close()
    time.pass(HOUR)
    t.same(await working(), [1])
    await operator.becomes(key, { Ready: 'True RotationInProgress' })
    await start()
    await operator.becomes(key, ALL_GOOD)
    await operator.becomes(operator.ref('ApiKey', 'late'), { Ready: 'False KeyExpired' })
    await operator.becomes(operator.ref('ApiKey', 'last'), { Ready: 'False PlanExpired' })
    await operator.becomes(operator.ref('Plan', 'ending'), { Ready: 'False PlanExpired' })
    t.same(await secret(), rotated)
  })
}
