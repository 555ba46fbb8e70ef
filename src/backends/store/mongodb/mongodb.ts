/**
 * The store in one MongoDB database, for any number of processes. What was answered was written by a majority, and every verb may be asked
 * for again. Needs nothing that a single server has not: no transaction, no change stream.
 */
import type { MongoClient } from 'mongodb'
import { openChanges } from '../group-commit.ts'
import type { Store, StoreOptions } from '../store.ts'
import { claimIndexes, openClaims } from './delivery-claims.ts'
import { clientOf, serve } from './database.ts'
import { openDeclarations } from './resource-declarations.ts'
import { deliveryIndexes, openDeliveries } from './deliveries.ts'
import { malformed, openingFailure } from './driver-errors.ts'
import { makeIndexes, type Indexes } from './indexes.ts'
import { keyEnds, keyIndexes, openKeys } from './api-keys.ts'
import { laneIndexes, openDeliveryQueues } from './delivery-queues.ts'
import { openProcesses } from './heartbeats-and-leases.ts'
import { assertUpToDate, bringUpToDate, type Upgrade } from './migrations.ts'
import { openSubscriptions, subscriptionIndexes } from './subscriptions.ts'
import { openTaskLists, taskListIndexes } from './task-queries.ts'
import { openTasks, taskIndexes } from './tasks.ts'

/** Each entry leads from the schema before it. An entry that was released is never edited; a change is a new entry. */
const UPGRADES: readonly Upgrade[] = [keyEnds]

export const INDEXES: Indexes = {
  ...subscriptionIndexes,
  ...keyIndexes,
  tasks: [...taskIndexes.tasks, ...taskListIndexes.tasks],
  deliveries: [...deliveryIndexes.deliveries, ...claimIndexes.deliveries],
  ...laneIndexes,
}

const DATABASE = 'tollgate'

/**
 * Opens the database that `url` names, `tollgate` if it names none, and brings it up to date. Throws `Unavailable` if the server cannot be
 * reached now, and an Error with a sentence for what trying again does not mend.
 */
export async function openMongodb(url: string, options: StoreOptions = {}, upgrades = UPGRADES): Promise<Store> {
  const { client, name } = await prepare(url, upgrades, options.readOnly ?? false)
  const database = serve(client, name)
  const subscriptions = openSubscriptions(database)
  const lanes = openDeliveryQueues(database)
  const deliveries = openDeliveries(database, lanes)
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
    ...openClaims(database, lanes),
    close: async () => {
      await changes.close()
      await database.close()
    },
  }
}

async function prepare(url: string, upgrades: readonly Upgrade[], readOnly: boolean): Promise<{ client: MongoClient; name: string }> {
  const name = databaseOf(url)
  const setup = make(url, name, 'upgrade')
  const client = make(url, name, 'request')
  const place = `${client.options.srvHost ?? client.options.hosts.join(',')}/${name}`
  // A client whose first connection failed is of no use any more, also when the server is there later: the next try makes new ones.
  try {
    await setup.connect()
    if (readOnly) await assertUpToDate(setup.db(name), upgrades, place)
    else {
      await bringUpToDate(setup.db(name), upgrades, place)
      await makeIndexes(setup.db(name), INDEXES)
    }
    await client.connect()
  } catch (error) {
    await client.close().catch(() => {})
    throw openingFailure(error, place)
  } finally {
    await setup.close().catch(() => {})
  }
  return { client, name }
}

function make(url: string, name: string, patience: 'upgrade' | 'request'): MongoClient {
  try {
    const client = clientOf(url, patience)
    client.db(name)
    return client
  } catch (error) {
    throw malformed(error)
  }
}

function databaseOf(url: string): string {
  const [, path = ''] = /^[^:]+:\/\/[^/?]*\/([^?]*)/.exec(url) ?? []
  try {
    return decodeURIComponent(path) || DATABASE
  } catch (error) {
    throw malformed(error)
  }
}
