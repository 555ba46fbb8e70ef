/** Reconcile decisions for ApiKeys, over plain data. Rotation and Plans have their own files. */
import t from 'tap'
import { clusterRefused } from '../../../src/domain/reconcile/not-ready-reasons.ts'
import { admittedKeys, isAdmitted } from '../../../src/domain/reconcile/max-keys.ts'
import { keyStoreUnavailable, reconcileDeletedKey, reconcileKey } from '../../../src/domain/reconcile/reconcile-api-key.ts'
import { planStoreUnavailable } from '../../../src/domain/reconcile/reconcile-plan.ts'
import { ALL_GOOD, applied, conditions, edit, HOUR, iso, ISSUE, issued, key, pause, plan, respec, secretOf, T0, version, world } from './reconcile-world.ts'

t.test('a key is issued as pending, written to its Secret, and only then active', async (t) => {
  const self = world()
  const { done, conditions: seen } = self.settle()
  t.same(done, ISSUE)
  t.same(seen, ALL_GOOD)
  t.match(self.facts.status, { observedGeneration: 1, keyID: 'key-ci-0', keyPrefix: 'svc_live_abcdef', rotationRevision: 0, issuedTime: iso(T0), secretRef: { name: 'ci-key' } })
  for (const condition of self.facts.status?.conditions ?? []) t.match(condition, { observedGeneration: 1, lastTransitionTime: iso(T0) })
  t.same(self.notified, [], 'no cache can hold a key that was never usable')
  t.same(self.settle().done, [], 'nothing is left to do afterwards')
})

t.test('a key without a Secret is usable at once', async (t) => {
  const { secretName: _, ...spec } = key('ci').spec
  const self = world({ key: { ...key('ci'), spec } })
  t.same(self.settle(), { done: ['mint 0', 'set key-ci-0 state=active'], conditions: { ...ALL_GOOD, SecretSynced: 'True NoSecretRequested' } })
})

