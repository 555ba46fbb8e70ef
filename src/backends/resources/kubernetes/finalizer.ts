/** The finalizer of an ApiKey: while it is there, a deleted ApiKey stays until its key is unusable and its Secrets are gone. */
import { Unavailable } from '../../../domain/errors.ts'
import type { Cache } from './informer-cache.ts'
import { unexpected, type Client } from './api-client.ts'
import { kept, resourcePath, type KubeObject } from './api-objects.ts'
import type { Owner } from './secrets.ts'

export const FINALIZER = 'tollgate.dev/key'

/** Others change the same list. */
const MOST_TRIES = 5

/** Puts the finalizer on the resource of that uid. `gone`: it is not there, or about to go without it. Throws `Unavailable`. */
export function addFinalizer(client: Client, cache: Cache, owner: Owner): Promise<'done' | 'gone'> {
  return edit(client, cache, owner, (finalizers) => [...finalizers, FINALIZER], true)
}

/** Takes it off again. */
export function removeFinalizer(client: Client, cache: Cache, owner: Owner): Promise<'done' | 'gone'> {
  return edit(client, cache, owner, (finalizers) => finalizers.filter((name) => name !== FINALIZER), false)
}

async function edit(client: Client, cache: Cache, owner: Owner, change: (finalizers: string[]) => string[], isWanted: boolean): Promise<'done' | 'gone'> {
  const path = resourcePath(owner)
  let found = cache.get(owner.namespace, owner.name)
  for (let tries = 0; tries < MOST_TRIES; tries++) {
    if (!found || found.metadata.uid !== owner.uid) return 'gone'
    const { finalizers = [], resourceVersion, deletionTimestamp } = found.metadata
    if (finalizers.includes(FINALIZER) === isWanted) return 'done'
    // The server takes no new finalizer on what is being deleted.
    if (isWanted && deletionTimestamp !== undefined) return 'gone'
    const body = { metadata: { resourceVersion, finalizers: change(finalizers) } }
    const answer = await client.request<KubeObject>('PATCH', path, { body, contentType: 'application/merge-patch+json' })
    if (answer.status === 200) {
      cache.learn(kept(answer.body))
      return 'done'
    }
    if (answer.status === 404) return 'gone'
    if (answer.status !== 409) throw unexpected('PATCH', path, answer)
    const fresh = await client.request<KubeObject>('GET', path)
    if (fresh.status !== 200 && fresh.status !== 404) throw unexpected('GET', path, fresh)
    found = fresh.status === 200 ? fresh.body : null
  }
  throw new Unavailable('resources', new Error(`${path} changes faster than its finalizers can be written`))
}
