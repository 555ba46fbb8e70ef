/** What is decided about Plans and ApiKeys, as tables over plain data. */
import t from 'tap'
import { refusal } from '../../src/keys.ts'
import { admittedKeys, isAdmitted, keyUnreachable, reconcileGoneKey, reconcileKey } from '../../src/reconcile/key.ts'
import { planUnreachable, reconcilePlan, type GatheredPlan } from '../../src/reconcile/plan.ts'
import type { PlanResource } from '../../src/resources/resources.ts'
import { applied, applyTo, conditions, HOUR, key, plan, secretOf, T0, version, world } from './reconcile-world.ts'

const iso = (ms: number) => new Date(ms).toISOString()
const ALL_GOOD = { Ready: 'True Issued', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'True Issued' }
const ISSUE = ['mint 0', 'putSecret key-ci-0', 'set key-ci-0 state=active']

function issued(facts: Parameters<typeof world>[0] = {}) {
  const self = world(facts)
  self.settle()
  return self
}

/** The plan changes, and is applied to its record. */
function edit(self: ReturnType<typeof world>, spec: Partial<PlanResource['spec']>): void {
  const { metadata } = self.facts.plan!
  self.facts.plan = plan(metadata.name, spec, { generation: metadata.generation + 1 })
  self.facts.record = applied(self.facts.plan, self.facts.record, null, self.now)
}

function respec(self: ReturnType<typeof world>, spec: Parameters<typeof key>[1]): void {
  const { metadata } = self.facts.key
  self.facts.key = key(metadata.name, spec, { generation: metadata.generation + 1 })
}

t.test('a key is issued as pending, written to its Secret, and usable only then', async (t) => {
  const self = world()
  const { done, conditions: seen } = self.settle()
  t.same(done, ISSUE)
  t.same(seen, ALL_GOOD)
  t.match(self.facts.status, { observedGeneration: 1, keyID: 'key-ci-0', keyPrefix: 'svc_live_abcdef', rotationRevision: 0, issuedTime: iso(T0), secretRef: { name: 'ci-key' } })
  for (const condition of self.facts.status?.conditions ?? []) t.match(condition, { observedGeneration: 1, lastTransitionTime: iso(T0) })
  t.same(self.told, [], 'nobody can remember a key that was never usable')
  t.same(self.settle().done, [], 'and then nothing is left to do')
})

t.test('a key without a Secret is usable at once', async (t) => {
  const { secretName: _, ...spec } = key('ci').spec
  const self = world({ key: { ...key('ci'), spec } })
  t.same(self.settle(), { done: ['mint 0', 'set key-ci-0 state=active'], conditions: { ...ALL_GOOD, SecretSynced: 'True NoSecretRequested' } })
})

t.test('a crash between any two steps leaves what the next pass ends the same way', async (t) => {
  const stories: Record<string, () => ReturnType<typeof world>> = {
    issue: () => world(),
    rotate: () => {
      const self = issued()
      respec(self, { rotationRevision: 1 })
      return self
    },
    revoke: () => {
      const self = issued()
      respec(self, { state: 'Revoked' })
      return self
    },
    move: () => {
      const self = issued()
      respec(self, { planRef: { name: 'other' } })
      self.facts.plan = plan('other')
      self.facts.record = applied(self.facts.plan)
      return self
    },
    suspend: () => {
      const self = issued()
      edit(self, { state: 'Suspended' })
      return self
    },
  }
  for (const [story, begin] of Object.entries(stories)) {
    const whole = begin()
    const { done } = whole.settle()
    for (let gap = 0; gap <= done.length; gap++) {
      const crashed = begin()
      crashed.settle(gap)
      const rest = crashed.settle()
      t.same([...done.slice(0, gap), ...rest.done], done, `${story}, crashed after ${gap} steps`)
      t.same(crashed.facts, whole.facts)
    }
  }
})

