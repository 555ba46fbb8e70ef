/**
 * Bugs that the simulation must find: each is one change to the code under test, the kind of change that looks harmless in a review. `from` is in `file` exactly once,
 * so that the list cannot outlive the code it speaks of. `within`: among so many seeds of its story, from the first one on, one must fail; a few times as many as it took
 * when the bug was listed, since every change to the code under test deals the seeds anew.
 */
export type Bug = { name: string; file: string; from: string; to: string; story: 'media' | 'coding'; within: number }

const STORE = 'src/store/sqlite'

const storeBugs: Bug[] = [
  { name: 'a record is replaced whatever its version', file: `${STORE}/subscriptions.ts`, from: 'WHERE id = ? AND version = ?', to: 'WHERE id = ? AND version >= 0 * ?', story: 'media', within: 20 },
  { name: 'a conflict is taken for a success', file: 'src/store/changes.ts', from: `if ((await side.replace(next, expected)) === 'conflict') return 'conflict'`, to: 'await side.replace(next, expected)', story: 'media', within: 20 },
  { name: 'two tasks may have one Idempotency-Key', file: `${STORE}/tasks.ts`, from: 'CREATE UNIQUE INDEX tasks_by_key', to: 'CREATE INDEX tasks_by_key', story: 'media', within: 60 },
  { name: 'the epoch of a guard is ignored', file: `${STORE}/tasks.ts`, from: '(epoch === undefined || task.epoch === epoch)', to: 'true', story: 'media', within: 100 },
  { name: 'a lease is renewed under any epoch', file: `${STORE}/tasks.ts`, from: `const guard: TaskGuard = { from: ['processing'], epoch }`, to: `const guard: TaskGuard = { from: ['processing'], epochBelow: epoch + 9 }`, story: 'media', within: 100 },
  { name: 'an attempt is written down under any claim', file: `${STORE}/deliveries.ts`, from: `if (delivery?.epoch !== epoch) return 'lost'`, to: `if (!delivery) return 'lost'`, story: 'media', within: 500 },
  { name: 'the lease of a delivery is ignored', file: `${STORE}/deliveries.ts`, from: 'Math.max(nextAttemptAt, leaseUntil ?? 0)', to: 'nextAttemptAt', story: 'media', within: 20 },
]

const creationBugs: Bug[] = [
  { name: 'a creation is answered before its task is queued', file: 'src/tasks/create.ts', from: `return { outcome: 'created', task: await holdFor(doors, creating, task) }`, to: `void holdFor(doors, creating, task).catch(() => {})\n  return { outcome: 'created', task }`, story: 'media', within: 20 },
  { name: 'a hold asked for twice starts anew', file: 'src/subscription/media.ts', from: `if (record?.media?.holds[input.task]) return { record, answer: { outcome: 'already' } }`, to: '', story: 'media', within: 200 },
  { name: 'a pending task is never rejected', file: 'src/tasks/sweep.ts', from: `return (await reject(doors, task)) ? 'rejected' : null`, to: 'return null', story: 'media', within: 20 },
  { name: 'a rejected task keeps its Idempotency-Key', file: 'src/tasks/sweep.ts', from: `'rejected', { idempotency: null, sweepAt: null`, to: `'rejected', { sweepAt: null`, story: 'media', within: 100 },
]

const runBugs: Bug[] = [
  { name: 'a task begins under an old epoch', file: 'src/tasks/run.ts', from: `{ from: ['queued'], epochBelow: epoch }`, to: `{ from: ['queued'] }`, story: 'media', within: 100 },
  { name: 'a claim does not raise the epoch', file: 'src/subscription/media.ts', from: 'const epoch = waiting.epoch + 1', to: 'const epoch = Math.max(1, waiting.epoch)', story: 'media', within: 20 },
  { name: 'one more task runs than may', file: 'src/subscription/media.ts', from: 'if (running(account) >= record.terms.media.maxConcurrentTasks) return', to: 'if (running(account) > record.terms.media.maxConcurrentTasks) return', story: 'media', within: 100 },
  { name: 'any run may put a task back in the queue', file: 'src/subscription/media.ts', from: '!claimed?.run || claimed.epoch !== input.epoch', to: '!claimed?.run', story: 'media', within: 500 },
  { name: 'a late finisher is accepted', file: 'src/tasks/run.ts', from: `const guard = { from: ['processing'], epoch: task.epoch } as const`, to: `const guard = { from: ['processing'] } as const`, story: 'media', within: 100 },
  { name: 'a lost lease is not taken back', file: 'src/tasks/sweep.ts', from: `return (await takeBack(doors, task)) ? 'lost_lease' : null`, to: 'return null', story: 'media', within: 60 },
  { name: 'a claim that came to nothing is not swept', file: 'src/tasks/sweep.ts', from: `} else if (claimedLong && task.state === 'queued') {`, to: `} else if (claimedLong && task.state === 'pending') {`, story: 'media', within: 60 },
]

