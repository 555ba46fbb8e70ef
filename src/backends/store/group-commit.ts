/**
 * Group commit: changes of a subscription's record by compare-and-set, the same for every adapter. A change reads the record, lets the pure reducer make the
 * next one, and replaces the record if its version is still the one that was read; otherwise it is retried. Each process has one queue per subscription: all
 * queued commands are applied in order and written once, and each caller is answered after the write. A process that has written for a while pauses for the
 * others, which would otherwise find the record changed after each read.
 * A process that writes the records alone has the current one in memory: it applies each command when it is called, also while it writes what came before,
 * as long as the store stores what it is given (`write-mode.ts`). One that shares the store may do so with what its lease on a record covers (`record-lease.ts`).
 */
import { setTimeout as pauseFor } from 'node:timers/promises'
import { removeEntry } from '../../domain/long-lived-maps.ts'
import { Busy, Unavailable, Unwritable } from '../../domain/errors.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import { CurrentRecord } from '../../domain/subscription/current-record.ts'
import type { Subscription } from '../../domain/subscription/subscription.ts'
import type { ChangeOptions, Retry } from './record-change-options.ts'
import { AppliedCommand, changing, deciding, type Call, type Decided, type QueuedCommand, type Write } from './queued-command.ts'
import { asDecided, RecordLease } from './record-lease.ts'
import type { VersionedRecords } from './versioned-records.ts'
import { openWriteMode, type WriteMode } from './write-mode.ts'

export type Changes = {
  /** As `Store.change`. */
  change<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Answer<N>>
  /** As `Store.decide`. */
  decide<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Decided<N>>
  /** As `Store.decideNow`. */
  decideNow<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number, write: Write): Answer<N> | null
  /** Gives queued commands a last attempt; later ones are `Unavailable`. */
  close(): Promise<void>
}

type Queue = {
  id: string
  queued: QueuedCommand[]
  /** The record that is stored, as of the last attempt; undefined when it is unknown. */
  stored: Subscription | null | undefined
  /** The record after all queued commands, which were answered when they were called; undefined while they wait for their write. Only with `isSole` or a lease. */
  ahead: CurrentRecord | undefined
  /** Null where this process takes none. Then `ahead` has what it covers. */
  lease: RecordLease | null
  /** Why the last attempt failed, until the next one: this would not store an admission either. */
  unwritable?: Unwritable | undefined
  drained: Promise<void>
}

/** What all queues of one store share. */
type Shared = Required<Omit<ChangeOptions, 'wrap' | 'failing'>> & { records: VersionedRecords; mode: WriteMode; closing: boolean }

const RETRY_FOR_MS = 5000
const MIN_PAUSE_MS = 10
const MAX_PAUSE_MS = 500
/** Commands in one write. Those of coding copy what is open: too many of them on a large record take so long that another process writes first every time. */
const MAX_BATCH = 200
/** A process writes without a pause for this long; then it pauses for the time of a few attempts, up to a limit. */
const MAX_BUSY_MS = 200
const YIELDED_ATTEMPTS = 3
const MAX_YIELD_MS = 1000

