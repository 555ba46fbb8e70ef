/** The schema of a SQLite store, migration by migration. */
import { keyTables } from './api-keys.ts'
import { codingRequestTables, codingRequestTimes } from './coding-requests.ts'
import { deliveryTables, withoutWaiting } from './deliveries.ts'
import { deliveryQueueTables } from './delivery-queues.ts'
import { eventTables } from './event-log.ts'
import { processTables } from './heartbeats-and-leases.ts'
import { declarationTables } from './resource-declarations.ts'
import { sessionTables } from './sessions.ts'
import { holdTables } from './subscription-holds.ts'
import { priceKinds, subscriptionTables } from './subscriptions.ts'
import { taskKinds, taskTables } from './tasks.ts'
import { usageFloorTable, usageTables } from './usage-records.ts'

/** The schema of the earliest version that is upgraded: the number of its migrations. */
const FIRST = 9

/** Each entry migrates from the schema before it. A released entry is never edited: a change is a new entry. */
export const UPGRADES = [
  ...Array<string>(FIRST - 1).fill(''),
  subscriptionTables +
    holdTables +
    keyTables +
    processTables +
    declarationTables +
    taskTables +
    deliveryTables +
    deliveryQueueTables +
    eventTables +
    sessionTables,
  codingRequestTables,
  codingRequestTimes,
  taskKinds + priceKinds,
  usageTables,
  usageFloorTable,
  withoutWaiting,
]
