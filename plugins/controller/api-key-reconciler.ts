/** ApiKey reconciler: gathers state, applies the steps of `reconcileKey` one by one, and writes the status. */
import {
  hashKey,
  keyVersionId,
  mint,
  open,
  seal,
  secretMac,
  shownPrefix,
  verifySecretMac,
  type KeyVersion,
  type SealingKeys,
} from '../../src/domain/api-keys.ts'
import { Refused, Unavailable } from '../../src/domain/errors.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { clusterRefused, expiryOf } from '../../src/domain/reconcile/not-ready-reasons.ts'
import { capOf } from '../../src/domain/reconcile/api-key-rotation.ts'
import { isAdmitted } from '../../src/domain/reconcile/max-keys.ts'
import {
  reconcileDeletedKey,
  reconcileKey,
  type FoundSecret,
  type GatheredKey,
  type KeyStep,
} from '../../src/domain/reconcile/reconcile-api-key.ts'
import type { ApiKeyResource, KeySecret, PlanResource, Ref, Resources } from '../../src/backends/resources/resources.ts'
import type { Store } from '../../src/backends/store/store.ts'

export type KeyContext = {
  store: Store
  resources: Resources
  /** Throws `Unavailable` if this process is not the leader: work begun under a lease must not be written after it. */
  assertLeading: () => void
  clock: () => number
  sealing: SealingKeys
  /** The part of a key before `_live_`. */
  prefix: string
  /** Returns that many random bytes. */
  random: (bytes: number) => Uint8Array
}

/**
 * Result of a pass. `touched` are the plans whose keys changed. `rejection` is the API server's rejection of a step, which the status shows. With
 * `waitingForPlan` the plan's own pass must come first.
 */
export type KeyPass = {
  requeueAt: number | null
  touched: string[]
  ready: 'becameReady' | 'alreadyReady' | 'notReady' | 'waitingForPlan'
  rejection: Unavailable | null
}

/** Ends a pass whose decisions never become steady, which is a bug. */
const MAX_STEPS = 400

type Facts = GatheredKey & { found: KeySecret | null }

/** One pass over an existing ApiKey. `siblings` are all keys of its plan. Throws `Unavailable`. */
export async function runKeyPass(context: KeyContext, key: ApiKeyResource, siblings: Iterable<ApiKeyResource>): Promise<KeyPass> {
  const ref = refOf(key)
  const touched = new Set<string>()
  const nothing: KeyPass = { requeueAt: null, touched: [], ready: 'notReady', rejection: null }
  let facts = await gather(context, key, siblings)
  let rejection: Unavailable | null = null
  const rejected = (error: unknown): Facts => {
    if (!(error instanceof Unavailable && error.cause instanceof Refused)) throw error
    rejection = error
    return { ...facts, obstacle: clusterRefused(error.cause.message) }
  }
  if (facts.versions.some(({ state }) => state !== 'deleted')) {
    // Someone may have removed the finalizer.
    const retained = await context.resources.retain(ownerOf(key)).catch(rejected)
    if (retained === 'gone') return nothing
    if (retained !== 'retained') facts = retained
  }
  for (let steps = 0; steps < MAX_STEPS; steps++) {
    const now = context.clock()
    const decision = reconcileKey(facts, now)
    if (decision.outcome === 'waiting') return { requeueAt: null, touched: [...touched], ready: 'waitingForPlan', rejection }
    context.assertLeading()
    if (decision.outcome === 'steady') {
      const { status, requeueAt } = decision
      await context.resources.setStatus(ref, status)
      const ready = !isReady(status.conditions) ? 'notReady' : isReady(facts.status?.conditions) ? 'alreadyReady' : 'becameReady'
      return { requeueAt, touched: [...touched], ready, rejection }
    }
    const next = await apply(context, decision.next, facts, now).catch(rejected)
    if (next === 'gone') return { ...nothing, touched: [...touched] }
    for (const version of [...facts.versions, ...next.versions]) touched.add(version.subscription)
    facts = next
  }
  throw new Error(`the ApiKey ${ref.namespace}/${ref.name} did not become steady in ${MAX_STEPS} steps`)
}