t.test('the Secret exists exactly while the key and its plan are active, whatever the reason', async (t) => {
  const future = { startTime: iso(T0 + HOUR) }
  const past = { expirationTime: iso(T0) }
  const table: [string, (self: ReturnType<typeof world>) => void, Record<string, string>][] = [
    ['the plan is suspended', (self) => edit(self, { state: 'Suspended' }), { Ready: 'False PlanSuspended', PlanActive: 'False PlanSuspended', KeyActive: 'True Issued', SecretSynced: 'False PlanSuspended' }],
    ['the plan is retired', (self) => edit(self, { state: 'Retired' }), { Ready: 'False PlanRetired', PlanActive: 'False PlanRetired', KeyActive: 'True Issued', SecretSynced: 'False PlanRetired' }],
    ['the plan starts later', (self) => edit(self, future), { Ready: 'False PlanNotActive', PlanActive: 'False PlanNotActive', KeyActive: 'True Issued', SecretSynced: 'False PlanNotActive' }],
    ['the plan has expired', (self) => edit(self, past), { Ready: 'False PlanExpired', PlanActive: 'False PlanExpired', KeyActive: 'True Issued', SecretSynced: 'False PlanExpired' }],
    ['the plan is gone', (self) => Object.assign(self.facts, { plan: null }), { Ready: 'False PlanNotFound', PlanActive: 'False PlanNotFound', KeyActive: 'True Issued', SecretSynced: 'False PlanNotFound' }],
    ['the key is suspended', (self) => respec(self, { state: 'Suspended' }), { Ready: 'False KeySuspended', PlanActive: 'True PlanActive', KeyActive: 'False KeySuspended', SecretSynced: 'False KeySuspended' }],
    ['the key has expired', (self) => respec(self, past), { Ready: 'False KeyExpired', PlanActive: 'True PlanActive', KeyActive: 'False KeyExpired', SecretSynced: 'False KeyExpired' }],
    ['the key is beyond maxKeys', (self) => Object.assign(self.facts, { isAdmitted: false }), { Ready: 'False PlanKeyLimitReached', PlanActive: 'True PlanActive', KeyActive: 'False PlanKeyLimitReached', SecretSynced: 'False PlanKeyLimitReached' }],
    ['the key has a limit in the wrong unit', (self) => respec(self, { limit: { amountPerPeriod: '1' } }), { Ready: 'False LimitNotApplicable', PlanActive: 'True PlanActive', KeyActive: 'False LimitNotApplicable', SecretSynced: 'False LimitNotApplicable' }],
  ]
  for (const [why, happen, expected] of table) {
    const self = issued()
    happen(self)
    const { done, conditions: seen } = self.settle()
    t.equal(done.at(-1), 'removeSecrets', why)
    t.same(seen, expected, why)
    t.notOk(self.facts.status?.secretRef, why)
    const never = world()
    happen(never)
    t.same(never.settle().done, [], `${why}: nothing is issued before it may be used`)
    t.match(conditions(never.facts.status), { Ready: expected['Ready'], KeyActive: /^False/ })
    // Back to how it was: the same key, in the same Secret.
    Object.assign(self.facts, { key: key('ci'), isAdmitted: true })
    if (self.facts.plan?.spec.state !== 'Retired') {
      self.facts.plan = plan('coder', {}, { generation: 9 })
      self.facts.record = applied(self.facts.plan, self.facts.record, null, self.now)
      t.same(self.settle().conditions, ALL_GOOD, `${why}, and then no longer`)
      t.same(self.facts.versions.map(({ id, state }) => `${id} ${state}`), ['key-ci-0 active'])
      t.same(self.facts.secret, secretOf(self.facts.versions[0]!))
    }
  }
})

t.test('suspending a key is told to its subscription before its Secret goes; a plan needs no telling', async (t) => {
  const self = issued()
  respec(self, { state: 'Suspended' })
  t.same(self.settle().done, ['set key-ci-0 state=suspended', 'tell acme/coder', 'removeSecrets'])
  respec(self, { state: 'Active' })
  t.same(self.settle().done, ['set key-ci-0 state=active', 'putSecret key-ci-0'])
  edit(self, { state: 'Suspended' })
  t.same(self.settle().done, ['removeSecrets'])
})

