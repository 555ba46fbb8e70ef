/** The schema of a SQLite store, migration by migration. */
import { addEndedAt, keyTables } from './api-keys.ts'
import { codingRequestTables, codingRequestTimes } from './coding-requests.ts'
import { deliveryTables, deliveryTimes, waitingDeliveries } from './deliveries.ts'
import { deliveryQueueTables } from './delivery-queues.ts'
import { eventTables } from './event-log.ts'
import { processTables } from './heartbeats-and-leases.ts'
import { declarationTables } from './resource-declarations.ts'
import { sessionTables } from './sessions.ts'
import { holdTables } from './subscription-holds.ts'
import { priceKinds, subscriptionTables } from './subscriptions.ts'
import { dueByTenant, taskKinds, taskStatus, taskTables } from './tasks.ts'
import { usageFloorTable, usageTables } from './usage-records.ts'

/** Each entry migrates from the schema before it. A released entry is never edited: a change is a new entry. */
export const UPGRADES = [
  subscriptionTables + keyTables + processTables + declarationTables + taskTables + deliveryTables + deliveryQueueTables,
  addEndedAt,
  deliveryTimes,
  eventTables,
  waitingDeliveries,
  taskStatus,
  sessionTables,
  holdTables,
  dueByTenant,
  codingRequestTables,
  codingRequestTimes,
  taskKinds + priceKinds,
  usageTables,
  usageFloorTable,
]
