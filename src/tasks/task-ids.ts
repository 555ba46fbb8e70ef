/** Ids of tasks: their order is the order of creation. */

/** `xxxxxxxx-xxxx`: 48 bits of time. */
const TIME_LENGTH = 13

/**
 * UUIDs v7 (RFC 9562, section 5.7) out of those that `draw` gives, each later than the one before, also within a millisecond, where Node's are in no order: one that is not is drawn
 * again, until the next millisecond at the latest. Only a clock that was set back makes an earlier one.
 */
export function monotonicUuids(draw: () => string): () => string {
  let last = ''
  return () => {
    let id = draw()
    while (id <= last && id.startsWith(last.slice(0, TIME_LENGTH))) id = draw()
    last = id
    return id
  }
}