t.test('a pass after a crash between any two steps ends in the same state', async (t) => {
  const scenarios: Record<string, () => ReturnType<typeof world>> = {
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
  for (const [scenario, begin] of Object.entries(scenarios)) {
    const whole = begin()
    const { done } = whole.settle()
    for (let gap = 0; gap <= done.length; gap++) {
      const crashed = begin()
      crashed.settle(gap)
      const rest = crashed.settle()
      t.same([...done.slice(0, gap), ...rest.done], done, `${scenario}, crashed after ${gap} steps`)
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
    ['the plan is deleted', (self) => Object.assign(self.facts, { plan: null }), { Ready: 'False PlanNotFound', PlanActive: 'False PlanNotFound', KeyActive: 'True Issued', SecretSynced: 'False PlanNotFound' }],
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
    t.same(never.settle().done, [], `${why}: nothing is issued while the key cannot be used`)
    t.match(conditions(never.facts.status), { Ready: expected['Ready'], KeyActive: /^False/ })
    // Undone: the same key is back in the same Secret.
    Object.assign(self.facts, { key: key('ci'), isAdmitted: true })
    if (self.facts.plan?.spec.state !== 'Retired') {
      self.facts.plan = plan('coder', {}, { generation: 9 })
      self.facts.record = applied(self.facts.plan, self.facts.record, null, self.now)
      t.same(self.settle().conditions, ALL_GOOD, `${why}, then undone`)
      t.same(self.facts.versions.map(({ id, state }) => `${id} ${state}`), ['key-ci-0 active'])
      t.same(self.facts.secret, secretOf(self.facts.versions[0]!))
    }
  }
})

t.test('suspending a key notifies its subscription before the Secret is removed; suspending a plan needs no notification', async (t) => {
  const self = issued()
  respec(self, { state: 'Suspended' })
  t.same(self.settle().done, ['set key-ci-0 state=suspended', 'notify acme/coder', 'removeSecrets'])
  respec(self, { state: 'Active' })
  t.same(self.settle().done, ['set key-ci-0 state=active', 'putSecret key-ci-0'])
  edit(self, { state: 'Suspended' })
  t.same(self.settle().done, ['removeSecrets'])
})

t.test('a key without its plan is issued once the plan is applied', async (t) => {
  const self = world({ plan: null, record: null })
  t.same(self.settle(), { done: [], conditions: { Ready: 'False PlanNotFound', PlanActive: 'False PlanNotFound', KeyActive: 'False PlanNotFound', SecretSynced: 'False PlanNotFound' } })
  self.facts.plan = plan('coder')
  t.same(self.settle().done, ['waiting'], 'the plan exists and is not applied yet')
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle(), { done: ISSUE, conditions: ALL_GOOD })
})

t.test('a revocation does not wait for a plan that is not applied yet', async (t) => {
  const self = issued()
  self.facts.plan = plan('coder', {}, { generation: 5 })
  respec(self, { state: 'Revoked' })
  t.same(self.settle().done, ['set key-ci-0 state=revoked endedAt=T0+0s', 'notify acme/coder', 'waiting'])
})

t.test('a revoked key stays revoked, even under an older manifest', async (t) => {
  const self = issued()
  respec(self, { rotationRevision: 1 })
  self.settle()
  self.notified.length = 0
  respec(self, { rotationRevision: 1, state: 'Revoked' })
  const { done, conditions: seen } = self.settle()
  t.same(done, ['set key-ci-1 state=revoked endedAt=T0+0s', 'notify acme/coder', 'set key-ci-0 state=revoked endedAt=T0+0s', 'notify acme/coder', 'removeSecrets'])
  t.same(seen, { Ready: 'False KeyRevoked', PlanActive: 'True PlanActive', KeyActive: 'False KeyRevoked', SecretSynced: 'False KeyRevoked' })
  respec(self, { rotationRevision: 1, state: 'Active' })
  t.same(self.settle(), { done: [], conditions: seen })
})

t.test('a key expires by the time in its record, and its expirationTime can be moved later', async (t) => {
  const self = issued({ key: key('ci', { expirationTime: iso(T0 + HOUR) }) })
  t.equal(self.requeueAt, T0 + HOUR)
  self.now = T0 + HOUR
  t.same(self.settle().done, ['removeSecrets'])
  t.equal(self.facts.versions[0]?.state, 'active')
  respec(self, { expirationTime: iso(T0 + 3 * HOUR) })
  t.same(self.settle(), { done: ['set key-ci-0 expiresAt=T0+10800s', 'notify acme/coder', 'putSecret key-ci-0'], conditions: ALL_GOOD })
})

t.test('an expirationTime that is moved later does not prolong a paused key, nor resume it; an earlier one ends it', async (t) => {
  const self = issued({ key: key('ci', { expirationTime: iso(T0 + 2 * HOUR) }) })
  pause(self, { expirationTime: iso(T0 + 9 * HOUR), limit: { weeklyTokens: 5 } })
  t.same(self.settle(), { done: ['set key-ci-0 cap=5', 'notify acme/coder'], conditions: { ...ALL_GOOD, Paused: 'True Paused' } })
  t.match(self.facts.status, { observedGeneration: 1 })
  t.equal(self.requeueAt, T0 + 2 * HOUR)
  pause(self, { expirationTime: iso(T0 + HOUR) })
  t.same(self.settle().done, ['set key-ci-0 cap=null expiresAt=T0+3600s', 'notify acme/coder'])
  const expired = { Ready: 'False KeyExpired', PlanActive: 'True PlanActive', KeyActive: 'False KeyExpired', SecretSynced: 'False KeyExpired', Paused: 'True Paused' }
  self.now = T0 + HOUR
  t.same(self.settle(), { done: ['removeSecrets'], conditions: expired })
  pause(self, { expirationTime: iso(T0 + 9 * HOUR) })
  t.same(self.settle(), { done: [], conditions: expired })
  respec(self, { expirationTime: iso(T0 + 9 * HOUR) })
  t.same(self.settle(), { done: ['set key-ci-0 expiresAt=T0+32400s', 'notify acme/coder', 'putSecret key-ci-0'], conditions: ALL_GOOD })
})

t.test('no version of a suspended key is resumed while it is paused, even in the middle of a rotation', async (t) => {
  const ci = key('ci', { rotationRevision: 1 })
  const self = world({ key: ci, versions: [version(ci, 1, { state: 'pending' }), version(ci, 0, { state: 'suspended' })] })
  pause(self, { rotationRevision: 1 })
  t.match(self.settle(), { done: [], conditions: { Ready: 'False KeySuspended', Paused: 'True Paused' } })
  respec(self, { rotationRevision: 1 })
  t.match(self.settle(), { done: ['set key-ci-0 state=active'], conditions: { Ready: 'True RotationInProgress' } })
})

t.test('the Secret of a paused key goes with its plan, and is written again once the key is not paused', async (t) => {
  const self = issued()
  pause(self)
  t.same(self.settle(), { done: [], conditions: { ...ALL_GOOD, Paused: 'True Paused' } })
  const without = (reason: string) => ({ Ready: `False ${reason}`, PlanActive: `False ${reason}`, KeyActive: 'True Issued', SecretSynced: `False ${reason}`, Paused: 'True Paused' })
  edit(self, { state: 'Suspended' })
  t.same(self.settle(), { done: ['removeSecrets'], conditions: without('PlanSuspended') })
  const { plan: coder, record } = self.facts
  Object.assign(self.facts, { plan: null, record: null })
  t.same(self.settle(), { done: [], conditions: without('PlanNotFound') })
  Object.assign(self.facts, { plan: coder, record })
  edit(self, {})
  t.same(self.settle(), { done: [], conditions: { ...ALL_GOOD, Ready: 'False Paused', SecretSynced: 'False Paused', Paused: 'True Paused' } })
  t.match(self.facts.status, { observedGeneration: 1, keyID: 'key-ci-0' })
  respec(self, {})
  t.same(self.settle(), { done: ['putSecret key-ci-0'], conditions: ALL_GOOD })
})

t.test('moving a key to another plan of its product notifies both subscriptions', async (t) => {
  const self = issued()
  respec(self, { planRef: { name: 'other' }, limit: { weeklyTokens: 5 } })
  self.facts.plan = plan('other')
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle(), { done: ['set key-ci-0 subscription=acme/other cap=5', 'notify acme/coder acme/other'], conditions: ALL_GOOD })
  t.equal(self.facts.versions[0]?.cap, 5)
})

