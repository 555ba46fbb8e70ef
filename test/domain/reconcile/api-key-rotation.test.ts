/** Key rotation: the versions of a key, their overlap, and the Secret. */
import t from 'tap'
import { refusal } from '../../../src/domain/api-keys.ts'
import { ALL_GOOD, applied, conditions, edit, HOUR, iso, issued, plan, respec, T0, type world } from './reconcile-world.ts'

t.test('a rotation issues a new version; the old one works until its overlap ends', async (t) => {
  const self = issued()
  self.now = T0 + HOUR
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().done, ['mint 1', 'putSecret key-ci-1', 'set key-ci-1 state=active', 'set key-ci-0 overlapUntil=T0+7200s', 'notify acme/coder'])
  t.match(self.facts.status, { keyID: 'key-ci-1', rotationRevision: 1, issuedTime: iso(T0 + HOUR) })
  t.same(conditions(self.facts.status), { Ready: 'True RotationInProgress', PlanActive: 'True PlanActive', KeyActive: 'True RotationInProgress', SecretSynced: 'True Issued' })
  t.equal(self.requeueAt, T0 + 2 * HOUR)
  t.equal(self.facts.status?.conditions[0]?.lastTransitionTime, iso(T0), 'it stayed ready')
  self.now = T0 + 2 * HOUR
  t.same(self.settle(), { done: ['set key-ci-0 state=deleted endedAt=T0+7200s'], conditions: ALL_GOOD })
  t.same(self.settle().done, [])
})

const overlapsOf = (self: ReturnType<typeof world>) => self.facts.versions.map(({ id, state, overlapUntil }) => [id, state, overlapUntil])

t.test('rotating twice within an overlap keeps the overlap of the former version and ends the version before it', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  self.now = T0 + HOUR / 2
  respec(self, { rotationRevision: 5 })
  t.same(self.settle().done, [
    'mint 5', 'putSecret key-ci-5', 'set key-ci-5 state=active', 'set key-ci-1 overlapUntil=T0+5400s', 'notify acme/coder', 'set key-ci-0 state=deleted endedAt=T0+1800s overlapUntil=T0+1800s', 'notify acme/coder',
  ])
  t.same(overlapsOf(self), [
    ['key-ci-5', 'active', null],
    ['key-ci-1', 'active', T0 + 1.5 * HOUR],
    ['key-ci-0', 'deleted', T0 + HOUR / 2],
  ])
  t.equal(self.requeueAt, T0 + 1.5 * HOUR)
})

t.test('without an overlap a rotation leaves only the newest version, also while an earlier one still overlapped', async (t) => {
  // The plan changes before the rotation in the first round, and in the same pass in the second.
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

t.test('a shorter overlap in the plan shortens a running one; a longer one or a deleted plan leaves it as it is', async (t) => {
  const former = (self: ReturnType<typeof world>) => self.facts.versions.find(({ id }) => id === 'key-ci-0')
  const allow = (self: ReturnType<typeof world>, rotationOverlapSeconds: number) => edit(self, { keyPolicy: { maxKeys: 2, rotationOverlapSeconds } })
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  allow(self, 60)
  t.same(self.settle().done, ['set key-ci-0 overlapUntil=T0+60s', 'notify acme/coder'])
  allow(self, 7200)
  t.same(self.settle().done, [])
  const { plan: deleted } = self.facts
  Object.assign(self.facts, { plan: null, record: null })
  self.settle()
  t.match(former(self), { state: 'active', overlapUntil: T0 + 60_000 })
  self.facts.plan = deleted
  self.facts.record = applied(deleted!)
  allow(self, 0)
  self.settle()
  t.match(former(self), { state: 'deleted', overlapUntil: T0 })
})

t.test('a version that was never in use gets no overlap', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle(1)
  respec(self, { rotationRevision: 2 })
  self.settle()
  self.settle()
  t.same(overlapsOf(self), [
    ['key-ci-2', 'active', null],
    ['key-ci-1', 'deleted', null],
    ['key-ci-0', 'active', T0 + HOUR],
  ])
})

t.test('without an overlap the old version ends with the rotation', async (t) => {
  const self = issued({ plan: plan('coder', { keyPolicy: { maxKeys: 1, rotationOverlapSeconds: 0 } }) })
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().done, ['mint 1', 'putSecret key-ci-1', 'set key-ci-1 state=active', 'set key-ci-0 state=deleted endedAt=T0+0s overlapUntil=T0+0s', 'notify acme/coder'])
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

t.test('a rotation superseded before its key was usable leaves no live key', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle(1)
  t.equal(self.facts.versions[0]?.state, 'pending')
  respec(self, { rotationRevision: 2 })
  self.settle()
  t.same(self.facts.versions.map(({ id, state }) => `${id} ${state}`), ['key-ci-2 active', 'key-ci-1 deleted', 'key-ci-0 active'])
})

t.test('an interrupted rotation is completed by the next pass, even if the key was suspended and rotated again', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  respec(self, { rotationRevision: 2 })
  t.same(self.settle(3).done, ['mint 2', 'putSecret key-ci-2', 'set key-ci-2 state=active'])
  respec(self, { rotationRevision: 3, state: 'Suspended' })
  self.settle()
  const ended = [
    ['key-ci-2', 'suspended', null],
    ['key-ci-1', 'suspended', T0 + HOUR],
    ['key-ci-0', 'deleted', T0],
  ]
  t.same(overlapsOf(self), ended)
  respec(self, { rotationRevision: 3, state: 'Active' })
  self.settle()
  t.same(overlapsOf(self), [['key-ci-3', 'active', null], ['key-ci-2', 'active', T0 + HOUR], ['key-ci-1', 'deleted', T0], ['key-ci-0', 'deleted', T0]])
})