const moneyBugs: Bug[] = [
  { name: 'the money of a task moves before its state is claimed', file: 'src/tasks/run.ts', from: `const ended = await end(doors, task.id, guard, { outcome: 'completed'`, to: `await doors.store.change(task.subscription, { op: 'close', task: task.id, actual: Math.min(Math.max(made.cost, 0), task.estimatedCost) }, doors.clock())\n    const ended = await end(doors, task.id, guard, { outcome: 'completed'`, story: 'media', within: 20 },
  { name: 'a cancellation refunds before it claims the state', file: 'src/tasks/settle.ts', from: `const ended = await end(doors, task.id, { from: ['queued', 'processing'] }, { outcome: 'canceled' })`, to: `await doors.store.change(task.subscription, { op: 'close', task: task.id, actual: null }, doors.clock())\n  const ended = await end(doors, task.id, { from: ['queued', 'processing'] }, { outcome: 'canceled' })`, story: 'media', within: 20 },
  { name: 'a charge is what the engine says', file: 'src/tasks/settle.ts', from: 'Math.min(Math.max(outcome.cost, 0), task.estimatedCost)', to: 'outcome.cost', story: 'media', within: 20 },
  { name: 'a task is charged what this close did', file: 'src/tasks/settle.ts', from: 'actualCost: charge,', to: `actualCost: closed.outcome === 'closed' ? charge : 0,`, story: 'media', within: 100 },
  { name: 'a closed hold stays', file: 'src/subscription/media.ts', from: 'const { [input.task]: _ended, ...holds } = account.holds', to: 'const holds = account.holds', story: 'media', within: 20 },
  { name: 'a task that settles is not swept', file: 'src/tasks/sweep.ts', from: `return (await settle(doors, task)) ? 'settled' : null`, to: 'return null', story: 'media', within: 100 },
  { name: 'an orphaned hold is not swept', file: 'src/tasks/sweep.ts', from: 'if (!task || FINAL.includes(task.state)) {', to: 'if (!task) {', story: 'media', within: 500 },
  { name: 'what is burned is burned of the period that runs', file: 'src/subscription/media.ts', from: 'period.n === held.period && ran', to: 'period === account.period && ran', story: 'media', within: 20 },
  { name: 'an ended period is dropped before it is archived', file: 'src/tasks/sweep.ts', from: 'await doors.store.archivePeriod(record.id, period)', to: '', story: 'media', within: 20 },
]

const deliveryBugs: Bug[] = [
  { name: 'relaying twice makes two deliveries', file: 'src/tasks/relay.ts', from: 'id: deliveryId(task.id, event),', to: 'id: deliveryId(task.id, `${now}.${event}` as typeof event),', story: 'media', within: 20 },
  { name: 'what is not relayed at once is never relayed', file: 'src/tasks/sweep.ts', from: `await relay(doors, task)\n      return 'relayed'`, to: `return 'relayed'`, story: 'media', within: 100 },
  { name: 'the refund is told beside the failure', file: 'src/tasks/relay.ts', from: `const waits = event === 'task.refunded'`, to: 'const waits = false', story: 'media', within: 20 },
  { name: 'events are written after the state', file: 'src/tasks/settle.ts', from: '    outbox,\n', to: '    outbox: [],\n', story: 'media', within: 20 },
]

const codingBugs: Bug[] = [
  { name: 'a settlement charges the session that runs', file: 'src/subscription/coding.ts', from: 'if (session && session.start === reservation.session)', to: 'if (session)', story: 'coding', within: 20 },
  { name: 'a settlement charges the week that runs', file: 'src/subscription/coding.ts', from: 'if (weekly.n !== reservation.week || tokens === 0) continue', to: 'if (tokens === 0) continue', story: 'coding', within: 20 },
  { name: 'a settled reservation stays', file: 'src/subscription/coding.ts', from: 'for (const id of Object.keys(settled)) delete reservations[id]', to: '', story: 'coding', within: 20 },
  { name: 'a dead process expires what others reserved', file: 'src/subscription/coding.ts', from: 'reservation.instance === input.instance)', to: 'reservation.instance !== input.instance)', story: 'coding', within: 20 },
  { name: 'a request is admitted beside what others reserved', file: 'src/subscription/coding.ts', from: 'if (room.taken > 0) return null\n    tokens = room.left', to: 'tokens = Math.max(1, room.left)', story: 'coding', within: 60 },
  { name: 'a process is taken for dead at once', file: 'plugins/metering/sweep.ts', from: 'export const DEAD_MS = 45_000', to: 'export const DEAD_MS = 12_000', story: 'coding', within: 20 },
  { name: 'a dead process is not found', file: 'plugins/metering/sweep.ts', from: 'now - before.since >= DEAD_MS) dead.add(beat.instance)', to: 'now < before.since) dead.add(beat.instance)', story: 'coding', within: 20 },
  { name: 'a request in flight is released', file: 'plugins/metering/sweep.ts', from: '|| inFlight(id) ||', to: '||', story: 'coding', within: 60 },
  { name: 'an admission that was never answered is kept', file: 'plugins/metering/sweep.ts', from: 'now - reservation.at < UNKNOWN_MS) continue', to: 'now > 0) continue', story: 'coding', within: 20 },
]

export const BUGS: Bug[] = [...storeBugs, ...creationBugs, ...runBugs, ...moneyBugs, ...deliveryBugs, ...codingBugs]