/** One pass over a deleted ApiKey: makes it unusable, removes its Secrets, then its finalizer. Returns the plans whose keys changed. Throws `Unavailable`. */
export async function runDeletedKeyPass(context: KeyContext, ref: Ref, uid: string): Promise<string[]> {
  const { store, resources, assertLeading, clock } = context
  let versions = await store.keyVersions(uid)
  let hasSecrets = true
  for (let step = reconcileDeletedKey(versions, hasSecrets, clock()); step; step = reconcileDeletedKey(versions, hasSecrets, clock())) {
    assertLeading()
    if (step.step === 'removeSecrets') {
      await resources.removeSecrets({ ...ref, uid })
      hasSecrets = false
    } else {
      versions = await applyToVersions(context, step, versions, clock())
    }
  }
  await resources.release({ ...ref, uid })
  return [...new Set(versions.map(({ subscription }) => subscription))]
}

async function gather(
  { store, resources, clock, sealing }: KeyContext,
  key: ApiKeyResource,
  siblings: Iterable<ApiKeyResource>,
): Promise<Facts> {
  const { namespace, uid } = key.metadata
  const { planRef, secretName } = key.spec
  const ref = refOf(key)
  const plan = resources.get({ kind: 'Plan', namespace, name: planRef.name }) as PlanResource | null
  const [record, versions, found, status] = await Promise.all([
    store.subscription(subscriptionId(namespace, planRef.name)),
    store.keyVersions(uid),
    secretName === undefined ? null : resources.secret(key, secretName),
    resources.status(ref),
  ])
  return {
    key,
    plan,
    record,
    isAdmitted: isAdmitted(key, siblings, plan, clock()),
    versions,
    found,
    secret: found && foundOf(found, sealing),
    obstacle: null,
    status,
  }
}

function foundOf({ apiKey, keyId, mac, isModified }: KeySecret & { isModified?: true }, sealing: SealingKeys): FoundSecret {
  return { keyId, hash: hashKey(apiKey), isProven: verifySecretMac(mac, keyId, apiKey, sealing), ...(isModified && { isModified }) }
}

async function apply(context: KeyContext, step: KeyStep, facts: Facts, now: number): Promise<Facts | 'gone'> {
  const { resources, prefix, random } = context
  const owner = ownerOf(facts.key)
  switch (step.step) {
    case 'mint':
      if ((await resources.retain(owner)) === 'gone') return 'gone'
      return { ...facts, versions: await storePending(context, mint(prefix, random(32)), step.revision, facts, now) }
    case 'restoreFromSecret':
      if ((await resources.retain(owner)) === 'gone') return 'gone'
      return { ...facts, versions: await storePending(context, facts.found?.apiKey ?? '', step.revision, facts, now) }
    case 'putSecret':
      return putSecret(context, step.name, step.version, facts)
    case 'removeSecrets':
      await resources.removeSecrets(owner)
      return { ...facts, found: null, secret: null }
    default:
      return { ...facts, versions: await applyToVersions(context, step, facts.versions, now) }
  }
}

async function applyToVersions({ store }: KeyContext, step: KeyStep, versions: KeyVersion[], now: number): Promise<KeyVersion[]> {
  if (step.step === 'notify') {
    const { id, tell } = step.version
    for (const subscription of tell) await store.change(subscription, { op: 'keysChanged' }, now)
    await store.told(id, tell)
    return versions.map((version) =>
      version.id === id ? { ...version, tell: version.tell.filter((subscription) => !tell.includes(subscription)) } : version,
    )
  }
  if (step.step !== 'set') throw new TypeError(`${step.step} changes no version`)
  const changed = await store.setKey(step.id, step.change, step.notify)
  if (!changed) throw new Error(`the key version ${step.id} is no longer in the store`)
  return versions.map((version) => (version.id === changed.id ? changed : version))
}

/** Stores a pending version, which becomes active once its Secret is written. Returns all versions, newest first. */
async function storePending(
  { store, sealing, random }: KeyContext,
  apiKey: string,
  revision: number,
  facts: Facts,
  now: number,
): Promise<KeyVersion[]> {
  const { key, plan, record, versions } = facts
  const { metadata, spec } = key
  const id = keyVersionId(metadata.uid, revision)
  // A key restored while its plan is missing gets its final product when it is first used.
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

async function putSecret({ resources, sealing }: KeyContext, name: string, version: KeyVersion, facts: Facts): Promise<Facts | 'gone'> {
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
