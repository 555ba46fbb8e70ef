/** Keys that are issued, rotated and revoked from here: ApiKeys as any other author would write them. The watch tells of them as of any others. */
import { Unavailable } from '../../../domain/errors.ts'
import { API_VERSION, type ApiKeySpec, type ChangedKey, type IssuedKey, type KeyName, type Resources } from '../resources.ts'
import { isNamespaceGoing, unexpected, type Answer, type Client } from './api-client.ts'
import { collectionPath, COLLECTIONS, resourcePath, type KubeObject } from './api-objects.ts'

/** The manager of the fields that are written for a tenant's person. */
const FIELD_MANAGER = 'tollgate-api'
const MOST_TRIES = 5

export function openAuthoring(client: Client): Pick<Resources, 'issueKey' | 'rotateKey' | 'revokeKey'> {
  async function change(key: KeyName, fields: Partial<ApiKeySpec>): Promise<ChangedKey> {
    const path = resourcePath({ kind: 'ApiKey', ...key })
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const found = await client.request<KubeObject>('GET', path)
      if (found.status === 403) return { outcome: 'forbidden' }
      if (found.status === 404 || found.body.metadata?.deletionTimestamp !== undefined) return null
      if (found.status !== 200) throw unexpected('GET', path, found)
      const { uid, resourceVersion } = found.body.metadata
      const body = { metadata: { uid, resourceVersion }, spec: fields }
      const answer = await client.request<object>('PATCH', path, { body, query: { fieldManager: FIELD_MANAGER }, contentType: 'application/merge-patch+json' })
      if (answer.status === 200) return { outcome: 'changed' }
      if (answer.status === 404) return null
      // Somebody else was faster.
      if (answer.status !== 409) return declined('PATCH', path, answer)
    }
    throw new Unavailable('resources', new Error(`${path} changes faster than it can be written`))
  }

  return {
    async issueKey({ namespace, name, spec }): Promise<IssuedKey> {
      const path = collectionPath(COLLECTIONS.ApiKey, namespace)
      const body = { apiVersion: API_VERSION, kind: 'ApiKey', metadata: { name, namespace }, spec }
      const answer = await client.request<object>('POST', path, { body, query: { fieldManager: FIELD_MANAGER } })
      if (answer.status === 201) return { outcome: 'created' }
      if (answer.status === 409) return { outcome: 'exists' }
      if (answer.status === 404) return { outcome: 'refused', faults: ['metadata.namespace: it is not there'] }
      if (isNamespaceGoing(answer)) return { outcome: 'refused', faults: ['metadata.namespace: it is being deleted'] }
      return declined('POST', path, answer)
    },
    rotateKey: (key, rotationRevision) => change(key, { rotationRevision }),
    revokeKey: (key) => change(key, { state: 'Revoked' }),
  }
}

/** A right that we lack, or what the server says of the object: the sentences of the CRD, without what it repeats of the value. */
function declined(method: 'POST' | 'PATCH', path: string, answer: Answer<object>): { outcome: 'forbidden' } | { outcome: 'refused'; faults: string[] } {
  const { status, body } = answer
  if (status === 403) return { outcome: 'forbidden' }
  if (status !== 400 && status !== 422) throw unexpected(method, path, answer)
  const causes = body.details?.causes ?? []
  const faults = causes.map(({ field, message = '' }) => `${field ?? 'spec'}: ${message.replace(/^Invalid value: /, '')}`)
  return { outcome: 'refused', faults: faults.length > 0 ? faults : [body.message ?? 'it is not valid'] }
}
