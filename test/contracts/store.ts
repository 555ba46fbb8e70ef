/** What every store promises. */
import type { ChangeOptions } from '../../src/store/changes.ts'
import type { Store } from '../../src/store/store.ts'
import type { Promises } from './promises.ts'
import { changePromises } from './store/changes.ts'
import { declarationPromises } from './store/declarations.ts'
import { deliveryPromises } from './store/deliveries.ts'
import { duePromises } from './store/due.ts'
import { keyPromises } from './store/keys.ts'
import { lifePromises } from './store/life.ts'
import { processPromises } from './store/processes.ts'
import { subscriptionPromises } from './store/subscriptions.ts'
import { taskPromises } from './store/tasks.ts'

/**
 * Empty at first. Every handle opened in one place sees the same data, as the processes of one installation do; the place closes them all.
 */
export type Place = { open(options?: ChangeOptions): Promise<Store> }

export const storePromises: Promises<Place> = {
  ...subscriptionPromises,
  ...changePromises,
  ...keyPromises,
  ...processPromises,
  ...declarationPromises,
  ...duePromises,
  ...taskPromises,
  ...deliveryPromises,
  ...lifePromises,
}