t.test('a key that waits for its plan is issued when the plan comes', async (t) => {
  const self = world({ plan: null, record: null })
  t.same(self.settle(), { done: [], conditions: { Ready: 'False PlanNotFound', PlanActive: 'False PlanNotFound', KeyActive: 'False PlanNotFound', SecretSynced: 'False PlanNotFound' } })
  self.facts.plan = plan('coder')
  t.same(self.settle().done, ['waiting'], 'the plan is declared and not applied yet')
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle(), { done: ISSUE, conditions: ALL_GOOD })
})

t.test('what is over does not wait for a plan that is not applied yet', async (t) => {
  const self = issued()
  self.facts.plan = plan('coder', {}, { generation: 5 })
  respec(self, { state: 'Revoked' })
  t.same(self.settle().done, ['set key-ci-0 state=revoked', 'tell acme/coder', 'waiting'])
})

t.test('a rotation issues a new version; the old one works on for the overlap and is then gone', async (t) => {
  const self = issued()
  self.now = T0 + HOUR
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().done, ['mint 1', 'putSecret key-ci-1', 'set key-ci-1 state=active', 'set key-ci-0 overlapUntil=T0+7200s', 'tell acme/coder'])
  t.match(self.facts.status, { keyID: 'key-ci-1', rotationRevision: 1, issuedTime: iso(T0 + HOUR) })
  t.same(conditions(self.facts.status), { Ready: 'True RotationInProgress', PlanActive: 'True PlanActive', KeyActive: 'True RotationInProgress', SecretSynced: 'True Issued' })
  t.equal(self.requeueAt, T0 + 2 * HOUR)
  t.equal(self.facts.status?.conditions[0]?.lastTransitionTime, iso(T0), 'it was ready all the time')
  self.now = T0 + 2 * HOUR
  t.same(self.settle(), { done: ['set key-ci-0 state=deleted'], conditions: ALL_GOOD })
  t.same(self.settle().done, [])
})

const livesOf = (self: ReturnType<typeof world>) => self.facts.versions.map(({ id, state, overlapUntil }) => [id, state, overlapUntil])

t.test('rotating twice within an overlap leaves the former version its time, and ends what was before it', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  self.now = T0 + HOUR / 2
  respec(self, { rotationRevision: 5 })
  t.same(self.settle().done, [
    'mint 5', 'putSecret key-ci-5', 'set key-ci-5 state=active', 'set key-ci-1 overlapUntil=T0+5400s', 'tell acme/coder', 'set key-ci-0 state=deleted overlapUntil=T0+1800s', 'tell acme/coder',
  ])
  t.same(livesOf(self), [
    ['key-ci-5', 'active', null],
    ['key-ci-1', 'active', T0 + 1.5 * HOUR],
    ['key-ci-0', 'deleted', T0 + HOUR / 2],
  ])
  t.equal(self.requeueAt, T0 + 1.5 * HOUR)
})

t.test('without an overlap a rotation leaves only the newest version, also while an earlier one still overlapped', async (t) => {
  // By the plan alone, before the rotation; and in one go, so that the plan was never seen alone.
  for (const isPlanFirst of [true, false]) {
    const self = issued()
    respec(self, { rotationRevision: 1 })
    self.settle()
    self.now = T0 + 1
    edit(self, { keyPolicy: { maxKeys: 2, rotationOverlapSeconds: 0 } })
    if (isPlanFirst) self.settle()
    for (const rotationRevision of [2, 3]) {
      respec(self, { rotationRevision })
      self.settle()
      t.same(self.facts.versions.filter((version) => refusal(version, self.now) === null).map(({ id }) => id), [`key-ci-${rotationRevision}`])
    }
    t.same(conditions(self.facts.status), ALL_GOOD)
  }
})

