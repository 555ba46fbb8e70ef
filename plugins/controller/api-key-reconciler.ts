/** Carries out what `reconcileKey` decides for one ApiKey: gather, ask, apply, ask again, write the status. */
import { hashKey, keyVersionId, mint, open, seal, secretMac, shownPrefix, verifySecretMac, type KeyVersion, type SealingKeys } from '../../src/domain/api-keys.ts'
import { Refused, Unavailable } from '../../src/domain/errors.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { clusterRefused } from '../../src/domain/reconcile/status-conditions.ts'
import { capOf, expiryOf } from '../../src/domain/reconcile/api-key-rotation.ts'
import { isAdmitted, reconcileGoneKey, reconcileKey, type FoundSecret, type GatheredKey, type KeyStep } from '../../src/domain/reconcile/reconcile-api-key.ts'
import type { ApiKeyResource, KeySecret, PlanResource, Ref, Resources } from '../../src/backends/resources/resources.ts'
import type { Store } from '../../src/backends/store/store.ts'

export type KeyWork = {
  store: Store
  resources: Resources
  /** Throws `Unavailable` once another process leads: what was begun under the lease must not be written after it. */
  assertLeading: () => void
  clock: () => number
  sealing: SealingKeys
  /** Before `_live_` in a key. */
  prefix: string
  /** That many random bytes. */
  random: (bytes: number) => Uint8Array
}

/** What came of a pass. `touched` are the plans whose keys changed; `waits`: nothing can be said before the plan's own pass. `refusal`: not all was done, and the status says so. */
export type KeyPass = { requeueAt: number | null; touched: string[]; ready: 'became' | 'was' | 'not' | 'waits'; refusal: Unavailable | null }

/** A decision that never settles is a mistake of ours; it must not spin. */
const MOST_STEPS = 400

type Facts = GatheredKey & { found: KeySecret | null }

/** One pass over an ApiKey that is there. `siblings` are all keys that name its plan. Throws `Unavailable`. */
export async function passKey(work: KeyWork, key: ApiKeyResource, siblings: Iterable<ApiKeyResource>): Promise<KeyPass> {
  const ref = refOf(key)
  const touched = new Set<string>()
  const gone: KeyPass = { requeueAt: null, touched: [], ready: 'not', refusal: null }
  let facts = await gather(work, key, siblings)
  let refusal: Unavailable | null = null
  const refused = (error: unknown): Facts => {
    if (!(error instanceof Unavailable && error.cause instanceof Refused)) throw error
    refusal = error
    return { ...facts, obstacle: clusterRefused(error.cause.message) }
  }
  if (facts.versions.some(({ state }) => state !== 'deleted')) {
    // Somebody may have taken it off.
    const retained = await work.resources.retain(ownerOf(key)).catch(refused)
    if (retained === 'gone') return gone
    if (retained !== 'retained') facts = retained
  }
  for (let steps = 0; steps < MOST_STEPS; steps++) {
    const now = work.clock()
    const decision = reconcileKey(facts, now)
    if (decision.outcome === 'waiting') return { requeueAt: null, touched: [...touched], ready: 'waits', refusal }
    work.assertLeading()
    if (decision.outcome === 'steady') {
      const { status, requeueAt } = decision
      await work.resources.setStatus(ref, status)
      const ready = !isReady(status.conditions) ? 'not' : isReady(facts.status?.conditions) ? 'was' : 'became'
      return { requeueAt, touched: [...touched], ready, refusal }
    }
    const next = await apply(work, decision.next, facts, now).catch(refused)
    if (next === 'gone') return { ...gone, touched: [...touched] }
    for (const version of [...facts.versions, ...next.versions]) touched.add(version.subscription)
    facts = next
  }
  throw new Error(`the key ${ref.namespace}/${ref.name} does not settle`)
}

/** Makes a key unusable whose resource is gone or about to go, removes its Secrets, and lets the resource go. Returns the plans whose keys changed. Throws `Unavailable`. */
export async function passGoneKey(work: KeyWork, ref: Ref, uid: string): Promise<string[]> {
  let versions = await work.store.keyVersions(uid)
  let hasSecrets = true
  for (let step = reconcileGoneKey(versions, hasSecrets, work.clock()); step; step = reconcileGoneKey(versions, hasSecrets, work.clock())) {
    work.assertLeading()
    if (step.step === 'removeSecrets') {
      await work.resources.removeSecrets({ ...ref, uid })
      hasSecrets = false
    } else {
      versions = await applyToVersions(work, step, versions, work.clock())
    }
  }
  await work.resources.release({ ...ref, uid })
  return [...new Set(versions.map(({ subscription }) => subscription))]
}