/** Opens the queues over one adapter. An idle subscription takes no memory. */
export function openChanges(adapter: VersionedRecords, options: ChangeOptions = {}): Changes {
  const {
    retried = () => {},
    healed = () => {},
    storeTime = () => null,
    isSole = false,
    recordsUsage = false,
    leases = false,
    retryForMs = RETRY_FOR_MS,
    clock = () => performance.now(),
    pause = pauseFor,
  } = options
  const given = { retried, healed, storeTime, isSole, recordsUsage, retryForMs, clock, pause, closing: false }
  const shared: Shared = {
    ...given,
    leases: leases && !isSole,
    records: options.wrap?.(adapter) ?? adapter,
    mode: openWriteMode(clock, options.failing ?? (() => {})),
  }
  let queues = new Map<string, Queue>()

  function callOf<N extends CommandName>(command: Extract<Command, { op: N }>, now: number): Call<N> {
    return { command, now, deadline: clock() + retryForMs }
  }

  function change<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Answer<N>> {
    const { queued, answer } = changing<N>(callOf(command, now))
    enqueue(id, queued)
    return answer
  }

  function decide<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Decided<N>> {
    const { queued, answer } = deciding<N>(callOf(command, now))
    enqueue(id, queued)
    return answer
  }

  function decideNow<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number, write: Write): Answer<N> | null {
    if (shared.closing) return null
    const queue = isSole ? queueOf(id) : queues.get(id)
    const record = queue && (isSole ? current(queue, shared) : queue.lease?.isHeld() ? queue.ahead : undefined)
    if (!record) return null
    const answer = isSole ? record.apply<N>(command, now) : record.applyByLease<N>(command, now)
    if (answer === null) return null
    const decided = isSole ? command : asDecided(command, answer)
    push(queue, new AppliedCommand<N>(answer, callOf(decided, now), write), false)
    return answer
  }

  function push({ queued, lease }: Queue, one: QueuedCommand, isUrgent: boolean): void {
    queued.push(one)
    lease?.queued((one.command.op === 'admit' && lease.asks()) || isUrgent)
  }

  function enqueue(id: string, one: QueuedCommand): void {
    if (shared.closing) return one.fail(new Unavailable('store', new Error('the store is closed')))
    const queue = queueOf(id)
    if (queue.unwritable && one.command.op === 'admit') return one.fail(queue.unwritable)
    push(queue, one, true)
    if (!isSole) return
    queue.ahead = current(queue, shared)
    if (!queue.ahead) return
    one.apply(queue.ahead)
    one.decided()
  }

  function queueOf(id: string): Queue {
    const open = queues.get(id)
    if (open) return open
    const stored = shared.records.known?.(id)
    const ahead = stored && new CurrentRecord(id, stored, shared.recordsUsage)
    const queue: Queue = { id, queued: [], stored, ahead, lease: shared.leases ? new RecordLease(clock) : null, drained: Promise.resolve() }
    queues.set(id, queue)
    queue.drained = drain(queue, shared, () => (queues = removeEntry(queues, id)))
    return queue
  }

  async function close(): Promise<void> {
    shared.closing = true
    for (const { lease } of queues.values()) lease?.end()
    await Promise.all([...queues.values()].map((queue) => queue.drained))
  }

  return { change, decide, decideNow, close }
}

/** The record that is written next, for a command that is applied now; undefined where it waits for its write. */
function current({ ahead }: Queue, { storeTime, mode }: Shared): CurrentRecord | undefined {
  if (!ahead || !mode.isAhead()) return undefined
  try {
    return ahead.heal(storeTime())
  } catch {
    // Nothing may be written now: the attempt throws it again.
    return undefined
  }
}

async function drain(queue: Queue, shared: Shared, emptied: () => void): Promise<void> {
  await Promise.resolve() // Callers of the same tick share the first write.
  let busyUntil = shared.clock() + MAX_BUSY_MS
  let failures = 0 // Consecutive attempts with an unknown outcome.
  let doubtful: QueuedCommand[] = [] // Commands that an attempt of unknown outcome may have written.
  for (;;) {
    if (await queue.lease?.rest(shared.pause)) busyUntil = shared.clock() + MAX_BUSY_MS
    if (queue.queued.length === 0) break
    const batch = queue.queued.splice(0, shared.isSole ? Infinity : MAX_BATCH)
    const attemptSince = shared.clock()
    try {
      const outcome = await attempt(queue, shared, batch, doubtful)
      failures = 0
      const now = shared.clock()
      if (outcome === 'conflict') {
        retry(queue, shared, batch, 'conflict', new Busy('store', new Error('too many conflicts')))
        // Other processes write this record: pause for them after the next write.
        busyUntil = now
        continue
      }
      doubtful = []
      if (!shared.isSole && !queue.lease?.isShared() && queue.queued.length > 0 && now >= busyUntil) {
        // With its cached record this process only writes, where others must read first: they would conflict until they time out.
        queue.stored = undefined
        await shared.pause(Math.min(Math.ceil(YIELDED_ATTEMPTS * (now - attemptSince)), MAX_YIELD_MS))
        busyUntil = shared.clock() + MAX_BUSY_MS
      }
    } catch (error) {
      queue.unwritable = error instanceof Unwritable ? error : undefined
      if (error instanceof Unavailable) retry(queue, shared, batch, 'unavailable', error)
      else fail(queue, batch, error)
      doubtful = batch
      if (queue.queued.length > 0) await shared.pause(Math.min(MIN_PAUSE_MS * 2 ** failures++, MAX_PAUSE_MS))
      queue.unwritable = undefined
    }
  }
  emptied()
}

/**
 * One attempt. An answer that writes nothing, such as a refusal, is only valid for a record that was current after its call: either the record was read in this
 * attempt, or the write of the same batch proves it by its version, or nobody else writes. A record in memory is otherwise read again before it may refuse.
 */