t.test('a plan that allows a shorter overlap shortens one that runs; a longer one, or a plan that is gone, changes nothing of it', async (t) => {
  const former = (self: ReturnType<typeof world>) => self.facts.versions.find(({ id }) => id === 'key-ci-0')
  const allow = (self: ReturnType<typeof world>, rotationOverlapSeconds: number) => edit(self, { keyPolicy: { maxKeys: 2, rotationOverlapSeconds } })
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  allow(self, 60)
  t.same(self.settle().done, ['set key-ci-0 overlapUntil=T0+60s', 'tell acme/coder'])
  allow(self, 7200)
  t.same(self.settle().done, [])
  const { plan: there } = self.facts
  Object.assign(self.facts, { plan: null, record: null })
  self.settle()
  t.match(former(self), { state: 'active', overlapUntil: T0 + 60_000 })
  self.facts.plan = there
  self.facts.record = applied(there!)
  allow(self, 0)
  self.settle()
  t.match(former(self), { state: 'deleted', overlapUntil: T0 })
})

t.test('what was never in use is not the former version', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle(1)
  respec(self, { rotationRevision: 2 })
  self.settle()
  self.settle()
  t.same(livesOf(self), [
    ['key-ci-2', 'active', null],
    ['key-ci-1', 'deleted', null],
    ['key-ci-0', 'active', T0 + HOUR],
  ])
})

t.test('without an overlap the old version ends with the rotation', async (t) => {
  const self = issued({ plan: plan('coder', { keyPolicy: { maxKeys: 1, rotationOverlapSeconds: 0 } }) })
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().done, ['mint 1', 'putSecret key-ci-1', 'set key-ci-1 state=active', 'set key-ci-0 state=deleted overlapUntil=T0+0s', 'tell acme/coder'])
  t.same(self.facts.versions.map(({ state }) => state), ['active', 'deleted'])
})

t.test('a rotation while the plan or the key is not active waits until both are, and then counts its overlap', async (t) => {
  for (const [stop, go] of [
    [(self: ReturnType<typeof world>) => edit(self, { state: 'Suspended' }), (self: ReturnType<typeof world>) => edit(self, { state: 'Active' })],
    [(self: ReturnType<typeof world>) => respec(self, { state: 'Suspended', rotationRevision: 1 }), () => {}],
  ] as const) {
    const self = issued()
    stop(self)
    self.settle()
    respec(self, { rotationRevision: 1, state: self.facts.key.spec.state })
    self.settle()
    t.same(self.facts.versions.map(({ id }) => id), ['key-ci-0'])
    t.match(self.facts.status, { keyID: 'key-ci-0' })
    self.now = T0 + 10 * HOUR
    go(self)
    respec(self, { rotationRevision: 1 })
    self.settle()
    t.same(self.facts.versions.map(({ id, state, overlapUntil }) => [id, state, overlapUntil]), [
      ['key-ci-1', 'active', null],
      ['key-ci-0', 'active', T0 + 11 * HOUR],
    ])
    t.equal(self.facts.secret?.keyId, 'key-ci-1')
  }
})

t.test('a rotation that was overtaken before anybody could use it leaves no live secret', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle(1)
  t.equal(self.facts.versions[0]?.state, 'pending')
  respec(self, { rotationRevision: 2 })
  self.settle()
  t.same(self.facts.versions.map(({ id, state }) => `${id} ${state}`), ['key-ci-2 active', 'key-ci-1 deleted', 'key-ci-0 active'])
})

t.test('a revoked key is over for good, also under an older manifest', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  self.told.length = 0
  respec(self, { rotationRevision: 1, state: 'Revoked' })
  const { done, conditions: seen } = self.settle()
  t.same(done, ['set key-ci-1 state=revoked', 'tell acme/coder', 'set key-ci-0 state=revoked', 'tell acme/coder', 'removeSecrets'])
  t.same(seen, { Ready: 'False KeyRevoked', PlanActive: 'True PlanActive', KeyActive: 'False KeyRevoked', SecretSynced: 'False KeyRevoked' })
  respec(self, { rotationRevision: 1, state: 'Active' })
  t.same(self.settle(), { done: [], conditions: seen })
})

