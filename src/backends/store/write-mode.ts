/**
 * Whether the store stores what it is given. While it does, and quickly, a process that writes alone may answer a command before its write; once a write has failed or takes long,
 * commands are answered with their write, until one succeeds quickly.
 */

export type WriteMode = {
  /** Answers may go ahead of their writes: the last one succeeded quickly, and those in progress make progress. */
  isAhead(): boolean
  /** Runs a write, whose outcome decides. `conflict`: another process wrote first, so that the store works and nothing was stored. */
  run(write: () => Promise<'replaced' | 'conflict'>): Promise<'replaced' | 'conflict'>
}

/** A disk that commits does so within milliseconds. This is also how long requests may go on to be sent while it hangs. */
const QUICK_MS = 100

/** `clock`: monotonic milliseconds. `failing` is called with the reason when writes begin to fail, and with null when one succeeds again. */
export function openWriteMode(clock: () => number, failing: (reason: unknown) => void): WriteMode {
  let isQuick = false
  let hasFailed = false
  let writing = 0
  /** When a write ended last, or the first of those in progress began. */
  let progressAt = 0

  function ended(outcome: 'replaced' | 'conflict' | 'failed', since: number, reason: unknown = null): void {
    writing--
    progressAt = clock()
    isQuick = outcome === 'replaced' && progressAt - since <= QUICK_MS
    const fails = outcome === 'failed'
    if (fails !== hasFailed) failing(reason)
    hasFailed = fails
  }

  return {
    isAhead: () => isQuick && (writing === 0 || clock() - progressAt <= QUICK_MS),
    async run(write) {
      const since = clock()
      if (writing++ === 0) progressAt = since
      try {
        const outcome = await write()
        ended(outcome, since)
        return outcome
      } catch (error) {
        ended('failed', since, error)
        throw error
      }
    },
  }
}
