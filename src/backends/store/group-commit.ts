/**
 * How a subscription's record changes, the same for every adapter: read it, let the pure machine make the next one, put that in its place
 * if the version is still the one read; if not, start over. Each process keeps one queue per subscription: all that waits is applied in
 * order and written once (group commit), and each caller is answered after the write. Who has written for a while gives way to other
 * processes, which would else find the record changed each time they have read it.
 */
import { setTimeout as pauseFor } from 'node:timers/promises'
import { Unavailable } from '../../domain/errors.ts'
import { reduce } from '../../domain/subscription/reducer.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import type { Subscription } from '../../domain/subscription/subscription.ts'

/**
 * What an adapter gives. Both verbs throw `Unavailable` for "cannot know", and do so within a time of their own: nothing here cuts them
 * short.
 */
export type Side = {
  /** The record as it is now; `unchanged` may be answered, and saves sending it, when its version is still `known`. */
  read(id: string, known?: number): Promise<Subscription | null | 'unchanged'>
  /** Puts `record` in the place of the one whose version is `expected`, or of none when that is 0; whole or not at all. */
  replace(record: Subscription, expected: number): Promise<'replaced' | 'conflict'>
}

/** Why a change starts over: another process was first, or the outcome of a read or a write could not be learned. */
export type Retry = 'conflict' | 'unavailable'

export type ChangeOptions = {
  /** Told at every start over, for a metric. */
  retried?: (reason: Retry) => void
  /** How long a change that starts over goes on before it throws `Unavailable`. */
  patienceMs?: number
  /** Milliseconds of a clock that never goes back, for `patienceMs` alone. */
  clock?: () => number
  /** Waits so many milliseconds between two tries. */
  pause?: (ms: number) => Promise<unknown>
  /** Stands between the queues and the adapter: where a simulation loses, doubles and delays what is written. */
  between?: (side: Side) => Side
}

export type Changes = {
  /** As `Store.change`. */
  change<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Answer<N>>
  /** Lets what waits have its last try; what comes later is `Unavailable`. */
  close(): Promise<void>
}

type Waiting = {
  /**
   * Applies the command. `answer` hands the caller its answer, or its error: a throw by one command leaves the record alone and fails
   * that caller alone.
   */
  apply(record: Subscription | null): { record: Subscription | null; answer: () => void }
  fail(error: unknown): void
  deadline: number
}

type Queue = {
  id: string
  waiting: Waiting[]
  /** The record of the last try; undefined when it is not known. */
  copy: Subscription | null | undefined
  /** Tries in a row whose outcome was not learned. */
  failures: number
  drained: Promise<void>
}

/** What all queues of one store share. */
type Shared = Required<Omit<ChangeOptions, 'between'>> & { side: Side; closing: boolean }

const PATIENCE_MS = 5000
const FIRST_PAUSE_MS = 10
const LONGEST_PAUSE_MS = 500
/** Commands in one write. Each copies what is open: many of them on a large record take so long that another process is first every time. */
const MOST_AT_ONCE = 200
/** Writes in a row without a rest go on for so long; then the others have the time of so many tries, within a bound. */
const TURN_MS = 200
const TRIES_GIVEN = 3
const MOST_GIVEN_MS = 1000

/** Opens the queues over one adapter. An idle subscription takes no memory. */
export function openChanges(adapter: Side, options: ChangeOptions = {}): Changes {
  const { retried = () => {}, patienceMs = PATIENCE_MS, clock = () => performance.now(), pause = pauseFor } = options
  const shared: Shared = { retried, patienceMs, clock, pause, side: options.between?.(adapter) ?? adapter, closing: false }
  const queues = new Map<string, Queue>()

  function change<N extends CommandName>(id: string, command: Extract<Command, { op: N }>, now: number): Promise<Answer<N>> {
    if (shared.closing) return Promise.reject(new Unavailable('store', new Error('the store is closed')))
    return new Promise((resolve, reject) => {
      const apply: Waiting['apply'] = (record) => {
        try {
          const step = reduce(record, command, now, id)
          return { record: step.record, answer: () => resolve(step.answer) }
        } catch (error) {
          return { record, answer: () => reject(error) }
        }
      }
      queueOf(id).waiting.push({ apply, fail: reject, deadline: clock() + patienceMs })
    })
  }

  function queueOf(id: string): Queue {
    const known = queues.get(id)
    if (known) return known
    const queue: Queue = { id, waiting: [], copy: undefined, failures: 0, drained: Promise.resolve() }
    queues.set(id, queue)
    queue.drained = drain(queue, shared, () => queues.delete(id))
    return queue
  }

  async function close(): Promise<void> {
    shared.closing = true
    await Promise.all([...queues.values()].map((queue) => queue.drained))
  }

  return { change, close }
}