t.test('a key expires by the time in its record, and may be given a later one', async (t) => {
  const self = issued({ key: key('ci', { expirationTime: iso(T0 + HOUR) }) })
  t.equal(self.requeueAt, T0 + HOUR)
  self.now = T0 + HOUR
  t.same(self.settle().done, ['removeSecrets'])
  t.equal(self.facts.versions[0]?.state, 'active')
  respec(self, { expirationTime: iso(T0 + 3 * HOUR) })
  t.same(self.settle(), { done: ['set key-ci-0 expiresAt=T0+10800s', 'tell acme/coder', 'putSecret key-ci-0'], conditions: ALL_GOOD })
})

t.test('a key that moves to another plan of its product tells both', async (t) => {
  const self = issued()
  respec(self, { planRef: { name: 'other' }, limit: { weeklyTokens: 5 } })
  self.facts.plan = plan('other')
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle(), { done: ['set key-ci-0 subscription=acme/other cap=5', 'tell acme/coder acme/other'], conditions: ALL_GOOD })
  t.equal(self.facts.versions[0]?.cap, 5)
})

t.test('a key that moves to a plan that is not there serves nothing meanwhile', async (t) => {
  const self = issued()
  respec(self, { planRef: { name: 'other' } })
  Object.assign(self.facts, { plan: null, record: null })
  t.same(self.settle().done, ['set key-ci-0 subscription=acme/other', 'tell acme/coder acme/other', 'removeSecrets'])
  self.facts.plan = plan('other')
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle(), { done: ['putSecret key-ci-0'], conditions: ALL_GOOD })
})

t.test('a key cannot move to a plan of another product; from Room to Media it can', async (t) => {
  const self = issued({ plan: plan('room', { product: 'Room' }), key: key('ci', { planRef: { name: 'room' } }) })
  respec(self, { planRef: { name: 'coder' } })
  self.facts.plan = plan('coder')
  self.facts.record = applied(self.facts.plan)
  const { done, conditions: seen } = self.settle()
  t.same(done, ['set key-ci-0 state=suspended', 'tell acme/room', 'removeSecrets'])
  t.match(seen, { Ready: 'False ProductChanged', KeyActive: 'False ProductChanged' })
  respec(self, { planRef: { name: 'studio' } })
  self.facts.plan = plan('studio', { product: 'Media' })
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle().conditions, ALL_GOOD)
  t.match(self.facts.versions[0], { subscription: 'acme/studio', product: 'Media', state: 'active' })
})

t.test('what was to be told is told first', async (t) => {
  const ci = key('ci')
  const self = world({ key: ci, versions: [version(ci, 0, { tell: ['acme/old', 'acme/coder'] })] })
  t.same(self.settle().done, ['tell acme/old acme/coder', 'putSecret key-ci-0'])
  const gone = reconcileGoneKey([version(ci, 0, { state: 'deleted', tell: ['acme/old'] })], true)
  t.match(gone, { step: 'tell' })
})

t.test('a Secret of somebody else is left alone: a new key waits for it, a key in use stays in use', async (t) => {
  const self = world()
  self.isForeign = true
  t.same(self.settle(), {
    done: ['mint 0', 'putSecret key-ci-0'],
    conditions: { Ready: 'False SecretConflict', PlanActive: 'True PlanActive', KeyActive: 'False SecretConflict', SecretSynced: 'False SecretConflict' },
  })
  t.equal(self.facts.versions[0]?.state, 'pending')
  t.ok(self.requeueAt, 'it may go without a word')
  self.isForeign = false
  t.same(self.settle(), { done: ['putSecret key-ci-0', 'set key-ci-0 state=active'], conditions: ALL_GOOD })

  self.isForeign = true
  self.facts.secret = null
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().conditions, { Ready: 'False SecretConflict', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'False SecretConflict' })
  t.same(self.facts.versions.map(({ state, overlapUntil }) => [state, overlapUntil]), [['pending', null], ['active', null]])
  t.match(self.facts.status, { keyID: 'key-ci-0', rotationRevision: 0 })
})

