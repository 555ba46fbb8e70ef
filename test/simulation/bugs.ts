import { CLOCK_BUGS, CODING_CLOCK_BUGS } from './bugs-clock.ts'
import { DISPATCH_BUGS } from './bugs-dispatch.ts'
import { CODING_PLAN_BUGS, PLAN_BUGS } from './bugs-plans.ts'
import { LEASE_BUGS } from './bugs-leases.ts'
import { JOB_BUGS } from './bugs-jobs.ts'
import { QUEUE_BUGS } from './bugs-queue.ts'
import { USAGE_BUGS } from './bugs-usage.ts'

/**
 * Bugs that the simulation must find. Each is one change to the code under test that would look harmless in a review. `from` occurs in `file` exactly once,
 * so that the list cannot outlive the code. `within`: one of the first so many seeds of its scenario must fail; a few times as many as it took when the bug
 * was listed, because every change to the code under test changes what the seeds do.
 */
export type Bug = { name: string; file: string; from: string; to: string; scenario: 'media' | 'coding'; within: number }

type Listed = Omit<Bug, 'scenario'>

const STORE = 'src/backends/store/sqlite'
/** Settles the money of a task, to be planted where it is too early. */
const CLOSE = `await context.store.change(task.subscription, { op: 'close', task: task.id, actual: ACTUAL }, context.clock())`

const storeBugs: Listed[] = [
  {
    name: 'a record is replaced whatever its version',
    file: `${STORE}/subscriptions.ts`, within: 20,
    from: 'WHERE id = ? AND version = ?`',
    to: 'WHERE id = ? AND version >= 0 * ?`',
  },
  {
    name: 'a conflict is treated as a success',
    file: 'src/backends/store/group-commit.ts', within: 20,
    from: `if ((await mode.run(() => records.replace(next, base))) === 'conflict') return 'conflict'`,
    to: 'await mode.run(() => records.replace(next, base))',
  },
  {
    name: 'two tasks may have one Idempotency-Key',
    file: `${STORE}/tasks.ts`, within: 20,
    from: 'CREATE UNIQUE INDEX tasks_by_key',
    to: 'CREATE INDEX tasks_by_key',
  },
  {
    name: 'the epoch of a guard is ignored',
    file: 'src/domain/task.ts', within: 80,
    from: '(epoch === undefined || task.epoch === epoch)',
    to: 'true',
  },
  {
    name: 'a lease is renewed under any epoch',
    file: `${STORE}/tasks.ts`, within: 150,
    from: `const guard: TaskGuard = { from: ['processing'], epoch }`,
    to: `const guard: TaskGuard = { from: ['processing'], epochBelow: epoch + 9 }`,
  },
  {
    name: 'an attempt is recorded under any claim',
    file: `${STORE}/deliveries.ts`, within: 800,
    from: `if (delivery?.epoch !== epoch) return 'lost'`,
    to: `if (!delivery) return 'lost'`,
  },
  {
    name: 'the lease of a delivery is ignored',
    file: `${STORE}/deliveries.ts`, within: 20,
    from: 'Math.max(nextAttemptAt, leaseUntil ?? 0)',
    to: 'nextAttemptAt',
  },
]

const creationBugs: Listed[] = [
  {
    name: 'a creation is answered before its task is queued',
    file: 'src/tasks/create-task.ts', within: 20,
    from: `return { outcome: 'created', ...(await holdFor(context, creating, task)) }`,
    to: `void holdFor(context, creating, task).catch(() => {})\n  return { outcome: 'created', task, record }`,
  },
  {
    name: 'a repeated hold starts anew',
    file: 'src/domain/subscription/task-queue.ts', within: 60,
    from: `if (record && holdOf(record.media?.holds, input.task)) return { record, answer: { outcome: 'already', record } }`,
    to: '',
  },
  {
    name: 'a task that is not held is never rejected',
    file: 'src/tasks/recovery-sweeps.ts', within: 120,
    from: `return (await reject(context, task)) ? 'rejected' : null`,
    to: 'return null',
  },
  {
    name: 'a rejected task keeps its Idempotency-Key',
    file: 'src/tasks/reject-task.ts', within: 200,
    from: '{ idempotency: null, sweepAt: null',
    to: '{ sweepAt: null',
  },
]

