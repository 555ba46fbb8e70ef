/**
 * The store in one MongoDB database, for any number of processes. Every answered write is on a majority, and every verb may be repeated.
 * A single server suffices: no transactions, no change streams.
 */
import type { MongoClient } from 'mongodb'
import { openChanges } from '../group-commit.ts'
import type { Store, StoreOptions } from '../store.ts'
import { claimIndexes, openClaims } from './delivery-claims.ts'
import { clientOf, databaseOf, placeOf } from '../../mongodb/client.ts'
import { openingFailure } from '../../mongodb/driver-errors.ts'
import { codingRequestIndexes, openCodingRequests } from './coding-requests.ts'
import { openDatabase } from './database.ts'
import { openDeclarations } from './resource-declarations.ts'
import { openDeliveries, type OwnClaims } from './deliveries.ts'
import { eventIndexes, openEventLog } from './event-log.ts'
import { createIndexes, dropIndexes, type Indexes } from './indexes.ts'
import { keyIndexes, openKeys } from './api-keys.ts'
import { deliveryQueueIndexes, openDeliveryQueues } from './delivery-queues.ts'
import { openRedelivery, redeliveryIndexes } from './redelivery.ts'
import { openHeartbeatsAndLeases } from './heartbeats-and-leases.ts'
import { assertUpToDate, bringUpToDate, type Upgrade } from './migrations.ts'
import { openScan } from './scan.ts'
import { openSessions, sessionIndexes } from './sessions.ts'
import { openSubscriptions, subscriptionIndexes } from './subscriptions.ts'
import { openUsageRecords, usageIndexes } from './usage-records.ts'
import { openTaskQueries, taskQueryIndexes } from './task-queries.ts'
import { openTasks, taskIndexes } from './tasks.ts'

/**
 * Each entry migrates from the schema before it. A released entry is never edited: a change is a new entry. The earliest version that is upgraded has
 * the second schema.
 */
const UPGRADES: readonly Upgrade[] = [async () => {}]

export const INDEXES: Indexes = {
  ...subscriptionIndexes,
  ...keyIndexes,
  tasks: [...taskIndexes.tasks, ...taskQueryIndexes.tasks],
  deliveries: [...claimIndexes.deliveries, ...redeliveryIndexes.deliveries],
  ...deliveryQueueIndexes,
  ...eventIndexes,
  ...sessionIndexes,
  ...codingRequestIndexes,
  ...usageIndexes,
}

/** Indexes of the release before, by collection. Its processes may serve beside this one for a while, and make them again at their start. */
export const OBSOLETE = {
  subscriptions: ['due'],
  tasks: ['listed', 'listed_by_verb', 'retrying_by_verb', 'waiting', 'waiting_by_verb', 'ended', 'open'],
  deliveries: ['of_task', 'waiting'],
  events: ['logged'],
}
/** Longer than a rolling upgrade takes. */
const DROPPED_AFTER_MS = 3_600_000

/**
 * Opens the database of `url`, `tollgate` if it names none, and upgrades it. Throws `Unavailable` if the server is not reachable now, and an
 * Error with a sentence for the operator if a retry would not help.
 */
export async function openMongodb(url: string, options: StoreOptions = {}, upgrades = UPGRADES): Promise<Store> {
  const { client, name } = await prepare(url, upgrades, options.readOnly ?? false)
  const database = openDatabase(client, name)
  const usage = openUsageRecords(database, options)
  const subscriptions = openSubscriptions(database, usage.outboxes)
  const queues = openDeliveryQueues(database)
  const claims: OwnClaims = new Map()
  const deliveries = openDeliveries(database, queues, claims)
  const log = openEventLog(database)
  const changes = openChanges(subscriptions.records, options)
  // Those that fail are dropped by another process, or the next one.
  const drop = options.readOnly
    ? undefined
    : setTimeout(() => void dropIndexes(client.db(name), OBSOLETE).catch(() => {}), DROPPED_AFTER_MS).unref()
  const verbs = {
    ...openHeartbeatsAndLeases(database),
    ...subscriptions.verbs,
    ...openKeys(database),
    ...openSessions(database),
    ...openCodingRequests(database),
    ...usage.verbs,
    ...openDeclarations(database),
    ...openTasks(database, deliveries.deliveries, log.log),
    ...openTaskQueries(database),
    ...deliveries.verbs,
    ...log.verbs,
    ...openClaims(database, queues, claims),
    ...openRedelivery(database, queues),
    ...openScan(database),
  }
  return {
    ...database.running(verbs),
    clock: database.clock,
    change: changes.change,
    decide: changes.decide,
    decideNow: changes.decideNow,
    close: async () => {
      clearTimeout(drop)
      await changes.close()
      await database.close()
    },
  }
}

async function prepare(url: string, upgrades: readonly Upgrade[], readOnly: boolean): Promise<{ client: MongoClient; name: string }> {
  const name = databaseOf(url)
  const setup = clientOf(url, 'upgrade')
  const client = clientOf(url, 'request')
  const place = placeOf(client, name)
  // A client whose first connection failed cannot be used any more, even if the server is up later: the next attempt makes new ones.
  try {
    await setup.connect()
    if (readOnly) await assertUpToDate(setup.db(name), upgrades, place)
    else {
      await bringUpToDate(setup.db(name), upgrades, place)
      await createIndexes(setup.db(name), INDEXES)
    }
    await client.connect()
  } catch (error) {
    await client.close().catch(() => {})
    throw openingFailure('store', error, place)
  } finally {
    await setup.close().catch(() => {})
  }
  return { client, name }
}