t.test('a Secret that was edited, emptied or removed is put right', async (t) => {
  for (const secret of [null, { keyId: 'key-ci-0', hash: 'forged', isProven: true }, { keyId: '', hash: 'hash-key-ci-0', isProven: true }, { keyId: 'key-ci-0', hash: 'hash-key-ci-0', isProven: false }]) {
    const self = issued()
    self.facts.secret = secret
    t.same(self.settle(), { done: ['putSecret key-ci-0'], conditions: ALL_GOOD })
  }
})

t.test('a store restored from an older backup takes a proven key back, and no other', async (t) => {
  const ci = key('ci', { rotationRevision: 3 })
  const lost = world({ key: ci, secret: { keyId: 'key-ci-3', hash: 'hash-key-ci-3', isProven: true } })
  t.same(lost.settle(), { done: ['takeBack 3', 'set key-ci-3 state=active'], conditions: ALL_GOOD })
  const behind = world({ key: ci, versions: [version(ci, 2)], secret: { keyId: 'key-ci-3', hash: 'hash-key-ci-3', isProven: true } })
  t.same(behind.settle().done, ['takeBack 3', 'set key-ci-3 state=active', 'set key-ci-2 overlapUntil=T0+3600s', 'tell acme/coder'])
  const rewritten: [string, Parameters<typeof world>[0]][] = [
    ['the store knows that version', { versions: [version(ci, 3, { hash: 'other' })], secret: { keyId: 'key-ci-3', hash: 'x', isProven: true } }],
    ['the store knows a later one', { versions: [version(ci, 4)], secret: { keyId: 'key-ci-3', hash: 'x', isProven: true } }],
  ]
  for (const [why, facts] of rewritten) t.same(world({ key: ci, ...facts }).settle().done, [`putSecret ${facts!.versions![0]!.id}`], why)
  for (const secret of [{ keyId: 'key-ci-3', hash: 'x', isProven: false }, { keyId: 'key-other-3', hash: 'x', isProven: true }, { keyId: 'key-ci-x', hash: 'x', isProven: true }]) {
    t.same(world({ key: ci, secret }).settle().done, ['mint 3', 'putSecret key-ci-3', 'set key-ci-3 state=active'])
  }
})

t.test('a manifest older than the store does not rotate back', async (t) => {
  const ci = key('ci', { rotationRevision: 1 })
  const self = world({ key: ci, versions: [version(ci, 2), version(ci, 1, { overlapUntil: T0 + HOUR })], secret: secretOf(version(ci, 2)) })
  t.same(self.settle().done, [])
  t.match(self.facts.status, { rotationRevision: 2 })
})

t.test('a key that is gone is unusable first, then told, then its Secrets go', async (t) => {
  const ci = key('ci')
  let versions = [version(ci, 2, { state: 'pending' }), version(ci, 1), version(ci, 0, { state: 'suspended', subscription: 'acme/old' })]
  const done: string[] = []
  let hasSecrets = true
  for (let step = reconcileGoneKey(versions, hasSecrets); step; step = reconcileGoneKey(versions, hasSecrets)) {
    done.push(step.step === 'set' ? `${step.id} ${step.change.state} ${step.tell.join()}` : step.step)
    if (step.step === 'removeSecrets') hasSecrets = false
    const { step: name } = step
    versions = versions.map((old) => {
      if (name === 'set' && step.step === 'set' && old.id === step.id) return { ...old, ...step.change, tell: step.tell }
      return name === 'tell' && step.step === 'tell' && old.id === step.version.id ? { ...old, tell: [] } : old
    })
  }
  t.same(done, ['key-ci-2 deleted ', 'key-ci-1 deleted acme/coder', 'tell', 'key-ci-0 deleted ', 'removeSecrets'])
  t.equal(reconcileGoneKey([], false), null)
})