const runBugs: Listed[] = [
  {
    name: 'a task begins under an old epoch',
    file: 'src/tasks/claim-tasks.ts', within: 400,
    from: `{ from: ['queued'], epochBelow: epoch }`,
    to: `{ from: ['queued'] }`,
  },
  {
    name: 'a claim does not raise the epoch',
    file: 'src/domain/subscription/task-queue.ts', within: 20,
    from: 'const epoch = waiting.epoch + 1',
    to: 'const epoch = Math.max(1, waiting.epoch)',
  },
  {
    name: 'one task too many runs',
    file: 'src/domain/subscription/task-queue.ts', within: 20,
    from: 'if (running.length >= record.terms.media.maxConcurrentTasks) return',
    to: 'if (running.length > record.terms.media.maxConcurrentTasks) return',
  },
  {
    name: 'any run may put a task back in the queue',
    file: 'src/domain/subscription/task-queue.ts', within: 1000,
    from: '!claimed?.run || claimed.epoch !== input.epoch',
    to: '!claimed?.run',
  },
  {
    name: 'a late finisher is accepted',
    file: 'src/tasks/run-outcome.ts', within: 80,
    from: `const guard = { from: ['processing'], epoch: task.epoch } as const`,
    to: `const guard = { from: ['processing'] } as const`,
  },
  {
    name: 'a lost lease is not taken back',
    file: 'src/tasks/recovery-sweeps.ts', within: 40,
    from: `return (await takeBack(context, task)) ? 'lost_lease' : null`,
    to: 'return null',
  },
  {
    name: 'an abandoned claim is not swept',
    file: 'src/tasks/recovery-sweeps.ts', within: 40,
    from: `} else if (claimedLong && task.state === 'queued') {`,
    to: `} else if (claimedLong && task.state === 'pending') {`,
  },
]

const moneyBugs: Listed[] = [
  {
    name: 'the money of a task moves before its state is claimed',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: `const ended = await end(context, task.id, guard, { outcome: 'completed'`,
    to: `${CLOSE.replace('ACTUAL', 'Math.min(Math.max(made.cost, 0), task.estimatedCost)')}
    const ended = await end(context, task.id, guard, { outcome: 'completed'`,
  },
  {
    name: 'a cancellation refunds before it claims the state',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: `const begun = { outcome: 'canceled', ...costOfBegun(task) } as const`,
    to: `${CLOSE.replace('ACTUAL', 'null')}
  const begun = { outcome: 'canceled', ...costOfBegun(task) } as const`,
  },
  {
    name: 'a charge is not clamped to the hold',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: 'Math.min(Math.max(cost, 0), task.estimatedCost)',
    to: 'cost',
  },
  {
    name: 'a canceled run is charged, and its hold goes back whole',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: 'outcome && costOf(outcome) === null ? null : actualCost',
    to: `outcome?.outcome === 'completed' ? actualCost : null`,
  },
  {
    name: 'a task is charged only by the first close',
    file: 'src/tasks/run-outcome.ts', within: 250,
    from: 'facts: { actualCost, ',
    to: `facts: { actualCost: closed.outcome === 'closed' ? actualCost : 0, `,
  },
  {
    name: 'a closed hold stays',
    file: 'src/domain/subscription/task-queue.ts', within: 20,
    from: 'holds: withoutHold(account.holds, input.task)',
    to: 'holds: account.holds',
  },
  {
    name: 'a task that settles is not swept',
    file: 'src/tasks/recovery-sweeps.ts', within: 40,
    from: `return (await settle(context, task)) ? 'settled' : null`,
    to: 'return null',
  },
  {
    name: 'an orphaned hold is not swept',
    file: 'src/tasks/recovery-sweeps.ts', within: 1500,
    from: 'if (!task || FINAL.includes(task.state)) {',
    to: 'if (!task) {',
  },
  {
    name: 'a charge burns the current period',
    file: 'src/domain/subscription/task-queue.ts', within: 20,
    from: 'period.n === held.period && ran',
    to: 'period === account.period && ran',
  },
  {
    name: 'an ended period is dropped before it is archived',
    file: 'src/tasks/recovery-sweeps.ts', within: 20,
    from: 'await context.store.archivePeriod(record.id, period)',
    to: '',
  },
]

