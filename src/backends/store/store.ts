/**
 * BACKEND: all state of tenants: subscriptions, API keys, tasks, deliveries, leases. Each verb is one whole change. Outcomes are values,
 * `null` for "not there", and a thrown `Unavailable` for "unknown", which is `Busy` where the store answers and one record has too many
 * concurrent changes. Time is an argument (`now`, epoch milliseconds).
 */
import type { KeyVersion } from '../../domain/api-keys.ts'
import type { CodingRequest, RequestPosition } from '../../domain/coding-requests.ts'
import type { Session } from '../../domain/sessions.ts'
import type { Declarations } from '../resources/resources.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import type { MediaPeriod, Subscription } from '../../domain/subscription/subscription.ts'
import type { Delivery, LoggedEvent, Task } from '../../domain/task.ts'
import type { UsagePosition, UsageRange, UsageRecord } from '../../domain/usage-records.ts'
import type { ChangeOptions } from './record-change-options.ts'
import type { Decided, Write } from './queued-command.ts'
import type { TaskStore } from './task-store.ts'

/** Members of a key version that may change. */
export type KeyChange = Partial<
  Pick<KeyVersion, 'state' | 'subscription' | 'product' | 'cap' | 'expiresAt' | 'endedAt' | 'overlapUntil' | 'secretName' | 'sealed'>
>

/** What is kept, by kind. `periods` are the archived ones. */
export type Kept = {
  subscriptions: Subscription
  periods: MediaPeriod & { subscription: string }
  keys: KeyVersion
  tasks: Task
  deliveries: Delivery
  events: LoggedEvent & { position: number }
}