t.test('the keys created first are admitted; revoked and expired ones take no place', async (t) => {
  const named = (name: string, minutes: number, spec = {}) => key(name, spec, { creationTimestamp: iso(T0 + minutes * 60_000) })
  const all = [named('d', 3), named('b', 1, { state: 'Revoked' }), named('a', 1), named('c', 2, { expirationTime: iso(T0) }), named('e', 3), named('s', 2, { state: 'Suspended' })]
  const two = plan('coder')
  t.same([...admittedKeys(all, two, T0)], ['a', 's'])
  t.same(all.filter((one) => isAdmitted(one, all, two, T0)).map(({ metadata }) => metadata.name).sort(), ['a', 'b', 'c', 's'])
  t.same([...admittedKeys(all, plan('coder', { keyPolicy: { maxKeys: 3, rotationOverlapSeconds: 0 } }), T0)], ['a', 's', 'd'], 'of two at once the first by name')
  t.equal(isAdmitted(all[0]!, all, null, T0), true, 'a plan that is not there limits nothing')
})

t.test('while the store is away a new key is Unknown, and an old one says so in Ready alone', async (t) => {
  const fresh = keyUnreachable(key('ci'), null, T0)
  t.same(conditions(fresh), Object.fromEntries(['Ready', 'PlanActive', 'KeyActive', 'SecretSynced'].map((type) => [type, 'Unknown StoreUnavailable'])))
  const self = issued()
  const later = keyUnreachable(key('ci', {}, { generation: 2 }), self.facts.status, T0 + HOUR)
  t.same(conditions(later), { ...ALL_GOOD, Ready: 'False StoreUnavailable' })
  t.same(later.conditions.map(({ lastTransitionTime }) => lastTransitionTime), [iso(T0 + HOUR), iso(T0), iso(T0), iso(T0)])
  t.same({ ...later, conditions: [] }, { ...self.facts.status, conditions: [] })
  t.same(conditions(planUnreachable(plan('coder'), null, T0)), { Ready: 'Unknown StoreUnavailable' })
})

t.test('no status says Unknown once a pass ended, and no decision depends on anything but its facts', async (t) => {
  const self = issued()
  t.notOk(Object.values(conditions(self.facts.status)).some((text) => text.startsWith('Unknown')))
  const facts = structuredClone(self.facts)
  t.same(reconcileKey(facts, T0), reconcileKey(facts, T0))
  t.same(facts, self.facts)
})

const gathered = (facts: Partial<GatheredPlan> = {}): GatheredPlan => ({ plan: plan('coder'), record: null, verdict: null, answer: null, activeKeys: 3, status: null, ...facts })

t.test('a plan is applied when its record does not say the same, and not again', async (t) => {
  const coder = plan('coder', { startTime: iso(T0), expirationTime: iso(T0 + HOUR), displayName: 'Coder' })
  const first = reconcilePlan(gathered({ plan: coder }), T0)
  t.match(first, {
    next: { op: 'applyPlan', plan: { uid: 'plan-coder', createdAt: T0, generation: 1 }, product: 'Coding', state: 'Active', activeFrom: T0, activeUntil: T0 + HOUR, verdict: null, terms: { displayName: 'Coder' } },
  })
  const record = applied(coder)
  t.match(reconcilePlan(gathered({ plan: coder, record }), T0), { next: null, status: { observedGeneration: 1, activeKeys: 3, conditions: [{ type: 'Ready', status: 'True', reason: 'PlanActive' }] }, requeueAt: T0 + HOUR })
  t.match(reconcilePlan(gathered({ plan: coder, record, verdict: 'Too much.' }), T0), { next: { op: 'applyPlan', verdict: 'Too much.' } }, 'PLAN_LIMITS changed')
  t.match(reconcilePlan(gathered({ plan: plan('coder', coder.spec, { generation: 2 }), record }), T0), { next: { plan: { generation: 2 } } })
})

