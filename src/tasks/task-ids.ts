/** Monotonic UUIDs v7: the order of task ids is the order of creation. */

/** `xxxxxxxx-xxxx`: 48 bits of time. */
const TIME_LENGTH = 13
/** Where the last 48 bits begin, and where the last 32. */
const COUNTED_FROM = 24
const STEP_FROM = 28

/**
 * UUIDs v7 (RFC 9562, section 5.7) from `draw`, each later than the one before. Within a millisecond Node's are in random order: one that would be earlier is replaced by the last
 * one plus a random number (section 6.2, method 2). Only a clock that was set back gives an earlier one.
 */
export function monotonicUuids(draw: () => string): () => string {
  let last = ''
  return () => {
    let id = draw()
    while (id <= last && id.startsWith(last.slice(0, TIME_LENGTH))) id = increased(last, id) ?? draw()
    last = id
    return id
  }
}

/** `last` plus 1 to 2³²: the last 32 bits of `random` and one. Null if that exceeds its last 48 bits. */
function increased(last: string, random: string): string | null {
  const count = parseInt(last.slice(COUNTED_FROM), 16) + parseInt(random.slice(STEP_FROM), 16) + 1
  return count < 2 ** 48 ? last.slice(0, COUNTED_FROM) + count.toString(16).padStart(12, '0') : null
}