async function attempt(queue: Queue, shared: Shared, batch: QueuedCommand[], doubtful: QueuedCommand[]): Promise<'done' | 'conflict'> {
  const { records, storeTime, isSole, mode, recordsUsage } = shared
  const { stored, lease } = queue
  let base = stored === undefined ? await refresh(records, queue.id, null) : stored
  // A process that stood still was taken for dead, and what it has reserved is charged: to admit it again would charge it twice.
  if (doubtful.some((one) => shared.clock() >= one.deadline && batch.includes(one))) throw new Unavailable('store', new Error('late'))
  // With those that were called during the read.
  if (isSole && queue.ahead === undefined) batch.push(...queue.queued.splice(0))
  const opened = (record: Subscription | null) => new CurrentRecord(queue.id, record, recordsUsage).heal(storeTime())
  let applied = (isSole ? queue.ahead : undefined) ?? applyAll(batch, opened(base))
  if (!isSole && applied.record() === base && stored !== undefined) {
    const found = await refresh(records, queue.id, base)
    if (found !== base) applied = applyAll(batch, opened((base = found)))
  }
  const leased = lease ? renew(queue, lease, applied, batch, base) : undefined
  queue.stored = base
  const unstored = base?.outbox ? records.unstored(base.outbox) : []
  const next = applied.record() === base ? null : applied.withVersion((base?.version ?? 0) + 1, unstored)
  if (isSole && (queue.ahead !== undefined || mode.isAhead())) {
    queue.ahead = applied
    for (const one of batch) one.decided()
  }
  if (next && (await write(queue, shared, base, next)) === 'conflict') return 'conflict'
  if (lease) queue.ahead = leased
  // It is read before the next write, which would mostly find that another gateway has written it.
  if (lease?.isShared()) queue.stored = undefined
  for (const one of batch) one.written()
  return 'done'
}

/**
 * Under a lease, applies what was called during the attempt's read as well: the lease has covered some of it, and is renewed with what is written. Where that writes nothing, no version proves
 * that the record was current after those calls, and they wait for the next attempt. Commands that are called from now on are applied to the record after this attempt, under a first lease
 * once it is written. Returns the record with the lease.
 */
function renew(
  queue: Queue,
  lease: RecordLease,
  applied: CurrentRecord,
  batch: QueuedCommand[],
  base: Subscription | null,
): CurrentRecord | undefined {
  const meanwhile = queue.ahead ? queue.queued.splice(0) : []
  applyAll(meanwhile, applied)
  const isWritten = applied.record() !== base
  if (isWritten) batch.push(...meanwhile)
  else queue.queued.unshift(...meanwhile)
  lease.taken(queue.queued.length)
  const isHeld = isWritten ? lease.renew(applied, batch) : queue.ahead !== undefined
  const leased = isHeld ? applied : undefined
  queue.ahead &&= leased
  return leased
}

async function refresh(records: VersionedRecords, id: string, cached: Subscription | null): Promise<Subscription | null> {
  const read = await records.read(id, cached?.version)
  return read === 'unchanged' ? cached : read
}

/** Replaces `base`, which becomes the record after this attempt. */
async function write(
  queue: Queue,
  { records, healed: told, mode }: Shared,
  base: Subscription | null,
  next: Subscription,
): Promise<'done' | 'conflict'> {
  if ((await mode.run(() => records.replace(next, base))) === 'conflict') return 'conflict'
  queue.stored = next
  // Only healing takes the time of a record back.
  if (base && next.at < base.at) told(queue.id, base.at - next.at)
  return 'done'
}

function applyAll(batch: QueuedCommand[], record: CurrentRecord): CurrentRecord {
  for (const one of batch) one.apply(record)
  return record
}

/**
 * Requeues the batch in front of later commands: every command is idempotent by its id. Those past their deadline fail, and so do
 * admissions where the store takes no writes. A conflict proves that it is available, so a store that closes still retries it.
 */
function retry(queue: Queue, shared: Shared, batch: QueuedCommand[], reason: Retry, cause: Unavailable): void {
  shared.retried(reason)
  const now = shared.clock()
  const isInTime = (one: QueuedCommand) => now < one.deadline && !(queue.unwritable && one.command.op === 'admit')
  const isRetried = (one: QueuedCommand) => isInTime(one) && !(shared.closing && reason === 'unavailable')
  // Commands queued behind the batch have waited for this attempt as well.
  const late = [...batch.filter((one) => !isRetried(one)), ...queue.queued.filter((one) => !isInTime(one))]
  queue.queued = [...batch.filter(isRetried), ...queue.queued.filter(isInTime)]
  if (queue.queued.length > 0) queue.lease?.queued(true)
  fail(queue, late, cause)
}

/** Rejects the callers and forgets the stored record, which is unknown after any failure. */
function fail(queue: Queue, batch: QueuedCommand[], error: unknown): void {
  queue.stored = undefined
  queue.ahead = undefined
  for (const one of batch) one.fail(error)
}