t.test('a plan says why it serves nothing, and wakes up when that ends', async (t) => {
  const table: [Partial<PlanResource['spec']>, string | null, string, number | null][] = [
    [{ state: 'Suspended' }, null, 'PlanSuspended', null],
    [{ state: 'Retired' }, null, 'PlanRetired', null],
    [{ startTime: iso(T0 + HOUR) }, null, 'PlanNotActive', T0 + HOUR],
    [{ expirationTime: iso(T0) }, null, 'PlanExpired', null],
    [{}, 'Not allowed in this namespace: x.', 'PlanNotAllowed', null],
  ]
  for (const [spec, verdict, reason, requeueAt] of table) {
    const resource = plan('coder', spec)
    const decision = reconcilePlan(gathered({ plan: resource, record: applied(resource, null, verdict), verdict }), T0)
    t.match(decision, { next: null, status: { activeKeys: 0, conditions: [{ status: 'False', reason, ...(verdict && { message: verdict }) }] }, requeueAt })
  }
})

t.test('a media plan shows when its period ends, also when nobody saw it roll over', async (t) => {
  const studio = plan('studio', { product: 'Media' })
  const record = applied(studio)
  const DAYS = 24 * HOUR * 30
  t.match(reconcilePlan(gathered({ plan: studio, record }), T0), { status: { periodEndTime: iso(T0 + DAYS) }, requeueAt: T0 + DAYS })
  t.match(reconcilePlan(gathered({ plan: studio, record }), T0 + DAYS), { status: { periodEndTime: iso(T0 + 2 * DAYS) }, requeueAt: T0 + 2 * DAYS })
})

t.test('a plan that is gone is removed from its record, once', async (t) => {
  const record = applied(plan('coder'))
  const decision = reconcilePlan(gathered({ plan: null, record }), T0)
  t.match(decision, { next: { op: 'removePlan', uid: 'plan-coder' } })
  const removed = applyTo(record, decision.next!).record
  t.same(reconcilePlan(gathered({ plan: null, record: removed }), T0), { next: null, status: null, requeueAt: null })
  t.same(reconcilePlan(gathered({ plan: null, record: null }), T0), { next: null, status: null, requeueAt: null })
})

t.test('a plan of another product under an old name serves nothing, and the old one neither', async (t) => {
  const record = applied(plan('coder'))
  const media = plan('coder', { product: 'Media' }, { uid: 'plan-2', creationTimestamp: iso(T0 + HOUR) })
  const decision = reconcilePlan(gathered({ plan: media, record }), T0)
  t.match(decision, { next: { op: 'removePlan', uid: 'plan-coder' } })
  const removed = applyTo(record, decision.next!).record
  t.match(reconcilePlan(gathered({ plan: media, record: removed }), T0), { next: null, status: { conditions: [{ status: 'False', reason: 'ProductChanged' }] } })
})

t.test('a plan older than the one in force is told so and changes nothing', async (t) => {
  const record = applied(plan('coder', {}, { generation: 7 }))
  const older = plan('coder', {}, { generation: 6 })
  const decision = reconcilePlan(gathered({ plan: older, record }), T0)
  t.match(decision, { next: { op: 'applyPlan' } })
  const { answer } = applyTo(record, decision.next!)
  t.equal(answer.outcome, 'older')
  t.match(reconcilePlan(gathered({ plan: older, record, answer: 'older' }), T0), { next: null, status: { conditions: [{ status: 'False', reason: 'PlanSuperseded' }] } })
  t.same(world({ plan: older, record }).settle().done, ISSUE, 'its keys follow the one in force')
})

t.test('a condition keeps its time while its status stays, whatever its reason', async (t) => {
  const self = issued()
  const times = () => Object.fromEntries(self.facts.status!.conditions.map(({ type, lastTransitionTime }) => [type, lastTransitionTime]))
  self.now = T0 + HOUR
  edit(self, { state: 'Suspended' })
  self.settle()
  t.same(times(), { Ready: iso(T0 + HOUR), PlanActive: iso(T0 + HOUR), KeyActive: iso(T0), SecretSynced: iso(T0 + HOUR) })
  self.now = T0 + 2 * HOUR
  edit(self, { state: 'Retired' })
  self.settle()
  t.same(times(), { Ready: iso(T0 + HOUR), PlanActive: iso(T0 + HOUR), KeyActive: iso(T0), SecretSynced: iso(T0 + HOUR) })
})