export type Store = Declarations &
  TaskStore & {
    /** The server's time, epoch milliseconds. */
    clock(): Promise<number>
    /** Records a heartbeat of a process; `count` rises by one each time. A late heartbeat, with a lower count, changes nothing. */
    heartbeat(instance: string, count: number): Promise<void>
    /** Every instance that sent a heartbeat and was not forgotten, with its last count. */
    heartbeats(): Promise<{ instance: string; count: number }[]>
    forgetInstance(instance: string): Promise<void>
    /**
     * Takes or renews a lease until `until`. True if it was free, expired at `now`, or already the owner's, or if it lasts so much longer that it was taken
     * while the clock was ahead: leases of one name have one length.
     */
    takeLease(name: string, owner: string, until: number, now: number): Promise<boolean>
    /** Releases the owner's lease early; does nothing when another owner has it. */
    releaseLease(name: string, owner: string): Promise<void>

    /**
     * Applies one command to the record of a subscription by compare-and-set, together with all queued commands for the record. An answer
     * that writes nothing is based on a record read after this call. A write with an unknown outcome is retried for a few seconds: a command
     * that had taken effect then answers as a repeated one (`already`, for most). Throws `Unavailable` when the outcome stays unknown, and
     * `Busy` when other processes wrote first all the time; the command may then have taken effect, once. An error thrown by the command
     * itself goes to its caller alone.
     */
    change<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Answer<N>>
    /**
     * The same, answered as soon as the answer is known: at once where this process alone writes the store, else with the write. An answer
     * that depends on it may be given to others only once `durable` is fulfilled.
     */
    decide<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Decided<N>>
    /**
     * The same at once and without a promise, where this process alone writes the store, which stores what it is given, and the record is in
     * memory; else null, and the command was not called. `write` is told later. Throws what the command throws.
     */
    decideNow<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number, write: Write): Answer<N> | null
    subscription(id: string): Promise<Subscription | null>
    /**
     * Subscriptions whose record has a Plan resource that was not removed, open reservations, open holds, or ended periods; ordered by id,
     * with ids above `after`. Each record is read on its own, and may have changed since it was found.
     */
    subscriptionsWith(what: 'plan' | 'reservations' | 'holds' | 'past', after: string, limit: number): Promise<Subscription[]>
    /** Subscriptions of a tenant, also those whose Plan was removed; otherwise as `subscriptionsWith`. */
    subscriptionsOf(tenant: string, after: string, limit: number): Promise<Subscription[]>

    /** Stores a new version of a key unless that uid and revision has one; returns the stored one either way. */
    mintKey(key: KeyVersion): Promise<{ outcome: 'created' | 'existing'; key: KeyVersion }>
    /**
     * Changes a version of a key and returns it as it is then. `tell` lists the subscriptions to notify: they are added to the key's `tell` in
     * the same write. A revoked version can only be deleted, and a deleted one stays deleted: a change that would revive it was decided on
     * stale data, and changes nothing. Null: no such version.
     */
    setKey(id: string, change: KeyChange, tell: string[]): Promise<KeyVersion | null>
    /**
     * Removes notified subscriptions from the `tell` of a version. Idempotent; unknown subscriptions and versions are ignored.
     */
    told(id: string, subscriptions: string[]): Promise<void>
    /** Sets `lastUsedAt` of versions, by their ids, where it is earlier than `at`. Idempotent; unknown versions are ignored. */
    keysUsed(uses: { id: string; at: number }[]): Promise<void>
    /** Versions with subscriptions still to notify: their `tell` is not empty. */
    keysToTell(limit: number): Promise<KeyVersion[]>
    /** By the SHA-256 of the key, lower-case hex; in any state (`src/domain/api-keys.ts` decides whether it is valid). */
    findKey(hash: string): Promise<KeyVersion | null>
    /** A version by its id. */
    keyVersion(id: string): Promise<KeyVersion | null>
    /** Versions of one ApiKey by its uid, newest revision first: all that are not deleted, and at least the newest 16. */
    keyVersions(keyId: string): Promise<KeyVersion[]>
    /** Versions that are not deleted, ordered by id, with ids above `after`. */
    keysAlive(after: string, limit: number): Promise<KeyVersion[]>
    /** All versions of the keys that belong to a subscription and are not deleted. */
    keysOf(subscription: string): Promise<KeyVersion[]>
    /** Erases the sealed keys of versions whose `endedAt` is before `before` and whose `tell` is empty; the versions stay. Returns how many had one. */
    forgetSealed(before: number, limit: number): Promise<number>

    /** Stores a session of the dashboard, unless one has its id, and removes those that have expired at `now`. */
    openSession(session: Session, now: number): Promise<void>
    /** By the hash of its cookie; it may have expired. */
    session(id: string): Promise<Session | null>
    /** Sets the tenant that the person acts for, and returns the session as it is then. Null: it has ended. */
    switchTenant(id: string, tenant: string): Promise<Session | null>
    /** Idempotent. */
    endSession(id: string): Promise<void>
    /** True for the first use of a value, by its hash, and false until `until` for any other, over all processes. */
    useOnce(hash: string, until: number, now: number): Promise<boolean>

    /** Stores coding requests that have ended, those that are not stored yet, and keeps the newest `KEPT_REQUESTS` of each of their plans. */
    logRequests(requests: CodingRequest[]): Promise<void>
    /** Those of a plan, newest first, after the position (null: from the newest). */
    requests(subscription: string, before: RequestPosition | null, limit: number): Promise<CodingRequest[]>
    /** Removes those that arrived before `before`, of all plans, also of plans that are gone. Returns how many. */
    removeRequests(before: number, limit: number): Promise<number>
    /** The number of those that arrived before `before`. */
    requestsBefore(before: number): Promise<number>

    /** Usage records of a plan in a range, in the order of their positions, after one of them (null: from the first). A charge has its record here at once. */
    usageRecords(subscription: string, range: UsageRange, after: UsagePosition | null, limit: number): Promise<UsageRecord[]>
    /** Stores by themselves the usage records that were left in up to `limit` records of plans by a process that ended, if the record was not written since `before`. Returns the number of plans. */
    storeOutboxes(before: number, limit: number): Promise<number>
    /** Usage records that are to be published and are not yet. */
    unpublishedUsage(limit: number): Promise<UsageRecord[]>
    /** These were published. Idempotent. */
    usagePublished(records: UsageRecord[]): Promise<void>
    /** Removes usage records of charges before `before`, those that are still to be published only with `all`. Returns how many. */
    removeUsage(before: number, limit: number, which: 'published' | 'all'): Promise<number>
    /** Usage records of charges before this time, epoch milliseconds, may have been removed; 0: none has. */
    usageFloor(): Promise<number>

    /**
     * Everything of a kind in the order of the ids, in any state, whether or not something refers to it: up to `limit` after `after`, the
     * `next` of the part before (null: the first). `next` is null at the end.
     */
    scan<K extends keyof Kept>(what: K, after: string | null, limit: number): Promise<{ found: Kept[K][]; next: string | null }>

    /**
     * Completes verbs that are in progress, as far as the store is reachable; from then on every verb throws `Unavailable`. Idempotent.
     */
    close(): Promise<void>
  }

