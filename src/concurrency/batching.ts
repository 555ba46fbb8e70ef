/** Group commit across many things: what many ask for at once goes to a server in one command. */
import { clearTimeout, setTimeout as startTimer } from 'node:timers'
import { Unavailable } from '../domain/errors.ts'

/** What became of one that was asked for: its answer, or why it has none. */
export type BatchOutcome<Answer> = { answer: Answer } | { failure: unknown }

/** One kind of command. */
export type Kind<Asked, Answer> = {
  /** Whose it is, for `Unavailable`. */
  backend: string
  /** Sends one command for all that are given, and tells of each in their order. What it throws is the failure of each. */
  send(asked: Asked[]): Promise<BatchOutcome<Answer>[]>
  /** What the command would name twice if two of the same id were in it. */
  idOf(asked: Asked): string
  /** Whether one command may serve several who ask for the same id, as a read may; else the second is in a later command. */
  shares: boolean
  /** Ids in one command. */
  most: number
  /** About how many bytes it adds to the command; none counts when absent. */
  weigh?(asked: Asked): number
  /** How long one command is waited for; 15 s when absent. */
  longestMs?: number
}

type Waiting<Asked, Answer> = { asked: Asked; id: string; weight: number; sinceMs: number; resolve(answer: Answer): void; reject(failure: unknown): void }

/**
 * Longer than a server is looked for (3 s), a connection to it waited for (5 s) and its answer (5 s). What a client library never ends, as MongoDB's did (`mendWrites`), must not
 * keep all others of its kind waiting.
 */
const LONGEST_MS = 15_000
/** Who has waited so long for their command to be sent is not sent any more: a server that takes less than is asked of it would else do what nobody waits for. */
const STALE_MS = 20_000
/** A command holds this much, or one that is larger: what takes long to write keeps the others of its kind waiting. */
const MOST_BYTES = 2 * 1024 * 1024

/**
 * Sends what is asked for in commands of a kind, one at a time. Who asks while none is under way is sent with all others of the same turn of the event loop; who asks
 * during one waits for its end, together with all who do. So nobody is told of what was read before they asked, and who is alone is not delayed. What a command throws is told to
 * those whom it had no room for as well, though nothing was sent for them: nobody waits for a second one that fails. One that does not end in time is `Unavailable`, and the
 * next goes; so is who has waited for their command for 20 s. `now`: milliseconds of a clock that only rises.
 */
export function createBatcher<Asked, Answer>(kind: Kind<Asked, Answer>, now: () => number = performance.now.bind(performance)): (asked: Asked) => Promise<Answer> {
  let waiting: Waiting<Asked, Answer>[] = []
  let isBusy = false

  function begin(): void {
    isBusy = true
    // What this turn still brings goes with it.
    setImmediate(() => void sendNext())
  }

  async function sendNext(): Promise<void> {
    const { batch, rest } = next(freshOf(waiting), kind)
    waiting = [...rest]
    try {
      if (batch.length === 0) return
      answer(batch, await withTimeout(kind.backend, kind.longestMs ?? LONGEST_MS, kind.send(batch.map(({ asked }) => asked))))
    } catch (error) {
      const failed = new Set([...batch, ...rest])
      waiting = waiting.filter((one) => !failed.has(one))
      for (const { reject } of failed) reject(error)
    } finally {
      isBusy = false
      if (waiting.length > 0) begin()
    }
  }

  /** Those who have not waited too long; the others are told. */
  function freshOf(all: Waiting<Asked, Answer>[]): Waiting<Asked, Answer>[] {
    const staleMs = now() - STALE_MS
    for (const { sinceMs, reject } of all) if (sinceMs < staleMs) reject(new Unavailable(kind.backend, new Error('too much was asked for before')))
    return all.filter(({ sinceMs }) => sinceMs >= staleMs)
  }

  return (asked) =>
    new Promise((resolve, reject) => {
      waiting.push({ asked, id: kind.idOf(asked), weight: kind.weigh?.(asked) ?? 0, sinceMs: now(), resolve, reject })
      if (!isBusy) begin()
    })
}

/** What `work` comes to; `Unavailable` when that takes longer, whatever it comes to later. */
export async function withTimeout<T>(backend: string, longestMs: number, work: Promise<T>, after = startTimer): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = after(() => late.reject(new Unavailable(backend, new Error(`no answer within ${longestMs} ms`))), longestMs).unref()
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

function answer<Asked, Answer>(batch: Waiting<Asked, Answer>[], told: BatchOutcome<Answer>[]): void {
  for (const [n, { resolve, reject }] of batch.entries()) {
    const one = told[n] ?? { failure: new TypeError('a command told nothing of one that it was sent for') }
    if ('answer' in one) resolve(one.answer)
    else reject(one.failure)
  }
}

/** Those who waited longest, as many as go into one command, and those who go on waiting. */
function next<Asked, Answer>(waiting: Waiting<Asked, Answer>[], { shares, most }: Kind<Asked, Answer>) {
  const batch: Waiting<Asked, Answer>[] = []
  const rest: Waiting<Asked, Answer>[] = []
  const ids = new Set<string>()
  let bytes = 0
  for (const one of waiting) {
    const { id } = one
    const isNew = !ids.has(id)
    const weight = isNew ? one.weight : 0
    const hasRoom = isNew ? ids.size < most && (ids.size === 0 || bytes + weight <= MOST_BYTES) : shares
    if (hasRoom) {
      ids.add(id)
      bytes += weight
      batch.push(one)
    } else rest.push(one)
  }
  return { batch, rest }
}