const deliveryBugs: Listed[] = [
  {
    name: 'relaying twice makes two deliveries',
    file: 'src/tasks/outbox.ts', within: 20,
    from: 'id: deliveryId(task.id, event),',
    to: 'id: deliveryId(task.id, `${now}.${event}` as typeof event),',
  },
  {
    name: 'relaying twice logs two events',
    file: 'src/tasks/outbox.ts', within: 20,
    from: 'id: `${task.id}.${event}`, tenant',
    to: 'id: `${task.id}.${event}.${now}`, tenant',
  },
  {
    name: 'a task without a webhook logs no event',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: 'const outbox = events(',
    to: 'const outbox = task.webhookUrl === null ? [] : events(',
  },
  {
    name: 'the refund is delivered at the same time as the failure',
    file: 'src/tasks/outbox.ts', within: 40,
    from: `const waits = event === 'task.refunded'`,
    to: 'const waits = false',
  },
  {
    name: 'a task ends without its events',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: 'relay(context, ended, outbox,',
    to: 'relay(context, ended, [],',
  },
]

const outageBugs: Listed[] = [
  {
    name: 'leases have no grace after an outage',
    file: 'src/tasks/lease-grace.ts', within: 300,
    from: 'if (now - lastMs > gapMs) untilMs = now + leaseMs',
    to: '',
  },
  {
    name: 'the grace after an outage is too short for a renewal',
    file: 'src/tasks/lease-grace.ts', within: 900,
    from: 'untilMs = now + leaseMs',
    to: 'untilMs = now + leaseMs / 10',
  },
  {
    name: 'a busy record ends the pass of a sweep',
    file: 'src/tasks/sweep-pass.ts', within: 200,
    from: 'if (unanswered >= UNANSWERED_MAX) throw error',
    to: 'if (error instanceof Unavailable) throw error',
  },
  {
    name: 'a busy record ends the claims of a worker',
    file: 'src/tasks/claim-tasks.ts', within: 200,
    from: 'if (err instanceof Busy) claims.busy(subscription, context.clock())\n      else claimed.isUnavailable = true',
    to: 'claimed.isUnavailable = true',
  },
  {
    name: 'a claim that is still in progress takes no slot',
    file: 'src/tasks/claims-in-progress.ts', within: 600,
    from: 'inProgress.set(tracked, subscription)',
    to: '',
  },
  {
    name: 'a task that nobody takes is kept for ever',
    file: 'src/tasks/recovery-sweeps.ts', within: 100,
    from: '&& !isServed(task.kind)) return',
    to: '&& task.attempts < 0) return',
  },
  {
    name: 'a task that nobody takes fails before its time',
    file: 'src/tasks/recovery-sweeps.ts', within: 100,
    from: 'now - Math.max(hold.at, hold.readyAt) >= queueMs',
    to: 'queueMs > 0',
  },
]

const messageBugs: Listed[] = [
  {
    name: 'the end of a task publishes nothing about the next one',
    file: 'src/tasks/run-outcome.ts', within: 20,
    from: '  publishReady(context, task.subscription, closed.ready)\n',
    to: '',
  },
  {
    name: 'an offset is committed before the claim was decided',
    file: 'plugins/worker/claim-loop.ts', within: 20,
    from: '      return decided\n',
    to: '      return Promise.resolve()\n',
  },
  {
    name: 'a task whose message was lost is not published again',
    file: 'src/tasks/republish-ready.ts', within: 20,
    from: '    publishReady(context, subscription, ready, { repeat })\n',
    to: '',
  },
]

const fileBugs: Listed[] = [
  {
    name: 'an upload is removed at the end of a run',
    file: 'src/tasks/fetch-inputs.ts', within: 300,
    from: 'const close = () => removeFiles(context, fetched.splice(0))',
    to: "const close = () => removeFiles(context, [...fetched.splice(0), sourceFile(task.id, '/media_url')])",
  },
  {
    name: 'the upload of an ended task is kept',
    file: 'src/tasks/run-outcome.ts', within: 100,
    from: '  await removeInlineSources(context, task)\n',
    to: '',
  },
  {
    name: 'a fetched source is kept after its run',
    file: 'src/tasks/run-engine.ts', within: 100,
    from: 'await opened.close()',
    to: '',
  },
  {
    name: 'an upload is stored after its task can be claimed',
    file: 'src/tasks/create-task.ts', within: 300,
    from: '  await storeInlineSources(context, request, uploads)\n',
    to: '  void storeInlineSources({ ...context, resultMs: 1 }, request, uploads).catch(() => {})\n',
  },
  {
    name: 'the results of all runs of a task have one name',
    file: 'src/tasks/run-engine.ts', within: 800,
    from: 'const file = `${task.id}-${task.epoch}`',
    to: 'const file = task.id',
  },
  {
    name: 'a link of a result is valid for ever',
    file: 'src/tasks/fetch-inputs.ts', within: 200,
    from: 'const facts = await context.files.stat(known)',
    to: "const facts = (await context.files.stat(known)) ?? { id: known, size: 0, contentType: '', expiresAt: Infinity, etag: '' }",
  },
  {
    name: 'the events of a task are logged in reverse',
    file: `${STORE}/event-log.ts`, within: 60,
    from: 'for (const event of events.filter(({ id }) => !known.get(id))) {',
    to: 'for (const event of events.toReversed().filter(({ id }) => !known.get(id))) {',
  },
]

