/**
 * BACKEND: what operators declared. Plans and ApiKeys of `tollgate.dev/v1alpha1`, as Kubernetes custom resources or as the same
 * manifests in a folder. What comes through this backend is valid against `crds/*.yaml`, its CEL rules included, and has the defaults filled in.
 */
export const API_VERSION = 'tollgate.dev/v1alpha1'

export type Product = 'Room' | 'Media' | 'Coding'

export type Metadata = {
  name: string
  /** The tenant. */
  namespace: string
  uid: string
  /** Rises by one with every change of the spec. */
  generation: number
  /** RFC 3339, UTC. */
  creationTimestamp: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
}

/** A price in a Plan, over the service's price list; `amount` is a decimal string. */
export type PriceSpec = { kind?: string; operation?: string; amount: string; per: 'Job' | 'Second' | 'Megapixel' }

export type PlanSpec = {
  product: Product
  state: 'Active' | 'Suspended' | 'Retired'
  startTime?: string
  expirationTime?: string
  displayName?: string
  media?: {
    allowance: string
    periodDays?: number
    periodMonths?: number
    maxConcurrentTasks: number
    maxQueuedTasks: number
    attempts: number
    prices?: PriceSpec[]
  }
  coding?: {
    sessionWindow: { tokens: number; durationSeconds: number }
    weeklyWindow: { tokens: number }
    weights: { input: number; cachedInput: number; output: number }
    onAbort: 'Cancel' | 'Drain'
    maxConcurrentRequests: number
    maxOutputTokens: number
  }
  requestsPerMinute: number
  keyPolicy: { maxKeys: number; rotationOverlapSeconds: number }
}

export type ApiKeySpec = {
  planRef: { name: string }
  secretName?: string
  state: 'Active' | 'Suspended' | 'Revoked'
  rotationRevision: number
  expirationTime?: string
  limit?: { weeklyTokens?: number; amountPerPeriod?: string }
}

export type PlanResource = { apiVersion: typeof API_VERSION; kind: 'Plan'; metadata: Metadata; spec: PlanSpec }
export type ApiKeyResource = { apiVersion: typeof API_VERSION; kind: 'ApiKey'; metadata: Metadata; spec: ApiKeySpec }
export type Resource = PlanResource | ApiKeyResource
export type Kind = Resource['kind']

/** Names one resource. Two refs with equal members are the same resource, present or not. */
export type Ref = { kind: Kind; namespace: string; name: string }

/** A condition as in `metav1.Condition`. */
export type Condition = {
  type: string
  status: 'True' | 'False' | 'Unknown'
  reason: string
  message: string
  observedGeneration: number
  lastTransitionTime: string
}

export type PlanStatus = {
  observedGeneration: number
  activeKeys: number
  /** RFC 3339, UTC: when the running media period ends. */
  periodEndTime?: string
  conditions: Condition[]
}

export type ApiKeyStatus = {
  observedGeneration: number
  keyID?: string
  keyPrefix?: string
  rotationRevision?: number
  issuedTime?: string
  secretRef?: { name: string }
  conditions: Condition[]
}

/** What a key's Secret holds: entries `api-key` and `key-id` (the id of the key's version), and the annotation that proves we wrote it. */
export type KeySecret = { apiKey: string; keyId: string; mac: string }

/** `conflict`: a Secret of that name belongs to somebody else, and was left alone. `gone`: the owner is not there any more, and nothing was left behind. */
export type SecretOutcome = 'written' | 'unchanged' | 'conflict' | 'gone'

export type KeyName = { namespace: string; name: string }

/** A key to be issued; what is left out of its spec has the default. */
export type NewKey = KeyName & { spec: Pick<ApiKeySpec, 'planRef'> & Partial<ApiKeySpec> }

/** `faults` are the sentences of the CRD, each beginning with the place. `forbidden`: what is declared cannot be written from here, only read. */
type Declined = { outcome: 'refused'; faults: string[] } | { outcome: 'forbidden' }
/** `exists`: there is an ApiKey of that name, which was left as it is. */
export type IssuedKey = { outcome: 'created' | 'exists' } | Declined
/** Null: there is no such key. */
export type ChangedKey = { outcome: 'changed' } | Declined | null

/** Where the `files:` source keeps what Kubernetes would keep for it: identity, generation and the last accepted spec. */
export type Declaration = {
  ref: Ref
  uid: string
  createdAt: number
  generation: number
  spec: PlanSpec | ApiKeySpec
}
export type Declarations = {
  /** All that are declared now. */
  declarations(): Promise<Declaration[]>
  /** Stores one, in place of an earlier one of the same ref. */
  declare(declaration: Declaration): Promise<void>
  /** Forgets one: a resource of that name that comes later is a new one. */
  undeclare(ref: Ref): Promise<void>
}