/**
 * Whether a verb writes. A process whose clock is wrong may call only what reads (`src/bootstrap/store-clock.ts`), and SQLite answers what reads in a thread that cannot
 * write. `close` writes nothing of its own.
 */
export const ACCESS = {
  archivePeriod: 'write',
  change: 'write',
  claimDeliveries: 'write',
  clock: 'read',
  close: 'read',
  createTask: 'write',
  decide: 'write',
  decideNow: 'write',
  declarations: 'read',
  declare: 'write',
  deliveries: 'read',
  endSession: 'write',
  events: 'read',
  findKey: 'read',
  forgetInstance: 'write',
  forgetSealed: 'write',
  heartbeat: 'write',
  heartbeats: 'read',
  keysAlive: 'read',
  keysOf: 'read',
  keysToTell: 'read',
  keysUsed: 'write',
  keyVersion: 'read',
  keyVersions: 'read',
  logRequests: 'write',
  mintKey: 'write',
  moveTask: 'write',
  oldestTask: 'read',
  openSession: 'write',
  openTasks: 'read',
  periods: 'read',
  raiseEventFloor: 'write',
  recordAttempt: 'write',
  redeliver: 'write',
  relay: 'write',
  releaseLease: 'write',
  removeEvents: 'write',
  removeRequests: 'write',
  removeTasks: 'write',
  removeUsage: 'write',
  renewTask: 'write',
  replay: 'write',
  returnDelivery: 'write',
  requests: 'read',
  requestsBefore: 'read',
  scan: 'read',
  session: 'read',
  setKey: 'write',
  storeOutboxes: 'write',
  subscription: 'read',
  subscriptionsDue: 'read',
  subscriptionsOf: 'read',
  subscriptionsWith: 'read',
  switchTenant: 'write',
  takeLease: 'write',
  task: 'read',
  tasks: 'read',
  tasksDue: 'read',
  taskWithKey: 'read',
  told: 'write',
  undeclare: 'write',
  unpublishedUsage: 'read',
  usageFloor: 'read',
  usagePublished: 'write',
  usageRecords: 'read',
  useOnce: 'write',
} as const satisfies Record<keyof Store, 'read' | 'write'>

/** The ids of a tenant's subscriptions lie between these two. */
export function idsOf(tenant: string): [first: string, last: string] {
  return [`${tenant}/`, `${tenant}0`]
}

export type StoreOptions = ChangeOptions & {
  /**
   * Opens an existing store without writing: it is neither created nor upgraded. It may be a read-only copy, or be opened by a user without
   * write access.
   */
  readOnly?: boolean
  /** Usage records that are stored from now on are to be published. */
  publishesUsage?: boolean
  /** MongoDB: usage records that other processes left in the record of a plan are stored when this one writes it. Else they stay for a process that knows whether to publish them. */
  storesUsageOfOthers?: boolean
  /** SQLite: writes in a thread of its own and reads in another one, so that this one never waits for the disk. */
  threads?: boolean
}

/**
 * Opens the store at `url`, `sqlite:<file>` or `mongodb://<host>/<database>`, and upgrades its schema. Throws `Unavailable` if the store is not
 * reachable now, and an Error with a sentence for the operator if a retry would not help: a damaged file, a folder that is not writable,
 * refused credentials, a schema newer than this program.
 */
export async function openStore(url: string, options: StoreOptions = {}): Promise<Store> {
  const scheme = url.split(':')[0] ?? ''
  switch (scheme) {
    case 'sqlite': {
      const { openSqlite } = await import('./sqlite/sqlite.ts')
      return openSqlite(url.slice('sqlite:'.length), options)
    }
    case 'mongodb':
    case 'mongodb+srv': {
      const { openMongodb } = await import('./mongodb/mongodb.ts')
      return openMongodb(url, options)
    }
    default:
      throw new Error(`STORE_URL has the unknown scheme ${scheme}: it must be sqlite:<file> or mongodb://<host>/<database>.`)
  }
}
