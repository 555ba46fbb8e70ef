/**
 * Every limit that refuses a request with 429 or 503: the values of the header `X-SVC-Limit` and of `limit` in the log. Each has the code that it
 * answers, and what is limited, in public words. `docs/errors.md` is generated from this list.
 */
export const LIMITS = {
  plan_rate: ['rate_limited', 'requests a minute that create something, of the plan: `requestsPerMinute`'],
  key_reads: ['rate_limited', 'reads a minute of one key at one gateway: 6,000'],
  session_requests: ['rate_limited', 'requests a minute of one dashboard session at one gateway: 600, and 6,000 of its AI Room'],
  sign_ins: ['rate_limited', 'sign-ins a minute from one address at one gateway: 120'],
  waiting_sign_ins: ['server_overloaded', 'sign-ins that wait for the sign-in provider together at one gateway: 16'],
  failed_redeliveries: [
    'rate_limited',
    'redeliveries of one webhook that failed in a row: a pause of 30 s, 2 min, 10 min, then 1 h after each',
  ],
  plan_queue: ['queue_full', 'open tasks of the plan: `maxQueuedTasks`'],
  plan_concurrency: ['concurrency_limit', 'coding requests in flight of the plan: `maxConcurrentRequests`'],
  event_streams: ['concurrency_limit', 'event streams open at once of one key, or dashboard session, at one gateway: 20'],
  downloads: ['concurrency_limit', 'downloads open at once of one file (500), or for one address (250), at one gateway'],
  arriving_uploads: ['concurrency_limit', 'uploads of one tenant that arrive at once at one gateway: 4'],
  stored_uploads: ['upload_limit', 'stored uploads of the tenant: 1,000, or 2 GiB'],
  session_tokens: ['session_limit_reached', 'the session token window'],
  weekly_tokens: ['weekly_limit_reached', 'the weekly token window'],
  key_tokens: ['key_limit_reached', "the key's share in the weekly token window"],
  reserved_tokens: ['window_reserved', 'what requests in flight have reserved of a token window'],
  body_memory: [
    'server_overloaded',
    'memory of bodies in one gateway: `BODY_MEMORY_MIB`; a tenant may hold as much as is still free for everyone',
  ],
  upstreams: ['server_overloaded', 'no upstream answered: each failed, refused or is skipped by its circuit breaker'],
  reservation: ['server_overloaded', 'the reservation of the request was settled meanwhile, such as after its lease expired'],
  key_changes: ['unavailable', 'the key, or its plan, changed at every attempt'],
  sealed_key: ['unavailable', 'the key cannot be decrypted with the sealing keys of this process'],
  task_changes: ['unavailable', 'the task was changed by another process while it was queued'],
  store: ['unavailable', 'the store does not answer, or refuses'],
  store_queue: ['unavailable', 'calls that wait for the store in one process'],
  store_record: ['unavailable', 'concurrent changes of one record of the store, or its format is of a newer Tollgate'],
  files: ['unavailable', 'the files do not answer, or refuse'],
  backend: ['unavailable', 'another backend does not answer, or refuses'],
  plugin: ['rate_limited', 'a limit of a third-party plugin'],
} as const satisfies Record<string, readonly [code: string, what: string]>

export type Limit = keyof typeof LIMITS

/** The codes that say nothing without their limit. */
export type LimitCode = (typeof LIMITS)[Limit][0]
