/** The verbs of the store on one connection. Arguments and answers are plain data, so that any thread may run them. */
import { ACCESS, type Store } from '../store.ts'
import type { Database } from './database.ts'
import { declarationTables, openDeclarations } from './resource-declarations.ts'
import { deliveryTables, deliveryTimes, openDeliveries, waitingDeliveries } from './deliveries.ts'
import { codingRequestTables, codingRequestTimes, openCodingRequests } from './coding-requests.ts'
import { addEndedAt, keyTables, openKeys } from './api-keys.ts'
import { deliveryQueueTables } from './delivery-queues.ts'
import { eventTables, openEventLog } from './event-log.ts'
import { openHeartbeatsAndLeases, processTables } from './heartbeats-and-leases.ts'
import { openScanRows, type ScanRows } from './scan.ts'
import { openSessions, sessionTables } from './sessions.ts'
import { holdTables } from './subscription-holds.ts'
import { openSubscriptionRows, priceKinds, subscriptionTables, type SubscriptionRows } from './subscriptions.ts'
import { openTaskQueries } from './task-queries.ts'
import { dueByTenant, openTasks, taskKinds, taskStatus, taskTables } from './tasks.ts'
import { openUsageRecords, usageFloorTable, usageTables } from './usage-records.ts'

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

/** Verbs that hold or return decoded records of subscriptions are made of these in the thread that serves. */
type Decoded = 'change' | 'decide' | 'decideNow' | 'subscription' | 'subscriptionsWith' | 'subscriptionsOf' | 'scan'
export type Verbs = Omit<Store, Decoded | 'clock' | 'close'> & SubscriptionRows & ScanRows

/** Whether a verb writes, as for those of the store. */
export const VERB_ACCESS: Record<keyof Verbs, 'read' | 'write'> = {
  ...ACCESS,
  findRecord: 'read',
  idsOfTenant: 'read',
  idsWith: 'read',
  replaceRecord: 'write',
  scanRows: 'read',
}

export function openVerbs(database: Database): Verbs {
  const deliveries = openDeliveries(database)
  const log = openEventLog(database)
  return {
    ...openHeartbeatsAndLeases(database),
    ...openSubscriptionRows(database),
    ...openKeys(database),
    ...openSessions(database),
    ...openCodingRequests(database),
    ...openUsageRecords(database),
    ...openDeclarations(database),
    ...openTasks(database, deliveries.deliveries, log.log),
    ...openTaskQueries(database),
    ...deliveries.verbs,
    ...log.verbs,
    ...openScanRows(database),
  }
}
