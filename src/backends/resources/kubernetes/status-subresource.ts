/** Writes the status subresource by server-side apply, only where it differs. */
import { isDeepStrictEqual } from 'node:util'
import { API_VERSION, type ApiKeyStatus, type PlanStatus, type Ref } from '../resources.ts'
import type { Cache } from './informer-cache.ts'
import { unexpected, type Client } from './api-client.ts'
import { kept, resourcePath, type KubeObject } from './api-objects.ts'

type Status = PlanStatus | ApiKeyStatus

/** Field manager of the status. */
export const FIELD_MANAGER = 'tollgate-controller'

/**
 * Writes the status of a resource. Returns the resource with its former status; `unchanged` when the status is the same, `gone` when the resource was deleted.
 * Throws `Unavailable`.
 */
export async function applyStatus(client: Client, cache: Cache, ref: Ref, status: Status): Promise<KubeObject | 'unchanged' | 'gone'> {
  const before = cache.get(ref.namespace, ref.name)
  if (!before) return 'gone'
  if (isDeepStrictEqual(before.status, status)) return 'unchanged'
  const { uid, namespace, name } = before.metadata
  const path = `${resourcePath(ref)}/status`
  // The uid keeps the apply from creating a resource that was deleted.
  const body = { apiVersion: API_VERSION, kind: ref.kind, metadata: { name, namespace, uid }, status }
  const query = { fieldManager: FIELD_MANAGER, force: 'true' }
  const response = await client.request<KubeObject>('PATCH', path, { body, query, contentType: 'application/apply-patch+yaml' })
  if (response.status === 404) return 'gone'
  if (response.status !== 200) throw unexpected('PATCH', path, response)
  cache.putWritten(kept(response.body))
  return before
}