t.test('a key moved to a missing plan is not usable until the plan exists', async (t) => {
  const self = issued()
  respec(self, { planRef: { name: 'other' } })
  Object.assign(self.facts, { plan: null, record: null })
  t.same(self.settle().done, ['set key-ci-0 subscription=acme/other', 'notify acme/coder acme/other', 'removeSecrets'])
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
  t.same(done, ['set key-ci-0 state=suspended', 'notify acme/room', 'removeSecrets'])
  t.match(seen, { Ready: 'False ProductChanged', KeyActive: 'False ProductChanged' })
  respec(self, { planRef: { name: 'studio' } })
  self.facts.plan = plan('studio', { product: 'Media' })
  self.facts.record = applied(self.facts.plan)
  t.same(self.settle().conditions, ALL_GOOD)
  t.match(self.facts.versions[0], { subscription: 'acme/studio', product: 'Media', state: 'active' })
})

t.test('pending notifications come before any other step', async (t) => {
  const ci = key('ci')
  const self = world({ key: ci, versions: [version(ci, 0, { tell: ['acme/old', 'acme/coder'] })] })
  t.same(self.settle().done, ['notify acme/old acme/coder', 'putSecret key-ci-0'])
  const deleted = reconcileDeletedKey([version(ci, 0, { state: 'deleted', tell: ['acme/old'] })], true, T0)
  t.match(deleted, { step: 'notify' })
})

t.test('a foreign Secret is not changed: a new key stays pending, a key in use stays active', async (t) => {
  const self = world()
  self.isForeign = true
  t.same(self.settle(), {
    done: ['mint 0', 'putSecret key-ci-0'],
    conditions: { Ready: 'False SecretConflict', PlanActive: 'True PlanActive', KeyActive: 'False SecretConflict', SecretSynced: 'False SecretConflict' },
  })
  t.equal(self.facts.versions[0]?.state, 'pending')
  t.ok(self.requeueAt, 'the deletion of a foreign Secret sends no event')
  self.isForeign = false
  t.same(self.settle(), { done: ['putSecret key-ci-0', 'set key-ci-0 state=active'], conditions: ALL_GOOD })

  self.isForeign = true
  self.facts.secret = null
  respec(self, { rotationRevision: 1 })
  t.same(self.settle().conditions, { Ready: 'False SecretConflict', PlanActive: 'True PlanActive', KeyActive: 'True Issued', SecretSynced: 'False SecretConflict' })
  t.same(self.facts.versions.map(({ state, overlapUntil }) => [state, overlapUntil]), [['pending', null], ['active', null]])
  t.match(self.facts.status, { keyID: 'key-ci-0', rotationRevision: 0 })
})

