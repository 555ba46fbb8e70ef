/** Contract of every store. */
import type { ChangeOptions } from '../../src/backends/store/record-change-options.ts'
import type { Store, StoreOptions } from '../../src/backends/store/store.ts'
import type { Promises } from './run-contract.ts'
import { changePromises } from './store/subscription-changes.ts'
import { declarationPromises } from './store/resource-declarations.ts'
import { deliveryPromises } from './store/deliveries.ts'
import { duePromises } from './store/due-subscriptions.ts'
import { eventPromises } from './store/event-log.ts'
import { keyPromises } from './store/api-keys.ts'
import { lifePromises } from './store/lifecycle.ts'
import { processPromises } from './store/heartbeats-and-leases.ts'
import { scanPromises } from './store/scan.ts'
import { codingRequestPromises } from './store/coding-requests.ts'
import { sessionPromises } from './store/sessions.ts'
import { subscriptionPromises } from './store/subscriptions.ts'
import { taskPromises } from './store/tasks.ts'
import { usagePromises } from './store/usage-records.ts'

/**
 * Where the stores of one test open. Empty at first. All handles of one place share its data, as the processes of one installation do; the test closes them.
 */
export type Place = { open(options?: ChangeOptions & Pick<StoreOptions, 'publishesUsage' | 'storesUsageOfOthers'>): Promise<Store> }

export const storePromises: Promises<Place> = {
  ...subscriptionPromises,
  ...changePromises,
  ...keyPromises,
  ...processPromises,
  ...sessionPromises,
  ...codingRequestPromises,
  ...declarationPromises,
  ...duePromises,
  ...taskPromises,
  ...deliveryPromises,
  ...eventPromises,
  ...scanPromises,
  ...usagePromises,
  ...lifePromises,
}
