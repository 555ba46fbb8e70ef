/** Bytes of an unknown length in one block of memory, which grows as they arrive: a part that was copied is not kept, however small it is. */

/** Called with each change of the memory that is held, in bytes; throws to refuse more. */
export type Take = (change: number) => void

export type GrowingBuffer = {
  /** Copies a part behind the others. Throws what `take` throws, and holds then what it held before. */
  append(part: Uint8Array): void
  length(): number
  /** All bytes, in memory of exactly their length. Valid until `free` or `release`; nothing may be appended afterwards. */
  bytes(): Buffer
  /** Returns the memory to the system at once, without waiting for the garbage collector. May be called twice. */
  free(): void
  /** The same, while the caller of `take` keeps it counted. */
  release(): void
}

const FIRST_BYTES = 4096

/**
 * Opens an empty buffer. Its memory doubles, up to `most` bytes, which the caller enforces: at any time it holds at most twice what has arrived,
 * plus 4 KiB.
 */
export function openGrowingBuffer(most: number, take: Take): GrowingBuffer {
  let memory = new ArrayBuffer(0)
  let length = 0

  function resize(capacity: number): void {
    const change = capacity - memory.byteLength
    if (change > 0) take(change)
    // A transfer frees the previous memory, where a copy would leave it to the garbage collector.
    memory = memory.transfer(capacity)
    if (change < 0) take(change)
  }

  return {
    append(part) {
      const needed = length + part.length
      if (needed > memory.byteLength) resize(Math.max(needed, Math.min(most, Math.max(FIRST_BYTES, 2 * memory.byteLength))))
      new Uint8Array(memory).set(part, length)
      length = needed
    },
    length: () => length,
    bytes() {
      if (memory.byteLength > length) resize(length)
      return Buffer.from(memory)
    },
    free() {
      if (memory.byteLength > 0) resize(0)
      length = 0
    },
    release: () => void (memory = memory.transfer(0)),
  }
}