t.test('a Secret that was edited, emptied or removed is restored', async (t) => {
  for (const secret of [null, { keyId: 'key-ci-0', hash: 'forged', isProven: true }, { keyId: '', hash: 'hash-key-ci-0', isProven: true }, { keyId: 'key-ci-0', hash: 'hash-key-ci-0', isProven: false }]) {
    const self = issued()
    self.facts.secret = secret
    t.same(self.settle(), { done: ['putSecret key-ci-0'], conditions: ALL_GOOD })
  }
})

t.test('a store restored from an older backup restores a proven key from its Secret, and no other', async (t) => {
  const ci = key('ci', { rotationRevision: 3 })
  const lost = world({ key: ci, secret: { keyId: 'key-ci-3', hash: 'hash-key-ci-3', isProven: true } })
  t.same(lost.settle(), { done: ['restoreFromSecret 3', 'set key-ci-3 state=active'], conditions: ALL_GOOD })
  const behind = world({ key: ci, versions: [version(ci, 2)], secret: { keyId: 'key-ci-3', hash: 'hash-key-ci-3', isProven: true } })
  t.same(behind.settle().done, ['restoreFromSecret 3', 'set key-ci-3 state=active', 'set key-ci-2 overlapUntil=T0+3600s', 'notify acme/coder'])
  const rewritten: [string, Parameters<typeof world>[0]][] = [
    ['the store has that version', { versions: [version(ci, 3, { hash: 'other' })], secret: { keyId: 'key-ci-3', hash: 'x', isProven: true } }],
    ['the store has a later version', { versions: [version(ci, 4)], secret: { keyId: 'key-ci-3', hash: 'x', isProven: true } }],
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

t.test('a deleted key becomes unusable, its subscriptions are notified, then its Secrets are removed', async (t) => {
  const ci = key('ci')
  let versions = [version(ci, 2, { state: 'pending' }), version(ci, 1), version(ci, 0, { state: 'revoked', endedAt: T0, subscription: 'acme/old' })]
  const done: string[] = []
  let hasSecrets = true
  for (let step = reconcileDeletedKey(versions, hasSecrets, T0 + 7); step; step = reconcileDeletedKey(versions, hasSecrets, T0 + 7)) {
    done.push(step.step === 'set' ? `${step.id} ${step.change.state} ${step.notify.join()}` : step.step)
    if (step.step === 'removeSecrets') hasSecrets = false
    const { step: name } = step
    versions = versions.map((old) => {
      if (name === 'set' && step.step === 'set' && old.id === step.id) return { ...old, ...step.change, tell: step.notify }
      return name === 'notify' && step.step === 'notify' && old.id === step.version.id ? { ...old, tell: [] } : old
    })
  }
  t.same(done, ['key-ci-2 deleted ', 'key-ci-1 deleted acme/coder', 'notify', 'key-ci-0 deleted ', 'removeSecrets'])
  t.same(versions.map(({ endedAt }) => endedAt), [T0 + 7, T0 + 7, T0], 'the end time is set once')
  t.equal(reconcileDeletedKey([], false, T0), null)
})

t.test('the keys created first are admitted; revoked and expired keys do not count', async (t) => {
  const named = (name: string, minutes: number, spec = {}) => key(name, spec, { creationTimestamp: iso(T0 + minutes * 60_000) })
  const all = [named('d', 3), named('b', 1, { state: 'Revoked' }), named('a', 1), named('c', 2, { expirationTime: iso(T0) }), named('e', 3), named('s', 2, { state: 'Suspended' })]
  const two = plan('coder')
  t.same([...admittedKeys(all, two, T0)], ['a', 's'])
  t.same(all.filter((one) => isAdmitted(one, all, two, T0)).map(({ metadata }) => metadata.name).sort(), ['a', 'b', 'c', 's'])
  t.same([...admittedKeys(all, plan('coder', { keyPolicy: { maxKeys: 3, rotationOverlapSeconds: 0 } }), T0)], ['a', 's', 'd'], 'of two created at once the first by name')
  t.equal(isAdmitted(all[0]!, all, null, T0), true, 'a missing plan limits nothing')
})

t.test('while the store is unavailable a new key is Unknown, and an existing key changes Ready alone', async (t) => {
  const fresh = keyStoreUnavailable(key('ci'), null, T0)
  t.same(conditions(fresh), Object.fromEntries(['Ready', 'PlanActive', 'KeyActive', 'SecretSynced'].map((type) => [type, 'Unknown StoreUnavailable'])))
  const self = issued()
  const later = keyStoreUnavailable(key('ci', {}, { generation: 2 }), self.facts.status, T0 + HOUR)
  t.same(conditions(later), { ...ALL_GOOD, Ready: 'False StoreUnavailable' })
  t.same(later.conditions.map(({ lastTransitionTime }) => lastTransitionTime), [iso(T0 + HOUR), iso(T0), iso(T0), iso(T0)])
  t.same({ ...later, conditions: [] }, { ...self.facts.status, conditions: [] })
  t.same(conditions(planStoreUnavailable(plan('coder'), null, T0)), { Ready: 'Unknown StoreUnavailable' })
})

t.test('a rejection by the API server shows in the conditions it affects, a working key stays active, and the pass sends no further request', async (t) => {
  const obstacle = clusterRefused('POST /secrets was answered 403: exceeded quota')
  const after = (self: ReturnType<typeof world>, now = T0) => {
    const decision = reconcileKey({ ...self.facts, obstacle }, now)
    return decision.outcome === 'steady' ? conditions(decision.status) : decision
  }
  const refused = 'False ClusterRefused'
  const fresh = world()
  t.same(after(fresh), { ...ALL_GOOD, Ready: refused, KeyActive: refused, SecretSynced: refused })
  fresh.settle(1)
  t.same(after(fresh), { ...ALL_GOOD, Ready: refused, KeyActive: refused, SecretSynced: refused }, 'a minted key does not become usable')
  t.same(after(issued()), ALL_GOOD)
  const modified = issued()
  modified.facts.secret = { ...modified.facts.secret!, isModified: true }
  t.same(after(modified), ALL_GOOD, 'the Secret holds the key')
  const bare = issued()
  bare.facts.secret = null
  t.same(after(bare), { ...ALL_GOOD, Ready: refused, SecretSynced: refused })
  const rotated = issued()
  respec(rotated, { rotationRevision: 1 })
  t.same(after(rotated), { ...ALL_GOOD, Ready: refused, SecretSynced: refused }, 'the former key works')
  const { secretName: _, ...spec } = key('ci').spec
  const bound = world({ key: { ...key('ci'), spec } })
  bound.settle(1)
  t.match(after(bound), { Ready: refused, KeyActive: refused, SecretSynced: 'True NoSecretRequested' }, 'its finalizer may be missing')
  const lost = world({ secret: { keyId: 'key-ci-3', hash: 'x', isProven: true } })
  t.same(after(lost), { ...ALL_GOOD, Ready: refused, KeyActive: refused, SecretSynced: refused })
  const suspended = issued()
  respec(suspended, { state: 'Suspended' })
  t.match(after(suspended), { next: { step: 'set', change: { state: 'suspended' } } }, 'the store is still updated')
  suspended.settle(2)
  t.same(after(suspended), { Ready: 'False KeySuspended', PlanActive: 'True PlanActive', KeyActive: 'False KeySuspended', SecretSynced: refused }, 'its Secret is still there')
  const stopped = issued()
  edit(stopped, { state: 'Suspended' })
  t.same(after(stopped), { Ready: 'False PlanSuspended', PlanActive: 'False PlanSuspended', KeyActive: 'True Issued', SecretSynced: refused })
})

t.test('the message of a rejection fits in the note of an Event and never ends within a character', async (t) => {
  t.equal(clusterRefused('no').message, 'The API server rejected a request for this key; the controller retries. no')
  for (const text of ['x', 'é', '€', '\u{1f600}']) {
    const { message = '' } = clusterRefused(`a${text.repeat(1_000)}`)
    t.ok(Buffer.byteLength(message) <= 1_024 && message.length > 250, text)
    t.ok(message.isWellFormed())
  }
})

t.test('no condition is Unknown after a pass, and a decision depends on its facts alone', async (t) => {
  const self = issued()
  t.notOk(Object.values(conditions(self.facts.status)).some((text) => text.startsWith('Unknown')))
  const facts = structuredClone(self.facts)
  t.same(reconcileKey(facts, T0), reconcileKey(facts, T0))
  t.same(facts, self.facts)
})
