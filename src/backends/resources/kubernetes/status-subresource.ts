/** The status subresource, written by server-side apply and only where it differs. */
import { isDeepStrictEqual } from 'node:util'
import { API_VERSION, type ApiKeyStatus, type PlanStatus, type Ref } from '../resources.ts'
import type { Cache } from './informer-cache.ts'
import { unexpected, type Client } from './api-client.ts'
import { kept, resourcePath, type KubeObject } from './api-objects.ts'

type Status = PlanStatus | ApiKeyStatus

/** The manager of the fields that we own. */
export const FIELD_MANAGER = 'tollgate-controller'

/**
 * Writes the status of a resource. Returns the resource before, with the status that is replaced; `unchanged` when it says that already, `gone` when
 * it is not there any more. Throws `Unavailable`.
 */
export async function applyStatus(client: Client, cache: Cache, ref: Ref, status: Status): Promise<KubeObject | 'unchanged' | 'gone'> {
  const before = cache.get(ref.namespace, ref.name)
  if (!before) return 'gone'
  if (isDeepStrictEqual(before.status, status)) return 'unchanged'
  const { uid, namespace, name } = before.metadata
  const path = `${resourcePath(ref)}/status`
  // With its uid, so that an apply never creates one that went.
  const body = { apiVersion: API_VERSION, kind: ref.kind, metadata: { name, namespace, uid }, status }
  const query = { fieldManager: FIELD_MANAGER, force: 'true' }
  const answer = await client.request<KubeObject>('PATCH', path, { body, query, contentType: 'application/apply-patch+yaml' })
  if (answer.status === 404) return 'gone'
  if (answer.status !== 200) throw unexpected('PATCH', path, answer)
  cache.learn(kept(answer.body))
  return before
}
