/** Checks that specs, statuses, Secrets and store versions of the keys of one plan agree. */
import { hashKey, refusal } from '../../src/domain/api-keys.ts'
import { eventually } from '../flows/eventually.ts'
import { conditions } from '../domain/reconcile/reconcile-world.ts'
import { apiKey, codingPlan } from '../backends/resources/manifests.ts'
import { pathOf, type Answered } from '../servers/kube/api.ts'
import type { Operator } from './operator.ts'

export const KEYS = 8
export const named = (n: number, spec: Record<string, unknown> = {}) => apiKey(`k${n}`, 'coder', { secretName: `k${n}-key`, ...spec })
export const coder = (spec: Record<string, unknown> = {}) => codingPlan('coder', { keyPolicy: { maxKeys: 100 }, ...spec })

/** The first hash seen of each key version, since a changed hash means that it was minted twice; and whether the version was ever active. */
const minted = new WeakMap<Operator['store'], Map<string, { hash: string; wasUsed: boolean }>>()

/** The reason why a key is not active, or null. */
function unusable(spec: Answered, now: number): string | null {
  // Revocation takes precedence, since it is final.
  if (spec.state === 'Revoked') return 'KeyRevoked'
  if (spec.expirationTime !== undefined && now >= Date.parse(spec.expirationTime)) return 'KeyExpired'
  return spec.state === 'Active' ? null : `Key${spec.state}`
}

/** The differences from the specs; empty when everything agrees. */
async function disagreements(operator: Operator, now: number): Promise<string[]> {
  const namespace = operator.namespace('acme')
  const { body } = await operator.api.request('GET', pathOf({ kind: 'ApiKey', namespace }))
  const wrong: string[] = []
  const known = minted.get(operator.store) ?? new Map<string, { hash: string; wasUsed: boolean }>()
  minted.set(operator.store, known)
  for (const { metadata, spec, status } of body.items) {
    const versions = await operator.store.keyVersions(metadata.uid)
    // A key whose revision was raised before its first version was issued has no overlap.
    const isRotating = versions.some(({ revision, state }) => revision < spec.rotationRevision && state !== 'deleted')
    const reason = unusable(spec, now)
    const wanted = reason === null ? (isRotating ? 'True RotationInProgress' : 'True Issued') : `False ${reason}`
    const ready = conditions(status)['Ready']
    if (ready !== wanted || status?.observedGeneration !== metadata.generation) wrong.push(`${metadata.name}: ${ready} of generation ${status?.observedGeneration}, wanted ${wanted} of ${metadata.generation}`)
    const revisions = versions.map(({ revision }) => revision)
    if (new Set(revisions).size < revisions.length || versions.some(({ tell }) => tell.length > 0)) wrong.push(`${metadata.name}: versions ${revisions.join(', ')}`)
    // The former version has an overlap of an hour; older ones ended with the rotation.
    const [inUse, former, ...older] = versions.filter((version) => version.state !== 'pending' && (version.state !== 'deleted' || version.overlapUntil !== null))
    if (spec.state !== 'Revoked') for (const { id } of older.filter(({ state }) => state !== 'deleted')) wrong.push(`${metadata.name}: ${id} outlived ${former?.id}`)
    for (const { id, hash, state } of versions) {
      const before = known.get(id) ?? { hash, wasUsed: false }
      if (before.hash !== hash) wrong.push(`${metadata.name}: ${id} was minted twice`)
      if (before.wasUsed && state === 'deleted' && (id === inUse?.id || id === former?.id)) wrong.push(`${metadata.name}: ${id} ended before its overlap did`)
      known.set(id, { hash, wasUsed: before.wasUsed || state === 'active' })
    }
    const entries = await operator.secretEntries(namespace, spec.secretName)
    const held = entries && (await operator.store.findKey(hashKey(entries['api-key'] ?? '')))
    const isHeld = held !== null && held.keyId === metadata.uid && held.revision === spec.rotationRevision && refusal(held, now) === null
    const isCorrect = reason === null ? isHeld : entries === null
    if (reason !== null) for (const { id } of versions.filter((version) => refusal(version, now) === null)) wrong.push(`${metadata.name}: ${id} is usable`)
    if (!isCorrect) wrong.push(`${metadata.name}: its Secret holds ${held?.id ?? (entries ? 'an unknown key' : 'nothing')}`)
  }
  return wrong
}

/** Usable keys and Secrets whose ApiKey does not exist. */
export async function leftovers(operator: Operator): Promise<string[]> {
  const namespace = operator.namespace('acme')
  const { body: keys } = await operator.api.request('GET', pathOf({ kind: 'ApiKey', namespace }))
  const uids = new Set(keys.items.map(({ metadata }: Answered) => metadata.uid))
  const { body: secrets } = await operator.api.request('GET', operator.secretPath(''))
  const names = new Set(keys.items.map(({ spec }: Answered) => spec.secretName))
  const alive = await operator.store.keysAlive('', 1_000)
  return [
    ...alive.filter(({ keyId }) => !uids.has(keyId)).map(({ id }) => `${id} is usable`),
    ...secrets.items.filter(({ metadata }: Answered) => !names.has(metadata.name)).map(({ metadata }: Answered) => `the Secret ${metadata.name}`),
  ]
}

/** Waits until specs, status, Secrets and store agree, by the clock of the controllers. */
export async function agree(operator: Operator, clock: () => number = Date.now): Promise<void> {
  let last: string[] = []
  await eventually('everything to agree', async () => {
    last = await disagreements(operator, clock())
    return last.length === 0 ? true : null
  }).catch((error: Error) => {
    throw new Error(`${error.message}: ${last.join('; ')}`)
  })
}
