/** Group commit across documents: what many ask for at once goes to the server in one command. */
import { Unavailable } from '../../errors.ts'

/** What became of one that was asked for: its answer, or why it has none. */
export type Told<Answer> = { answer: Answer } | { failure: unknown }

/** One kind of command. */
export type Kind<Asked, Answer> = {
  /** Sends one command for all that are given, and tells of each in their order. What it throws is the failure of each. */
  send(asked: Asked[]): Promise<Told<Answer>[]>
  /** What the command would name twice if two of the same id were in it. */
  idOf(asked: Asked): string
  /** Whether one command may serve several who ask for the same id, as a read may; else the second is in a later command. */
  shares: boolean
  /** Ids in one command. */
  most: number
  /** About how many bytes it adds to the command; none counts when absent. */
  weigh?(asked: Asked): number
}

type Waiting<Asked, Answer> = { asked: Asked; sinceMs: number; resolve(answer: Answer): void; reject(failure: unknown): void }

/** Commands of a kind that are under way at once: while the server has one, the next is made. */
const MOST_UNDER_WAY = 2
/** A command holds this much, or one that is larger. A message may have 48 MB; what takes long to write keeps the others of its kind waiting. */
const MOST_BYTES = 2 * 1024 * 1024
/** Longest that is waited for a command of one's own: as long as for a connection. */
const PATIENCE_MS = 5000

/**
 * Sends what is asked for in commands of a kind. Who asks while none is under way is sent with all others of the same turn of the event loop; who asks
 * later waits for the end of one, together with all who do. So nobody is told of what was read before they asked, and who is alone is not delayed. A failure is
 * of those that it is known of; who waited too long for a command is told `Unavailable`, and was not sent.
 */
export function together<Asked, Answer>(kind: Kind<Asked, Answer>): (asked: Asked) => Promise<Answer> {
  let waiting: Waiting<Asked, Answer>[] = []
  let underWay = 0

  function begin(): void {
    underWay++
    // What this turn still brings goes with it.
    setImmediate(() => void sendNext())
  }

  async function sendNext(): Promise<void> {
    const { batch, rest } = next(waiting, kind)
    waiting = rest
    await serve(batch, kind)
    underWay--
    if (waiting.length > 0) begin()
  }

  return (asked) =>
    new Promise((resolve, reject) => {
      waiting.push({ asked, sinceMs: performance.now(), resolve, reject })
      if (underWay < MOST_UNDER_WAY) begin()
    })
}

async function serve<Asked, Answer>(batch: Waiting<Asked, Answer>[], { send }: Kind<Asked, Answer>): Promise<void> {
  if (batch.length === 0) return
  try {
    const told = await send(batch.map(({ asked }) => asked))
    for (const [n, { resolve, reject }] of batch.entries()) {
      const one = told[n] ?? { failure: new Error('a command told nothing of one that it was sent for') }
      if ('answer' in one) resolve(one.answer)
      else reject(one.failure)
    }
  } catch (error) {
    for (const { reject } of batch) reject(error)
  }
}

/** Those who waited longest, as many as go into one command, and those who go on waiting. */
function next<Asked, Answer>(waiting: Waiting<Asked, Answer>[], { idOf, shares, most, weigh = () => 0 }: Kind<Asked, Answer>): Record<'batch' | 'rest', Waiting<Asked, Answer>[]> {
  const [batch, rest]: Waiting<Asked, Answer>[][] = [[], []]
  const ids = new Set<string>()
  const earliestMs = performance.now() - PATIENCE_MS
  let bytes = 0
  for (const one of waiting) {
    const id = idOf(one.asked)
    const hasRoom = ids.has(id) ? shares : ids.size < most && (ids.size === 0 || bytes + weigh(one.asked) <= MOST_BYTES)
    if (one.sinceMs < earliestMs) one.reject(new Unavailable('store', new Error('those before it took too long')))
    else if (hasRoom) {
      if (!ids.has(id)) bytes += weigh(one.asked)
      ids.add(id)
      batch?.push(one)
    } else rest?.push(one)
  }
  return { batch: batch ?? [], rest: rest ?? [] }
}