async function drain(queue: Queue, shared: Shared, emptied: () => void): Promise<void> {
  await Promise.resolve() // Callers of the same turn share the first write.
  let turnEnds = shared.clock() + TURN_MS
  while (queue.waiting.length > 0) {
    const batch = queue.waiting.splice(0, MOST_AT_ONCE)
    const trySince = shared.clock()
    try {
      const outcome = await serve(queue, shared, batch)
      queue.failures = 0
      const now = shared.clock()
      if (outcome === 'conflict') {
        startOver(queue, shared, batch, 'conflict', new Unavailable('store', new Error('too many conflicts')))
        // There are others: once this one has written, they are next.
        turnEnds = now
      } else if (queue.waiting.length > 0 && now >= turnEnds) {
        await giveWay(queue, shared, now - trySince)
        turnEnds = shared.clock() + TURN_MS
      }
    } catch (error) {
      if (error instanceof Unavailable) startOver(queue, shared, batch, 'unavailable', error)
      else fail(queue, batch, error)
      if (queue.waiting.length > 0) await shared.pause(Math.min(FIRST_PAUSE_MS * 2 ** queue.failures++, LONGEST_PAUSE_MS))
    }
  }
  emptied()
}

/**
 * A process that keeps its copy writes once where another has to read and to write: that one would conflict for as long as this one has
 * work, and its callers would wait in vain.
 */
async function giveWay(queue: Queue, { pause }: Shared, tryMs: number): Promise<void> {
  queue.copy = undefined
  await pause(Math.min(Math.ceil(TRIES_GIVEN * tryMs), MOST_GIVEN_MS))
}

/**
 * One try. A refusal, or anything else that writes nothing, is only true of a record that was current after its caller had asked: either it
 * was read in this try, or the write that follows proves it by its version. The copy kept from the try before is neither, and is checked
 * before it may refuse.
 */
async function serve(queue: Queue, { side }: Shared, batch: Waiting[]): Promise<'served' | 'conflict'> {
  const kept = queue.copy
  let base = kept === undefined ? await readAgain(side, queue.id, null) : kept
  let tried = applyAll(batch, base)
  if (tried.record === base && kept !== undefined) {
    const now = await readAgain(side, queue.id, base)
    if (now !== base) tried = applyAll(batch, (base = now))
  }
  queue.copy = base
  if (tried.record && tried.record !== base) {
    const expected = base?.version ?? 0
    const next = { ...tried.record, version: expected + 1 }
    if ((await side.replace(next, expected)) === 'conflict') return 'conflict'
    queue.copy = next
  }
  for (const answer of tried.answers) answer()
  return 'served'
}

async function readAgain(side: Side, id: string, copy: Subscription | null): Promise<Subscription | null> {
  const read = await side.read(id, copy?.version)
  return read === 'unchanged' ? copy : read
}

function applyAll(batch: Waiting[], base: Subscription | null): { record: Subscription | null; answers: (() => void)[] } {
  let record = base
  const answers = batch.map((one) => {
    const step = one.apply(record)
    record = step.record
    return step.answer
  })
  return { record, answers }
}

/**
 * Every command is idempotent by its id, so all of the batch are applied again, with those that came meanwhile, unless their time is up.
 * A conflict says that the store answers, so a store that closes still sees those through.
 */
function startOver(queue: Queue, shared: Shared, batch: Waiting[], reason: Retry, cause: Unavailable): void {
  shared.retried(reason)
  const now = shared.clock()
  const isInTime = (one: Waiting) => now < one.deadline
  const again = (one: Waiting) => isInTime(one) && !(shared.closing && reason === 'unavailable')
  // Those behind the batch have waited for this try as well.
  const late = [...batch.filter((one) => !again(one)), ...queue.waiting.filter((one) => !isInTime(one))]
  queue.waiting = [...batch.filter(again), ...queue.waiting.filter(isInTime)]
  fail(queue, late, cause)
}

/** Whatever failed, the record is not known any more. */
function fail(queue: Queue, batch: Waiting[], error: unknown): void {
  queue.copy = undefined
  for (const one of batch) one.fail(error)
}
