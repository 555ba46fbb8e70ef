/**
 * The store in one SQLite file, for a single process. A `kill -9` loses nothing that was answered; a power failure may lose the most recent
 * writes.
 */
import { openChanges } from '../group-commit.ts'
import type { Store, StoreOptions } from '../store.ts'
import { openDatabase, openToRead } from './database.ts'
import { declarationTables, openDeclarations } from './resource-declarations.ts'
import { deliveryTables, deliveryTimes, openDeliveries, waitingDeliveries } from './deliveries.ts'
import { addEndedAt, keyTables, openKeys } from './api-keys.ts'
import { deliveryQueueTables } from './delivery-queues.ts'
import { eventTables, openEventLog } from './event-log.ts'
import { openHeartbeatsAndLeases, processTables } from './heartbeats-and-leases.ts'
import { openScan } from './scan.ts'
import { openSessions, sessionTables } from './sessions.ts'
import { holdTables } from './subscription-holds.ts'
import { openSubscriptions, subscriptionTables } from './subscriptions.ts'
import { openTaskQueries } from './task-queries.ts'
import { openTasks, taskStatus, taskTables } from './tasks.ts'

/** Each entry migrates from the schema before it. A released entry is never edited: a change is a new entry. */
export const UPGRADES = [subscriptionTables + keyTables + processTables + declarationTables + taskTables + deliveryTables + deliveryQueueTables, addEndedAt, deliveryTimes, eventTables, waitingDeliveries, taskStatus, sessionTables, holdTables]

/** Opens `file`; fails as `openDatabase` and `openToRead` do. */
export function openSqlite(file: string, options: StoreOptions = {}): Store {
  const database = options.readOnly ? openToRead(file, UPGRADES) : openDatabase(file, UPGRADES)
  const subscriptions = openSubscriptions(database)
  const deliveries = openDeliveries(database)
  const log = openEventLog(database)
  const changes = openChanges(subscriptions.records, options)
  return {
    ...openHeartbeatsAndLeases(database),
    ...subscriptions.verbs,
    change: changes.change,
    ...openKeys(database),
    ...openSessions(database),
    ...openDeclarations(database),
    ...openTasks(database, deliveries.deliveries, log.log),
    ...openTaskQueries(database),
    ...deliveries.verbs,
    ...log.verbs,
    ...openScan(database),
    close: async () => {
      await changes.close()
      await database.close()
    },
  }
}
