/** The verbs of the store on one connection. Arguments and answers are plain data, so that any thread may run them. */
import { ACCESS, type Store } from '../store.ts'
import type { Database } from './database.ts'
import { openDeclarations } from './resource-declarations.ts'
import { openDeliveries } from './deliveries.ts'
import { openCodingRequests } from './coding-requests.ts'
import { openKeys } from './api-keys.ts'
import { openEventLog } from './event-log.ts'
import { openHeartbeatsAndLeases } from './heartbeats-and-leases.ts'
import { openScanRows, type ScanRows } from './scan.ts'
import { openSessions } from './sessions.ts'
import { openSubscriptionRows, type SubscriptionRows } from './subscriptions.ts'
import { openTaskQueries } from './task-queries.ts'
import { openTasks } from './tasks.ts'
import { openUsageRecords } from './usage-records.ts'

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
