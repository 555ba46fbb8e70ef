/** Issues, rotates and revokes ApiKeys through the API server, as any other client would; the watch delivers them like all others. */
import { Unavailable } from '../../../domain/errors.ts'
import { API_VERSION, type ApiKeySpec, type ChangedKey, type IssuedKey, type KeyName, type Resources } from '../resources.ts'
import { isNamespaceTerminating, unexpected, type ApiResponse, type Client } from './api-client.ts'
import { collectionPath, COLLECTIONS, resourcePath, type KubeObject } from './api-objects.ts'

/** Field manager of writes on behalf of a person of a tenant. */
const FIELD_MANAGER = 'tollgate-api'
const MAX_TRIES = 5

export function openAuthoring(client: Client): Pick<Resources, 'issueKey' | 'rotateKey' | 'revokeKey'> {
  async function change(key: KeyName, fields: Partial<ApiKeySpec>): Promise<ChangedKey> {
    const path = resourcePath({ kind: 'ApiKey', ...key })
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const found = await client.request<KubeObject>('GET', path)
      if (found.status === 403) return { outcome: 'forbidden' }
      if (found.status === 404 || found.body.metadata?.deletionTimestamp !== undefined) return null
      if (found.status !== 200) throw unexpected('GET', path, found)
      const { uid, resourceVersion } = found.body.metadata
      const body = { metadata: { uid, resourceVersion }, spec: fields }
      const response = await client.request<object>('PATCH', path, { body, query: { fieldManager: FIELD_MANAGER }, contentType: 'application/merge-patch+json' })
      if (response.status === 200) return { outcome: 'changed' }
      if (response.status === 404) return null
      // 409: another client changed it in the meantime.
      if (response.status !== 409) return declined('PATCH', path, response)
    }
    throw new Unavailable('resources', new Error(`${path} changed during each of ${MAX_TRIES} tries to write it`))
  }

  return {
    async issueKey({ namespace, name, spec }): Promise<IssuedKey> {
      const path = collectionPath(COLLECTIONS.ApiKey, namespace)
      const body = { apiVersion: API_VERSION, kind: 'ApiKey', metadata: { name, namespace }, spec }
      const response = await client.request<object>('POST', path, { body, query: { fieldManager: FIELD_MANAGER } })
      if (response.status === 201) return { outcome: 'created' }
      if (response.status === 409) return { outcome: 'exists' }
      if (response.status === 404) return { outcome: 'refused', faults: ['metadata.namespace: does not exist'] }
      if (isNamespaceTerminating(response)) return { outcome: 'refused', faults: ['metadata.namespace: is being deleted'] }
      return declined('POST', path, response)
    },
    rotateKey: (key, rotationRevision) => change(key, { rotationRevision }),
    revokeKey: (key) => change(key, { state: 'Revoked' }),
  }
}

/** A missing permission, or the validation errors of the server without their prefix `Invalid value: `. */
function declined(method: 'POST' | 'PATCH', path: string, response: ApiResponse<object>): { outcome: 'forbidden' } | { outcome: 'refused'; faults: string[] } {
  const { status, body } = response
  if (status === 403) return { outcome: 'forbidden' }
  if (status !== 400 && status !== 422) throw unexpected(method, path, response)
  const causes = body.details?.causes ?? []
  const faults = causes.map(({ field, message = '' }) => `${field ?? 'spec'}: ${message.replace(/^Invalid value: /, '')}`)
  return { outcome: 'refused', faults: faults.length > 0 ? faults : [body.message ?? 'the ApiKey is not valid'] }
}
