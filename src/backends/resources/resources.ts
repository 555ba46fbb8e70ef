/**
 * BACKEND for Plans and ApiKeys (`tollgate.dev/v1alpha1`): Kubernetes custom resources, or the same manifests in a folder. Every resource that this backend
 * returns is valid by `crds/*.yaml` with its CEL rules, and has its defaults filled in.
 */
export const API_VERSION = 'tollgate.dev/v1alpha1'

/** The most ApiKeys of a tenant that are read for a person; the dashboard issues no more. */
export const MAX_KEYS = 500

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
  secretTemplate?: SecretTemplate
}

/** What a key's Secret has besides the key. In the texts of `data`, `$(api-key)` and `$(key-id)` stand for the key and its id. */
export type SecretTemplate = { labels?: Record<string, string>; annotations?: Record<string, string>; data?: Record<string, string> }

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
  /** Absent while nothing was used. */
  usage?: PlanUsage
  conditions: Condition[]
}

/** What a plan has used: of its windows with `coding`, of its running period with `media`. */
export type PlanUsage = {
  /** RFC 3339, UTC: when it was written. */
  time: string
  sessionTokens?: number
  weeklyTokens?: number
  /** A decimal string. */
  burned?: string
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

/** Content of a key's Secret: entries `api-key` and `key-id` (the id of the key's version), and the annotation that proves that the controller wrote it. */
export type KeySecret = { apiKey: string; keyId: string; mac: string }

/** Every entry of a key's Secret, by its name: those of the template, the key and its id. */
export function secretEntries({ apiKey, keyId }: KeySecret, { data = {} }: SecretTemplate = {}): Record<string, string> {
  const entries = Object.entries(data).map(([name, text]) => [
    name,
    text.replaceAll('$(api-key)', () => apiKey).replaceAll('$(key-id)', () => keyId),
  ])
  return { ...Object.fromEntries(entries), 'api-key': apiKey, 'key-id': keyId }
}

const KEY_LENGTH_MAX = 200

/**
 * Whether a Secret that was found can hold a key, and may be expanded in a template. Others can write to it, and a template repeats its
 * texts: a long one would take gigabytes.
 */
export function isKeySized({ apiKey, keyId }: KeySecret): boolean {
  return apiKey.length <= KEY_LENGTH_MAX && keyId.length <= KEY_LENGTH_MAX
}

/** `conflict`: a Secret of that name has a different owner and was not changed. `gone`: the owner was deleted, and no Secret was left behind. */
export type SecretOutcome = 'written' | 'unchanged' | 'conflict' | 'gone'

export type KeyName = { namespace: string; name: string }

/** A key to issue; members left out of its spec have their defaults. */
export type NewKey = KeyName & { spec: Pick<ApiKeySpec, 'planRef'> & Partial<ApiKeySpec> }

/** `faults` are sentences that begin with the place in the manifest. `forbidden`: this process may read the source but not write it. */
type Declined = { outcome: 'refused'; faults: string[] } | { outcome: 'forbidden' }
/** `exists`: an ApiKey of that name exists and was not changed. `full`: the source takes no further one. */
export type IssuedKey = { outcome: 'created' } | { outcome: 'exists' } | { outcome: 'full' } | Declined
/** `conflict`: it is not what the author has seen, and was not changed. Null when the key does not exist. */
export type ChangedKey = { outcome: 'changed' | 'conflict' } | Declined | null
/** One field of an ApiKey's spec. A rotation raises the revision by 1; `limit: null` removes the limit. */
export type KeyEdit = Pick<ApiKeySpec, 'state'> | Pick<ApiKeySpec, 'rotationRevision'> | { limit: NonNullable<ApiKeySpec['limit']> | null }
/** An ApiKey as its author has seen it last. The generation rises with every change of the spec. */
export type SeenKey = Pick<Metadata, 'uid' | 'generation'>
/** An ApiKey as the source has it now, and its status if the controller has written one. */
export type DeclaredKey = { key: ApiKeyResource; status: ApiKeyStatus | null }

/** What the `files:` source stores per resource in place of Kubernetes: identity, generation and the last accepted document. */
export type Declaration = {
  ref: Ref
  uid: string
  createdAt: number
  generation: number
  labels?: Record<string, string>
  annotations?: Record<string, string>
  spec: PlanSpec | ApiKeySpec
}
export type Declarations = {
  declarations(): Promise<Declaration[]>
  /** Stores a declaration, in place of an earlier one of the same ref. */
  declare(declaration: Declaration): Promise<void>
  /** Removes a declaration: a later resource of that name is a new one. */
  undeclare(ref: Ref): Promise<void>
}

export type Resources = {
  /**
   * Starts watching. `changed` is called with the ref of every resource at the start, and then of each resource that changed or was deleted, or whose Secret
   * someone else changed; it must be called more often than needed. Read the present state with `get`. Resolves when the first list is complete.
   */
  watch(changed: (ref: Ref) => void): Promise<void>
  /**
   * Lists everything again, so that the caches are no older than this call: a new leader's watches may have been silent for a while. Failures are retried.
   * Throws `Unavailable` once the source is closed.
   */
  refresh(): Promise<void>
  /** Whether this source covers the namespace and has listed it. Only then does a missing resource mean a deleted one. */
  serves(namespace: string): boolean
  /**
   * `ok` once the first list is complete and while the source, or some part of it, can be read. `detail` is a public sentence. `refused` manifests are in a
   * folder only: an API server stores none.
   */
  health(): { ok: boolean; detail: string; refused?: number }
  get(ref: Ref): Resource | null
  list(kind: 'Plan', namespace?: string): PlanResource[]
  list(kind: 'ApiKey', namespace?: string): ApiKeyResource[]
  /** Writes the status if it differs from the present one. False when the resource was deleted. */
  setStatus(ref: Ref, status: PlanStatus | ApiKeyStatus): Promise<boolean>
  status(ref: Ref): Promise<PlanStatus | ApiKeyStatus | null>
  /** False for a resource that was created, edited or deleted since its status was written. The `files:` source always returns true. */
  isObserved(ref: Ref): boolean
  /** Writes the key's Secret of that name if it differs from the present one. */
  putSecret(owner: ApiKeyResource, name: string, secret: KeySecret): Promise<SecretOutcome>
  /** The Secret of that name if `owner` owns it. `isModified`: apart from the key it differs from what `putSecret` writes. */
  secret(owner: ApiKeyResource, name: string): Promise<(KeySecret & { isModified?: true }) | null>
  /** Removes every Secret owned by that ApiKey. */
  removeSecrets(owner: Ref & { uid: string }): Promise<void>
  /**
   * Puts a finalizer on the ApiKey: once deleted it stays until `release`, without being in `get` and `list`. Call it before anything of
   * the key exists. `gone`: it was deleted already. The `files:` source has no finalizers: there a deleted key is gone at once, and
   * `terminating` is always null.
   */
  retain(owner: Ref & { uid: string }): Promise<'retained' | 'gone'>
  /** Removes the finalizer. */
  release(owner: Ref & { uid: string }): Promise<void>
  /** The deleted resource of that name that waits for its release, or null. */
  terminating(ref: Ref): { uid: string } | null
  /**
   * Creates an ApiKey. This and the next two act for a person of the tenant, without a watch; the controller reconciles the key as any
   * other. Throw `Unavailable`.
   */
  issueKey(key: NewKey): Promise<IssuedKey>
  /**
   * Changes one field of a key. Idempotent; what the CRD forbids is refused: a lower revision, and everything once it is revoked. With
   * `seen` it is changed only if it is still that one.
   */
  changeKey(key: KeyName, edit: KeyEdit, seen?: SeenKey): Promise<ChangedKey>
  /** The ApiKeys of a tenant, up to `MAX_KEYS`, or the one of that name; those being deleted are left out. */
  readKeys(namespace: string, name?: string): Promise<{ outcome: 'read'; keys: DeclaredKey[] } | { outcome: 'forbidden' }>
  /**
   * Starts leader election among the controllers of this source; `changed` is called on every change. A source without other controllers calls it at once.
   * Resolves when the first try has ended, with or without success.
   */
  lead(changed: (isLeading: boolean) => void): Promise<void>
  /** Whether this process is the leader now, by its own clock; `changed` may be called later. Check it before each write. */
  isLeading(): boolean
  /** Gives up leadership; call it once no work is in progress. `changed` is not called any more. */
  resign(): Promise<void>
  /** Statistics of the connection to the API server; null for a source without one. */
  stats(): ApiServerStats | null
  /** Calls `observer` after each request to the API server, watches excepted. */
  observe(observer: (method: string, seconds: number) => void): void
  close(): Promise<void>
}

/** Counts since the start of the process. */
export type ApiServerStats = {
  /** Host of the server, with its port unless it is the default. */
  host: string
  /** Name of the Lease of the leader election. */
  lease: string
  requests: { method: string; code: string; count: number }[]
  lists: number
  /** Watches started. */
  watches: number
  /** Lists and watches that failed. */
  failures: number
  /** Changes that a watch missed and a later list found. */
  missed: number
  /** Age of the last event of the watch that has been silent longest, or of its first list; null before that. */
  lastEventAgeMs: number | null
}

export type ResourcesConfig = {
  url: string
  /** Folder that holds `secrets/` and `status/` on the `files:` side. */
  dataDir: string
  /** Environment variables by which kubectl and pods find a cluster, for `kubernetes:`; a credential plugin inherits them. */
  environment: Record<string, string | undefined>
  declarations: Declarations
  log: { info(o: object, m: string): void; warn(o: object, m: string): void; error(o: object, m: string): void }
}

/**
 * Opens the source of `url`: `files:<folder>` or `kubernetes:[?namespace=a,b]`. Throws `Unavailable` if the declarations cannot be read
 * now, and an Error with a sentence for the operator if a retry would not help. `clock` (epoch milliseconds) gives the creation times of
 * resources in files.
 */
export async function openResources(config: ResourcesConfig, clock: () => number): Promise<Resources> {
  if (config.url.startsWith('files:')) {
    const { openFiles } = await import('./manifests/manifests.ts')
    return openFiles(config, { clock })
  }
  if (config.url.startsWith('kubernetes:')) {
    const { openKubernetes } = await import('./kubernetes/kubernetes.ts')
    return openKubernetes(config)
  }
  throw new Error(`RESOURCES_URL has the unknown scheme ${config.url.split(':')[0]}: it must be files:<folder> or kubernetes:.`)
}
