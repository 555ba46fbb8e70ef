/** Bugs about leases: in two of three seeds of coding requests that have several gateways, those take leases. */
import type { Bug } from './bugs.ts'

type Listed = Omit<Bug, 'scenario'>

const LEASES = 'src/domain/subscription/leases.ts'
const RESERVATIONS = 'src/domain/subscription/token-reservations.ts'

export const LEASE_BUGS: Listed[] = [
  {
    name: 'a lease takes what is reserved',
    file: LEASES, within: 60,
    from: 'Math.min(terms.maxConcurrentRequests - reserved.count, remaining)',
    to: 'Math.min(4 * terms.maxConcurrentRequests, remaining)',
  },
  {
    name: 'what a lease has admitted is stored before it is written',
    file: 'src/backends/store/group-commit.ts', within: 60,
    from: 'push(queue, new AppliedCommand<N>(answer, callOf(decided, now), write), false)',
    to: 'push(queue, new AppliedCommand<N>(answer, callOf(decided, now), write), false)\n    if (!isSole) queueMicrotask(() => write.stored())',
  },
  {
    name: 'what a lease has admitted is not decided again',
    file: 'src/backends/store/queued-command.ts', within: 200,
    from: `if (again === null || ('outcome' in again && isSame(again, this.answer)))`,
    to: `if (again === null || 'outcome' in again)`,
  },
  {
    name: 'a lease admits past the limits when it is written',
    file: RESERVATIONS, within: 60,
    from: 'for (const room of rooms) {',
    to: 'for (const room of input.tokens === undefined ? rooms : []) {',
  },
  {
    name: 'a request that a lease has admitted is not admitted again after another key has changed',
    file: 'plugins/metering/admission.ts', within: 200,
    from: 'void admitAgain(admission, caller, size, client, refusal)',
    to: 'write.stored()',
  },
]
