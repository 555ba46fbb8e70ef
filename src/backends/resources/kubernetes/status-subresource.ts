/** Writes the status subresource by server-side apply, only where it differs. */
import { isDeepStrictEqual } from 'node:util'
import { Unavailable } from '../../../domain/errors.ts'
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
  const query = { fieldManager: FIELD_MANAGER, force: 'true' }
  const apply = (written: Status) => {
    // The uid keeps the apply from creating a resource that was deleted.
    const body = { apiVersion: API_VERSION, kind: ref.kind, metadata: { name, namespace, uid }, status: written }
    return client.request<KubeObject>('PATCH', path, { body, query, contentType: 'application/apply-patch+yaml' })
  }
  const response = await apply(status).catch((error: unknown) => {
    if (!('usage' in status && isUsageUndeclared(error))) throw error
    const { usage: _usage, ...declared } = status
    return apply(declared)
  })
  if (response.status === 404) return 'gone'
  if (response.status !== 200) throw unexpected('PATCH', path, response)
  cache.putWritten(kept(response.body))
  return before
}

/**
 * Whether the CRD is of a release without `usage`, which an administrator may upgrade later than the program. The API server answers that
 * with 500 (kubernetes#139253).
 */
function isUsageUndeclared(error: unknown): boolean {
  return (
    error instanceof Unavailable &&
    error.cause instanceof Error &&
    error.cause.message.includes('.status.usage: field not declared in schema')
  )
}