const attemptBugs: Listed[] = [
  {
    name: 'a lost lease uses up an attempt',
    file: 'src/tasks/recovery-sweeps.ts', within: 200,
    from: '{ lostLeases, attempts: Math.max(0, task.attempts - 1), sweepAt',
    to: '{ lostLeases, sweepAt',
  },
  {
    name: 'a run that is handed back uses up an attempt',
    file: 'src/tasks/run-outcome.ts', within: 100,
    from: `{ attempts: Math.max(0, task.attempts - 1) }, 'handed_back')`,
    to: `{ attempts: task.attempts }, 'handed_back')`,
  },
  {
    name: 'a later run begins with no progress',
    file: `${STORE}/tasks.ts`, within: 100,
    from: 'progress: Math.max(task.progress, progress)',
    to: 'progress',
  },
  {
    name: 'a charge of an ended period is lost',
    file: 'src/domain/subscription/task-queue.ts', within: 100,
    from: 'past: account.past.map(count)',
    to: 'past: account.past',
  },
]

const codingBugs: Listed[] = [
  {
    name: 'a settlement charges the current session',
    file: 'src/domain/subscription/coding-ledger.ts', within: 20,
    from: 'if (session && session.start === reservation.session)',
    to: 'if (session)',
  },
  {
    name: 'a settlement charges the current week',
    file: 'src/domain/subscription/coding-ledger.ts', within: 20,
    from: 'if (weekly.n !== reservation.week || tokens === 0) return',
    to: 'if (tokens === 0) return',
  },
  {
    name: 'a settled reservation stays',
    file: 'src/domain/subscription/coding-ledger.ts', within: 20,
    from: 'this.#reservations = removeEntry(this.#reservations, id)',
    to: '',
  },
  {
    name: 'a dead process expires what others reserved',
    file: 'src/domain/subscription/coding-ledger.ts', within: 20,
    from: 'reservation.instance === instance)',
    to: 'reservation.instance !== instance)',
  },
  {
    name: 'a request is admitted past the reservations of others',
    file: 'src/domain/subscription/token-reservations.ts', within: 80,
    from: `if (room.taken > 0) return { outcome: 'reserved', of: room.of, needs: tokens, left: room.left }\n    tokens = Math.max(1, room.left)`,
    to: 'tokens = Math.max(1, room.left)',
  },
  {
    name: 'a process is considered dead too early',
    file: 'plugins/metering/gateway-heartbeat.ts', within: 20,
    from: 'export const DEAD_MS = 45_000',
    to: 'export const DEAD_MS = 12_000',
  },
  {
    name: 'a dead process is not found',
    file: 'plugins/metering/orphaned-reservations.ts', within: 20,
    from: 'now - before.since >= DEAD_MS) dead.add(beat.instance)',
    to: 'now < before.since) dead.add(beat.instance)',
  },
  {
    name: 'a request in flight is released',
    file: 'plugins/metering/unknown-admissions.ts', within: 600,
    from: ' && !inFlight(id))',
    to: ')',
  },
  {
    name: 'an admission that was never answered is kept',
    file: 'plugins/metering/unknown-admissions.ts', within: 200,
    from: 'now - at >= UNKNOWN_MS)',
    to: 'now < 0)',
  },
]

const mediaBugs = [...storeBugs, ...creationBugs, ...runBugs, ...moneyBugs, ...deliveryBugs, ...outageBugs, ...messageBugs, ...fileBugs, ...attemptBugs, ...JOB_BUGS, ...QUEUE_BUGS, ...PLAN_BUGS, ...CLOCK_BUGS]

export const BUGS: Bug[] = [
  ...mediaBugs.map((bug): Bug => ({ ...bug, scenario: 'media' })),
  ...[...codingBugs, ...CODING_PLAN_BUGS, ...CODING_CLOCK_BUGS, ...DISPATCH_BUGS, ...LEASE_BUGS].map((bug): Bug => ({ ...bug, scenario: 'coding' })),
  ...USAGE_BUGS,
]
