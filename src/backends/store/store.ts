/**
 * BACKEND: what we remember. Verbs are as large as the change. Outcomes are values, `null` for "not there", and a thrown `Unavailable` for
 * "cannot know". Time comes in as an argument (`now`, epoch milliseconds).
 */
import type { KeyVersion } from '../../domain/api-keys.ts'
import type { Declarations } from '../resources/resources.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import type { Subscription } from '../../domain/subscription/subscription.ts'
import type { ChangeOptions } from './group-commit.ts'
import type { TaskStore } from './task-store.ts'

/** What may change of a version of a key. */
export type KeyChange = Partial<
  Pick<KeyVersion, 'state' | 'subscription' | 'product' | 'cap' | 'expiresAt' | 'endedAt' | 'overlapUntil' | 'secretName'>
>

export type Store = Declarations & TaskStore & {
  /** The server's time, epoch milliseconds. */
  clock(): Promise<number>
  /** Says that a process lives; `count` rises by one each time. A beat that lands after a later one changes nothing. */
  heartbeat(instance: string, count: number): Promise<void>
  /** Every instance that ever beat and was not forgotten, with its last count. */
  heartbeats(): Promise<{ instance: string; count: number }[]>
  forgetInstance(instance: string): Promise<void>
  /** True if `owner` has the lease until `until`: it was free, past its time at `now`, or already the owner's. */
  takeLease(name: string, owner: string, until: number, now: number): Promise<boolean>
  /** Ends the owner's lease before its time; another's stays. */
  releaseLease(name: string, owner: string): Promise<void>

  /**
   * Applies one command to the record of a subscription by compare-and-set, together with whatever else waits for the same record. An
   * answer that writes nothing was given on a record read after this call. A write whose outcome was lost is tried again by itself for a
   * few seconds: a command that had happened then answers as when it is asked for twice (`already`, for most). Throws `Unavailable` when
   * the outcome cannot be learned; the command may then have happened, once. What the command itself throws is thrown to its caller
   * alone.
   */
  change<N extends CommandName>(
    id: string,
    command: Extract<Command, { op: N }>,
    now: number,
  ): Promise<Answer<N>>
  subscription(id: string): Promise<Subscription | null>
  /**
   * Subscriptions that have a Plan resource which was not removed, open reservations, open holds, or ended periods in their record; in the
   * order of their ids, which come after `after`. Each is read by itself, and may have changed since it was found.
   */
  subscriptionsWith(what: 'plan' | 'reservations' | 'holds' | 'past', after: string, limit: number): Promise<Subscription[]>

  /** Stores a new version of a key unless that uid and revision has one; both times answers the one that is stored. */
  mintKey(key: KeyVersion): Promise<{ outcome: 'created' | 'existing'; key: KeyVersion }>
  /**
   * Changes a version of a key, and answers it as it is then. `tell` names the subscriptions that must learn of it: they are added to the
   * key's list in the same write. A revoked version can only be deleted, and a deleted one stays deleted: a change that would bring it back
   * was decided on what was read before, and changes nothing. Null: no such version.
   */
  setKey(id: string, change: KeyChange, tell: string[]): Promise<KeyVersion | null>
  /**
   * Takes subscriptions that were told off the list of a version. Those that are not on it, and a version that is not there, do not matter.
   */
  told(id: string, subscriptions: string[]): Promise<void>
  /** Versions whose `tell` is not empty. */
  keysToTell(limit: number): Promise<KeyVersion[]>
  /** By the SHA-256 of the key, lower-case hex; in whatever state it is (`refusal` in keys.ts judges that). */
  findKey(hash: string): Promise<KeyVersion | null>
  /** All versions of one ApiKey by its uid, newest revision first. */
  keyVersions(keyId: string): Promise<KeyVersion[]>
  /** Versions that are not deleted, in order of their ids, which come after `after`. */
  keysAlive(after: string, limit: number): Promise<KeyVersion[]>
  /** All versions of the keys that belong to a subscription and are not deleted. */
  keysOf(subscription: string): Promise<KeyVersion[]>
  /** Forgets the sealed keys of versions whose `endedAt` is before `before`, once all who must know have learnt of it; the versions stay. Answers how many had one. */
  forgetSealed(before: number, limit: number): Promise<number>

  /**
   * Answers what was asked before, as far as the store can be reached; from then on every verb throws `Unavailable`. Closing again is
   * harmless.
   */
  close(): Promise<void>
}

export type StoreOptions = ChangeOptions & {
  /**
   * Opens a store that is there and changes nothing: it is neither made nor brought up to date, and may be a copy, or be reached by a user,
   * that cannot write.
   */
  readOnly?: boolean
}

/**
 * Opens the store named by `url`: `sqlite:<file>` or `mongodb://<host>/<database>`. Brings its schema up to date. Throws `Unavailable` if the
 * store cannot be reached now, and an Error whose sentence tells the operator what to do if trying again would not help: a damaged file, a
 * folder that cannot be written, credentials that are refused, a schema newer than this program.
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
      throw new Error(`STORE_URL has the unknown scheme ${scheme}: it may be sqlite:<file> or mongodb://<host>/<database>.`)
  }
}
