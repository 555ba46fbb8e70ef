/** The tenant of the contract of resources: what the proofs call its plan, its keys and their Secret, and how they look at them. */
import type { ApiKeyResource, KeySecret, Ref, Resources } from '../../../src/backends/resources/resources.ts'
import type { Place } from '../resources.ts'

export const studio = (place: Place): Ref => ({ kind: 'Plan', namespace: place.namespace('acme'), name: 'studio' })
export const ci = (place: Place, name = 'ci'): Ref => ({ kind: 'ApiKey', namespace: place.namespace('acme'), name })
export const SECRET: KeySecret = { apiKey: 'svc_live_first', keyId: 'uid-0', mac: 'aa' }

/** Opened and watching, with everything that was told so far. */
export async function watching(place: Place): Promise<{ resources: Resources; told: string[] }> {
  const resources = await place.open()
  const told: string[] = []
  const acme = place.namespace('acme')
  await resources.watch(({ kind, namespace, name }) => told.push(`${kind} ${namespace === acme ? 'acme' : namespace}/${name}`))
  return { resources, told }
}

export function keyOf(resources: Resources, ref: Ref): ApiKeyResource {
  const resource = resources.get(ref)
  if (resource?.kind !== 'ApiKey') throw new Error(`${ref.name} is no ApiKey`)
  return resource
}

export function ownerOf({ kind, metadata: { namespace, name, uid } }: ApiKeyResource): Ref & { uid: string } {
  return { kind, namespace, name, uid }
}
