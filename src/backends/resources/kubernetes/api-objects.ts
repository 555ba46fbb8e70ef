/** What we read of the objects of a Kubernetes API server, and where they lie. */
import { API_VERSION, type Kind, type Ref } from '../resources.ts'

export type OwnerReference = { apiVersion: string; kind: string; name: string; uid: string; controller?: boolean }

export type KubeObject = {
  apiVersion?: string
  kind?: string
  metadata: {
    name: string
    namespace: string
    uid: string
    resourceVersion: string
    generation?: number
    creationTimestamp: string
    deletionTimestamp?: string
    finalizers?: string[]
    labels?: Record<string, string>
    annotations?: Record<string, string>
    ownerReferences?: OwnerReference[]
    managedFields?: unknown
  }
  spec?: unknown
  status?: unknown
  /** Of a Secret. */
  type?: string
  data?: Record<string, string>
}

export type List = { metadata: { resourceVersion: string; continue?: string }; items: KubeObject[] }

/** A collection of the API, in one namespace or in all of them. */
export type Collection = { prefix: string; plural: string }

export const COLLECTIONS: Record<Kind | 'Secret', Collection> = {
  Plan: { prefix: `/apis/${API_VERSION}`, plural: 'plans' },
  ApiKey: { prefix: `/apis/${API_VERSION}`, plural: 'apikeys' },
  Secret: { prefix: '/api/v1', plural: 'secrets' },
}

export function collectionPath({ prefix, plural }: Collection, namespace: string | null): string {
  return namespace === null ? `${prefix}/${plural}` : `${prefix}/namespaces/${encodeURIComponent(namespace)}/${plural}`
}

export function objectPath(collection: Collection, namespace: string, name: string): string {
  return `${collectionPath(collection, namespace)}/${encodeURIComponent(name)}`
}

export function resourcePath({ kind, namespace, name }: Ref): string {
  return objectPath(COLLECTIONS[kind], namespace, name)
}

/** An object as it is kept: without the bookkeeping of who wrote which field, which is often larger than the rest. A member that is deleted would make V8 keep the others in a hash table. */
export function kept(object: KubeObject): KubeObject {
  object.metadata.managedFields = undefined
  return object
}

/** True if version `a` of anything is later than `b`: they are decimal numbers that rise over the whole of a cluster (KEP-5504). */
export function isLater(a: string, b: string): boolean {
  return a.length === b.length ? a > b : a.length > b.length
}
