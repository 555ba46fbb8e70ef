/** Bugs in the holds of a record: their sums, their order, and the chunks in which they are stored and cached. */
import type { Bug } from './bugs.ts'

const STORE = 'src/backends/store/sqlite'

export const QUEUE_BUGS: Omit<Bug, 'scenario'>[] = [
  {
    name: 'a closed hold stays in the sums',
    file: 'src/domain/subscription/holds.ts', within: 20,
    from: 'if (before) count(next, before, -1)',
    to: 'if (before && after) count(next, before, -1)',
  },
  {
    name: 'a hold is counted twice when its task is claimed',
    file: 'src/domain/subscription/holds.ts', within: 60,
    from: 'if (before) count(next, before, -1)',
    to: 'if (before && !after?.run) count(next, before, -1)',
  },
  {
    name: 'a task that waits again is not in the queue',
    file: 'src/domain/subscription/holds.ts', within: 40,
    from: '[chunkOf(chunk.ids, chunk.holds.with(n, hold))]',
    to: '[{ ...chunkOf(chunk.ids, chunk.holds.with(n, hold)), ...(hold.run === null && { earliest: chunk.earliest }) }]',
  },
  {
    name: 'a run that ended is still counted',
    file: 'src/domain/subscription/holds.ts', within: 20,
    from: '  else running.delete(id)\n',
    to: '  else if (after) running.delete(id)\n',
  },
  {
    name: 'a changed chunk of holds is not written',
    file: `${STORE}/subscription-holds.ts`, within: 20,
    from: 'const written = added.map(',
    to: 'const written = added.filter((chunk) => !removed.some(({ ids }) => ids[0] === chunk.ids[0])).map(',
  },
  {
    name: 'a record is read from a copy whose version is not proven',
    file: `${STORE}/subscriptions.ts`, within: 60,
    from: "if (known !== undefined && findVersion.get(id)?.version === known) return 'unchanged'",
    to: "if (known !== undefined) return 'unchanged'",
  },
  {
    name: 'an extension takes more than the plan has left',
    file: 'src/domain/subscription/task-queue.ts', within: 200,
    from: "if (added > balanceOf(account).available) return { record, answer: { outcome: 'insufficient' } }",
    to: '',
  },
  {
    name: 'any run may extend a hold',
    file: 'src/domain/subscription/task-queue.ts', within: 150,
    from: '!held?.run || held.epoch !== input.epoch || held.period',
    to: '!held?.run || held.period',
  },
  {
    name: 'a task is extended whatever is held for it',
    file: 'src/tasks/fit-hold.ts', within: 60,
    from: "if (answer.outcome !== 'extended') return task",
    to: '',
  },
]
