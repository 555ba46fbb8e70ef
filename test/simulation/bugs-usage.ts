/** Bugs in the usage records of charges; see `bugs.ts`. */
import type { Bug } from './bugs.ts'

export const USAGE_BUGS: Bug[] = [
  {
    name: 'what a dead gateway left is charged without a usage record',
    file: 'src/domain/subscription/token-reservations.ts', scenario: 'coding', within: 40,
    from: 'ledger.made?.push({ id, subscription: ledger.record.id, keyId, at: now, usage: null, charged, isEstimated: true })',
    to: '',
  },
  {
    name: 'a hold that is returned has a usage record',
    file: 'src/domain/subscription/task-queue.ts', scenario: 'media', within: 40,
    from: 'if (ran) made?.push(',
    to: 'made?.push(',
  },
  {
    name: 'a write has the usage record of its first charge alone',
    file: 'src/domain/subscription/current-record.ts', scenario: 'coding', within: 80,
    from: 'this.#made?.splice(0)',
    to: 'this.#made?.splice(0, 1)',
  },
]
