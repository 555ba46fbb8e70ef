/** Issues, reads and changes ApiKeys through the API server, as any other client would; the watch delivers them like all others. */
import { Unavailable } from '../../../domain/errors.ts'
import {
  API_VERSION,
  MAX_KEYS,
  type ApiKeyResource,
  type ApiKeyStatus,
  type ChangedKey,
  type DeclaredKey,
  type IssuedKey,
  type KeyEdit,
  type KeyName,
  type Resources,
  type SeenKey,
} from '../resources.ts'
import { isNamespaceTerminating, unexpected, type ApiResponse, type Client } from './api-client.ts'
import { collectionPath, COLLECTIONS, resourcePath, type KubeObject, type List } from './api-objects.ts'

/** Field manager of writes on behalf of a person of a tenant. */
const FIELD_MANAGER = 'tollgate-api'
const MAX_TRIES = 5

export function openAuthoring(client: Client): Pick<Resources, 'issueKey' | 'changeKey' | 'readKeys'> {
  async function changeKey(key: KeyName, edit: KeyEdit, seen?: SeenKey): Promise<ChangedKey> {
    const path = resourcePath({ kind: 'ApiKey', ...key })
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const found = await client.request<KubeObject>('GET', path)
      if (found.status === 403) return { outcome: 'forbidden' }
      if (found.status === 404 || found.body.metadata?.deletionTimestamp !== undefined) return null
      if (found.status !== 200) throw unexpected('GET', path, found)
      const { uid, resourceVersion, generation } = found.body.metadata
      if (seen && (seen.uid !== uid || seen.generation !== generation)) return { outcome: 'conflict' }
      // A merge patch keeps the members that it does not name, and a limit has only one.
      const spec = 'limit' in edit && edit.limit ? { limit: { weeklyTokens: null, amountPerPeriod: null, ...edit.limit } } : edit
      const body = { metadata: { uid, resourceVersion }, spec }
      const response = await client.request<object>('PATCH', path, {
        body,
        query: { fieldManager: FIELD_MANAGER },
        contentType: 'application/merge-patch+json',
      })
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
    changeKey,
    async readKeys(namespace, name) {
      const path = name === undefined ? collectionPath(COLLECTIONS.ApiKey, namespace) : resourcePath({ kind: 'ApiKey', namespace, name })
      const response = await client.request<Pick<List, 'items'> | KubeObject>(
        'GET',
        path,
        name === undefined ? { query: { limit: String(MAX_KEYS) } } : {},
      )
      if (response.status === 403) return { outcome: 'forbidden' }
      if (response.status === 404) return { outcome: 'read', keys: [] }
      if (response.status !== 200) throw unexpected('GET', path, response)
      const objects = 'items' in response.body ? response.body.items : [response.body]
      return { outcome: 'read', keys: objects.filter(({ metadata }) => metadata.deletionTimestamp === undefined).map(declaredOf) }
    },
  }
}

/** Items of a list lack `apiVersion` and `kind`. */
function declaredOf({ metadata, spec, status }: KubeObject): DeclaredKey {
  const { name, namespace, uid, generation = 1, creationTimestamp } = metadata
  const key = {
    apiVersion: API_VERSION,
    kind: 'ApiKey',
    metadata: { name, namespace, uid, generation, creationTimestamp },
    spec,
  } as ApiKeyResource
  const written = status as Partial<ApiKeyStatus> | undefined
  return { key, status: Array.isArray(written?.conditions) ? (written as ApiKeyStatus) : null }
}

/** A missing permission, or the validation errors of the server without their prefix `Invalid value: `. */
function declined(
  method: 'POST' | 'PATCH',
  path: string,
  response: ApiResponse<object>,
): { outcome: 'forbidden' } | { outcome: 'refused'; faults: string[] } {
  const { status, body } = response
  if (status === 403) return { outcome: 'forbidden' }
  if (status !== 400 && status !== 422) throw unexpected(method, path, response)
  const causes = body.details?.causes ?? []
  const faults = causes.map(({ field, message = '' }) => `${field ?? 'spec'}: ${message.replace(/^Invalid value: /, '')}`)
  return { outcome: 'refused', faults: faults.length > 0 ? faults : [body.message ?? 'the ApiKey is not valid'] }
}
