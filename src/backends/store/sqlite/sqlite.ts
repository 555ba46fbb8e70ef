/**
 * The store in one SQLite file, for everything in one process. A `kill -9` loses nothing that was answered; a power cut may lose the last
 * moments.
 */
import { openChanges } from '../group-commit.ts'
import type { Store, StoreOptions } from '../store.ts'
import { openDatabase, openToRead } from './database.ts'
import { declarationTables, openDeclarations } from './resource-declarations.ts'
import { deliveryTables, openDeliveries } from './deliveries.ts'
import { keyEnds, keyTables, openKeys } from './api-keys.ts'
import { laneTables } from './delivery-queues.ts'
import { openProcesses, processTables } from './heartbeats-and-leases.ts'
import { openSubscriptions, subscriptionTables } from './subscriptions.ts'
import { openTaskLists } from './task-queries.ts'
import { openTasks, taskTables } from './tasks.ts'

/** The schema's versions: each entry leads from the one before it. An entry that was released is never edited; a change is a new entry. */
export const UPGRADES = [subscriptionTables + keyTables + processTables + declarationTables + taskTables + deliveryTables + laneTables, keyEnds]

/** Opens `file`; see `openDatabase` and `openToRead` for how that fails. */
export function openSqlite(file: string, options: StoreOptions = {}): Store {
  const database = options.readOnly ? openToRead(file, UPGRADES) : openDatabase(file, UPGRADES)
  const subscriptions = openSubscriptions(database)
  const deliveries = openDeliveries(database)
  const changes = openChanges(subscriptions.side, options)
  return {
    ...openProcesses(database),
    ...subscriptions.verbs,
    change: changes.change,
    ...openKeys(database),
    ...openDeclarations(database),
    ...openTasks(database, deliveries.deliveries),
    ...openTaskLists(database),
    ...deliveries.verbs,
    close: async () => {
      await changes.close()
      await database.close()
    },
  }
}
