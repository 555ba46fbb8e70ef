/** Finalizer of an ApiKey: a deleted ApiKey stays until its key is unusable and its Secrets are removed. */
import { Unavailable } from '../../../domain/errors.ts'
import type { Cache } from './informer-cache.ts'
import { unexpected, type Client } from './api-client.ts'
import { kept, resourcePath, type KubeObject } from './api-objects.ts'
import type { Owner } from './secrets.ts'

export const FINALIZER = 'tollgate.dev/key'

/** Other controllers may change the list of finalizers at the same time. */
const MAX_TRIES = 5

/**
 * Adds the finalizer to the resource of that uid, or removes it where it is not wanted. `gone`: it does not exist, or is being deleted without the finalizer.
 * Throws `Unavailable`.
 */
export async function setFinalizer(client: Client, cache: Cache, owner: Owner, isWanted: boolean): Promise<'done' | 'gone'> {
  const path = resourcePath(owner)
  let found = cache.get(owner.namespace, owner.name)
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    if (!found || found.metadata.uid !== owner.uid) return 'gone'
    const { finalizers = [], resourceVersion, deletionTimestamp } = found.metadata
    if (finalizers.includes(FINALIZER) === isWanted) return 'done'
    // The API server accepts no new finalizer on an object that is being deleted.
    if (isWanted && deletionTimestamp !== undefined) return 'gone'
    const wanted = isWanted ? [...finalizers, FINALIZER] : finalizers.filter((name) => name !== FINALIZER)
    const body = { metadata: { resourceVersion, finalizers: wanted } }
    const response = await client.request<KubeObject>('PATCH', path, { body, contentType: 'application/merge-patch+json' })
    if (response.status === 200) {
      cache.putWritten(kept(response.body))
      return 'done'
    }
    if (response.status === 404) return 'gone'
    if (response.status !== 409) throw unexpected('PATCH', path, response)
    const fresh = await client.request<KubeObject>('GET', path)
    if (fresh.status !== 200 && fresh.status !== 404) throw unexpected('GET', path, fresh)
    found = fresh.status === 200 ? fresh.body : null
  }
  throw new Unavailable('resources', new Error(`${path} changed during each of ${MAX_TRIES} tries to write its finalizers`))
}