async function gather({ store, resources, clock, sealing }: KeyWork, key: ApiKeyResource, siblings: Iterable<ApiKeyResource>): Promise<Facts> {
  const { namespace, uid } = key.metadata
  const { planRef, secretName } = key.spec
  const ref = refOf(key)
  const plan = resources.get({ kind: 'Plan', namespace, name: planRef.name }) as PlanResource | null
  const [record, versions, found, status] = await Promise.all([
    store.subscription(subscriptionId(namespace, planRef.name)),
    store.keyVersions(uid),
    secretName === undefined ? null : resources.secret({ ...ref, uid }, secretName),
    resources.status(ref),
  ])
  return { key, plan, record, isAdmitted: isAdmitted(key, siblings, plan, clock()), versions, found, secret: found && foundOf(found, sealing), obstacle: null, status }
}

function foundOf({ apiKey, keyId, mac, isSpoiled }: KeySecret & { isSpoiled?: true }, sealing: SealingKeys): FoundSecret {
  return { keyId, hash: hashKey(apiKey), isProven: verifySecretMac(mac, keyId, apiKey, sealing), ...(isSpoiled && { isSpoiled }) }
}

async function apply(work: KeyWork, step: KeyStep, facts: Facts, now: number): Promise<Facts | 'gone'> {
  const { key } = facts
  switch (step.step) {
    case 'mint': {
      if ((await work.resources.retain(ownerOf(key))) === 'gone') return 'gone'
      const apiKey = mint(work.prefix, work.random(32))
      return { ...facts, versions: await keep(work, apiKey, step.revision, facts, now) }
    }
    case 'takeBack':
      if ((await work.resources.retain(ownerOf(key))) === 'gone') return 'gone'
      return { ...facts, versions: await keep(work, facts.found?.apiKey ?? '', step.revision, facts, now) }
    case 'putSecret':
      return putSecret(work, step.name, step.version, facts)
    case 'removeSecrets':
      await work.resources.removeSecrets(ownerOf(key))
      return { ...facts, found: null, secret: null }
    default:
      return { ...facts, versions: await applyToVersions(work, step, facts.versions, now) }
  }
}

async function applyToVersions({ store }: KeyWork, step: KeyStep, versions: KeyVersion[], now: number): Promise<KeyVersion[]> {
  if (step.step === 'tell') {
    const { id, tell } = step.version
    for (const subscription of tell) await store.change(subscription, { op: 'keysChanged' }, now)
    await store.told(id, tell)
    return versions.map((version) => (version.id === id ? { ...version, tell: version.tell.filter((told) => !tell.includes(told)) } : version))
  }
  if (step.step !== 'set') throw new TypeError(`${step.step} changes no version`)
  const changed = await store.setKey(step.id, step.change, step.tell)
  if (!changed) throw new Error(`the store has no key version ${step.id} any more`)
  return versions.map((version) => (version.id === changed.id ? changed : version))
}

/** Stores a version, pending: it is usable once its Secret is written. */
async function keep({ store, sealing, random }: KeyWork, apiKey: string, revision: number, facts: Facts, now: number): Promise<KeyVersion[]> {
  const { key, plan, record, versions } = facts
  const { metadata, spec } = key
  const id = keyVersionId(metadata.uid, revision)
  // A key taken back while its plan is missing is bound to a product when it is first used.
  const product = plan?.spec.product ?? versions[0]?.product ?? record?.product ?? 'Media'
  const { key: stored } = await store.mintKey({
    id,
    keyId: metadata.uid,
    revision,
    tenant: metadata.namespace,
    name: metadata.name,
    subscription: subscriptionId(metadata.namespace, spec.planRef.name),
    product,
    hash: hashKey(apiKey),
    sealed: seal(apiKey, id, sealing, random(12)),
    prefix: shownPrefix(apiKey),
    state: 'pending',
    cap: capOf(facts, product),
    issuedAt: now,
    expiresAt: expiryOf(key),
    endedAt: null,
    overlapUntil: null,
    secretName: spec.secretName ?? null,
    tell: [],
  })
  return [...versions, stored].sort((a, b) => b.revision - a.revision)
}

async function putSecret({ resources, sealing }: KeyWork, name: string, version: KeyVersion, facts: Facts): Promise<Facts | 'gone'> {
  const apiKey = open(version.sealed, version.id, sealing)
  if (apiKey === null) return { ...facts, obstacle: { reason: 'SealingKeyMissing' } }
  const secret: KeySecret = { apiKey, keyId: version.id, mac: secretMac(version.id, apiKey, sealing) }
  const outcome = await resources.putSecret(facts.key, name, secret)
  if (outcome === 'gone') return 'gone'
  if (outcome === 'conflict') return { ...facts, obstacle: { reason: 'SecretConflict' }, found: null, secret: null }
  return { ...facts, found: secret, secret: foundOf(secret, sealing) }
}

function refOf({ kind, metadata: { namespace, name } }: ApiKeyResource): Ref {
  return { kind, namespace, name }
}

function ownerOf(key: ApiKeyResource): Ref & { uid: string } {
  return { ...refOf(key), uid: key.metadata.uid }
}

function isReady(conditions: { type: string; status: string }[] = []): boolean {
  return conditions.some(({ type, status }) => type === 'Ready' && status === 'True')
}