export type Resources = {
  /**
   * Starts looking. `changed` is called with the ref of every resource at the start, and then of each that changed, went, or whose Secret was touched by
   * somebody else; possibly more often than needed. Read the present with `get`. Resolves when the first look is complete.
   */
  watch(changed: (ref: Ref) => void): Promise<void>
  /**
   * Looks again at everything, so that what is known is no older than this call: who takes over from another may have heard nothing for a while. What cannot be looked
   * at is tried again until it can. Throws `Unavailable` once it is closed.
   */
  refresh(): Promise<void>
  /** Whether this source is asked about that namespace and knows what is declared there. Only then is what it does not name gone. */
  serves(namespace: string): boolean
  /** True once the first look is complete and while the source, or some part of it, can be read. `detail` says what is wrong, in public words. */
  health(): { ok: boolean; detail: string }
  get(ref: Ref): Resource | null
  list(kind: 'Plan', namespace?: string): PlanResource[]
  list(kind: 'ApiKey', namespace?: string): ApiKeyResource[]
  /** Writes the status if it differs from what is there. False when the resource is gone. */
  setStatus(ref: Ref, status: PlanStatus | ApiKeyStatus): Promise<boolean>
  status(ref: Ref): Promise<PlanStatus | ApiKeyStatus | null>
  /** False for a resource that was declared, edited or deleted since its status was written. A source that would have to look for it says true. */
  isObserved(ref: Ref): boolean
  /** Writes the key's Secret of that name if it differs from what is there. */
  putSecret(owner: ApiKeyResource, name: string, secret: KeySecret): Promise<SecretOutcome>
  /** The Secret of that name if `owner` owns it. `isSpoiled`: something beside what it holds is not as `putSecret` writes it. */
  secret(owner: Ref & { uid: string }, name: string): Promise<(KeySecret & { isSpoiled?: true }) | null>
  /** Removes every Secret owned by that ApiKey. */
  removeSecrets(owner: Ref & { uid: string }): Promise<void>
  /**
   * From now on the ApiKey, once deleted, stays until `release`; `get` and `list` no longer show it then. Do so before anything of it exists. `gone`: too late. A folder
   * keeps nothing that its author removes: there it is gone when that is told, and `going` knows of none.
   */
  retain(owner: Ref & { uid: string }): Promise<'retained' | 'gone'>
  /** Nothing of a deleted ApiKey is left, it may go. */
  release(owner: Ref & { uid: string }): Promise<void>
  /** The deleted resource of that name that waits for its release, or null. */
  going(ref: Ref): { uid: string } | null
  /** Declares an ApiKey. That and the next two are for people who act for a tenant; the controller does the rest, as with what others declare. Throw `Unavailable`. */
  issueKey(key: NewKey): Promise<IssuedKey>
  /** Sets the revision of a key, which is one more than it was. Asking twice rotates once; a lower one is refused. */
  rotateKey(key: KeyName, revision: number): Promise<ChangedKey>
  /** Revokes a key for good; `changed` also if it was revoked before. */
  revokeKey(key: KeyName): Promise<ChangedKey>
  /**
   * Begins to try to become the one controller that acts on this source; `changed` tells each time that it became or ceased to be. A source that is ours alone says
   * so at once. Resolves when the first try has ended, however it did.
   */
  lead(changed: (isLeading: boolean) => void): Promise<void>
  /** Whether this process may act on the source now, by its own clock; `changed` may be told later. To be asked before each act. */
  isLeading(): boolean
  /** Lets another one lead, once nothing is under way here. `changed` hears no more. */
  resign(): Promise<void>
  /** What happened between us and a server; null where there is none. */
  figures(): SourceFigures | null
  /** Tells `observer` of each request to a server when it has ended, watches excepted. */
  observe(observer: (method: string, seconds: number) => void): void
  close(): Promise<void>
}

/** Counts since the start. */
export type SourceFigures = {
  /** The server, with its port unless that goes without saying. */
  host: string
  /** The name of the Lease by which one leads. */
  lease: string
  requests: { method: string; code: string; count: number }[]
  lists: number
  /** Watches begun. */
  watches: number
  /** Lists and watches that failed. */
  failures: number
  /** Changes that a watch had passed without telling, and a list found. */
  missed: number
  /** Since the watch that is silent longest last said anything, or its first list; null before that. */
  lastEventAgeMs: number | null
}

export type ResourcesConfig = {
  url: string
  /** Folder that holds `secrets/` and `status/` on the `files:` side. */
  dataDir: string
  /** The variables by which kubectl and pods find a cluster, on the `kubernetes:` side; a credential plugin inherits them. */
  environment: Record<string, string | undefined>
  declarations: Declarations
  log: { info(o: object, m: string): void; warn(o: object, m: string): void; error(o: object, m: string): void }
}

/**
 * Opens the source named by `url`: `files:<folder>` or `kubernetes:[?namespace=a,b]`. Throws `Unavailable` if the declarations cannot be read now, and an Error whose sentence tells the operator
 * what to do if trying again would not help.
 */
export async function openResources(config: ResourcesConfig): Promise<Resources> {
  if (config.url.startsWith('files:')) {
    const { openFiles } = await import('./files/files.ts')
    return openFiles(config)
  }
  if (config.url.startsWith('kubernetes:')) {
    const { openKubernetes } = await import('./kubernetes/kubernetes.ts')
    return openKubernetes(config)
  }
  throw new Error(`RESOURCES_URL has the unknown scheme ${config.url.split(':')[0]}: it may be files:<folder> or kubernetes:.`)
}
