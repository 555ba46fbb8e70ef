/** Monotonic UUIDs v7: the order of task ids is the order of creation. */

/** `xxxxxxxx-xxxx`: 48 bits of time. */
const TIME_LENGTH = 13

/**
 * UUIDs v7 (RFC 9562, section 5.7) from `draw`, each later than the one before. Within a millisecond Node's are in random order: an earlier one is drawn again, until the next
 * millisecond at the latest. Only a clock that was set back gives an earlier one.
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
