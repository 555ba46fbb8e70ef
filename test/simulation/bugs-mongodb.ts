/** Bugs in the MongoDB adapter that the simulation over a real server must find; see `bugs.ts`. Most would be harmless in a transaction. */
import type { Bug } from './bugs.ts'

const STORE = 'src/backends/store/mongodb'

export const MONGODB_BUGS: Bug[] = [
  {
    name: 'the next write of a plan drops usage records that are not stored yet',
    file: 'src/backends/store/group-commit.ts', scenario: 'coding', within: 40,
    from: 'base?.outbox ? records.unstored(base.outbox) : []',
    to: '[]',
  },
  {
    name: 'a document is replaced whatever its version',
    file: `${STORE}/subscriptions.ts`, scenario: 'media', within: 20,
    from: 'const expected = seen?.version === before.version ? { last: seen.write, when: {} } : { last: undefined, when: { version: before.version } }',
    to: 'const expected: Pick<Change, "last" | "when"> = { last: undefined, when: {} }',
  },
  {
    name: 'a hold that is released stays in the document',
    file: `${STORE}/subscriptions.ts`, scenario: 'media', within: 20,
    from: "removed: ['outbox', ...gone.map((id) => `media.holds.${id}`)]",
    to: "removed: ['outbox']",
  },
  {
    name: 'a change of a hold is not sent',
    file: 'src/domain/subscription/holds.ts', scenario: 'media', within: 20,
    from: 'if (left.get(id) !== hold) set',
    to: 'if (!left.has(id)) set',
  },
  {
    name: 'a conflict is treated as a success',
    file: `${STORE}/bulk-commands.ts`, scenario: 'coding', within: 20,
    from: `if (count === 0 && !repeated) return () => ({ answer: 'lost' })`,
    to: `if (count === 0 && !repeated) return () => ({ answer: 'swapped' })`,
  },
  {
    name: 'two tasks may have one Idempotency-Key',
    file: `${STORE}/tasks.ts`, scenario: 'media', within: 20,
    from: 'unique: true',
    to: 'unique: false',
  },
  {
    name: 'the epoch of a guard is ignored',
    file: 'src/domain/task.ts', scenario: 'media', within: 40,
    from: '(epoch === undefined || task.epoch === epoch) && ',
    to: '',
  },
  {
    name: 'a task is final before its deliveries are there',
    file: `${STORE}/tasks.ts`, scenario: 'media', within: 100,
    from: '    await deliveries.add(sent)\n    const left',
    to: '    void deliveries.add(sent).catch(() => {})\n    const left',
  },
  {
    name: 'a repeated settlement sends another body than the first one logged',
    file: `${STORE}/tasks.ts`, scenario: 'media', within: 400,
    from: 'body: bodies.get(delivery.id) ?? delivery.body',
    to: 'body: delivery.body',
  },
  {
    name: 'existing deliveries do not schedule their queues again',
    file: `${STORE}/deliveries.ts`, scenario: 'media', within: 200,
    from: '        await addAll(made.filter((delivery) => !isWaiting(delivery)))\n        await queues.schedule(made)\n',
    to: `        const known = await collection.find({ _id: { $in: made.map(({ id }) => id) } }).map(({ _id }) => _id).toArray()
        await addAll(made.filter((delivery) => !isWaiting(delivery)))
        await queues.schedule(made.filter(({ id }) => !known.includes(id)))\n`,
  },
  {
    name: 'documents are changed together whatever was written since they were read',
    file: `${STORE}/bulk-commands.ts`, scenario: 'media', within: 100,
    from: '_id: { $in: ids }, write: { $in: lasts } }',
    to: '_id: { $in: ids } }',
  },
  {
    name: 'a delivery that was already released does not schedule its queue again',
    file: `${STORE}/deliveries.ts`, scenario: 'media', within: 400,
    from: `const pending = released ?? (await collection.findOne({ _id: id, state: 'pending', attempts: { $size: 0 } }))`,
    to: 'const pending = released',
  },
  {
    name: 'a queue is forgotten while its deliveries are leased',
    file: `${STORE}/delivery-claims.ts`, scenario: 'media', within: 20,
    from: '[...(next ? [timeOf(next)] : []), ...(due.length > 0 ? [leaseUntil] : [])]',
    to: 'next ? [timeOf(next)] : []',
  },
  {
    name: 'deliveries that were read ahead are taken for all of their queue',
    file: `${STORE}/delivery-claims.ts`, scenario: 'media', within: 20,
    from: 'due, later: queue.at, isExact: false }))',
    to: 'due, later: null, isExact: true }))',
  },
]
