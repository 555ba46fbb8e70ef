/** What we read of the objects of a Kubernetes API server, and where they lie. */
import type { V1ListMeta, V1ObjectMeta, V1Secret } from '@kubernetes/client-node'
import { API_VERSION, type Kind, type Ref } from '../resources.ts'

/** A type of the client library as its JSON on the wire, where dates are strings. */
export type Wire<T> = T extends Date ? string : T extends object ? { [Name in keyof T]: Wire<T[Name]> } : T

type Metadata = Wire<Omit<V1ObjectMeta, 'managedFields'>> & { managedFields?: unknown }

/** A Plan, an ApiKey or a Secret, with what the server always sets. */
export type KubeObject = Pick<Wire<V1Secret>, 'apiVersion' | 'kind' | 'type' | 'data'> & {
  metadata: Metadata & Required<Pick<Metadata, 'name' | 'namespace' | 'uid' | 'resourceVersion' | 'creationTimestamp'>>
  spec?: unknown
  status?: unknown
}

/** The library's name of `continue` differs from the wire's. */
export type List = { metadata: Required<Pick<V1ListMeta, 'resourceVersion'>> & { continue?: string }; items: KubeObject[] }

/** A collection of the API, in one namespace or in all of them. `crd`: the CustomResourceDefinition without which the API server does not know it. */
export type Collection = { prefix: string; plural: string; crd?: string }

export const COLLECTIONS: Record<Kind | 'Secret', Collection> = {
  Plan: { prefix: `/apis/${API_VERSION}`, plural: 'plans', crd: 'plans.tollgate.dev' },
  ApiKey: { prefix: `/apis/${API_VERSION}`, plural: 'apikeys', crd: 'apikeys.tollgate.dev' },
  Secret: { prefix: '/api/v1', plural: 'secrets' },
}

/** The path of a collection; of all namespaces with null. */
export function collectionPath({ prefix, plural }: Collection, namespace: string | null): string {
  return namespace === null ? `${prefix}/${plural}` : `${prefix}/namespaces/${encodeURIComponent(namespace)}/${plural}`
}

/** The path of an object. */
export function objectPath(collection: Collection, namespace: string, name: string): string {
  return `${collectionPath(collection, namespace)}/${encodeURIComponent(name)}`
}

/** The path of a Plan or an ApiKey. */
export function resourcePath({ kind, namespace, name }: Ref): string {
  return objectPath(COLLECTIONS[kind], namespace, name)
}

/**
 * An object as it is kept: without the bookkeeping of who wrote which field, which is often larger than the rest. A member that is deleted
 * would make V8 keep the others in a hash table.
 */
export function kept(object: KubeObject): KubeObject {
  object.metadata.managedFields = undefined
  return object
}

/** True if version `a` of anything is later than `b`: they are decimal numbers that rise over the whole of a cluster (KEP-5504). */
export function isLater(a: string, b: string): boolean {
  return a.length === b.length ? a > b : a.length > b.length
}
