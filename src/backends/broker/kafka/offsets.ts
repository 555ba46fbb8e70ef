/** Offsets of one consumer: an offset may be committed once its message and all messages before it in the partition were handled. */

export type Position = { partition: number; offset: string }

export type Offsets = {
  /** Adds a received message. Returns the function to call once it was handled. */
  received(partition: number, offset: string): () => void
  /** The offset after the last handled message of each partition, where it is not committed yet. */
  committable(): Position[]
  committed(positions: readonly Position[]): void
}

type Partition = {
  /** In the order of their offsets. */
  open: { offset: bigint; isHandled: boolean }[]
  next: bigint | null
  committed: bigint | null
}

export function openOffsets(): Offsets {
  const partitions = new Map<number, Partition>()

  function advance(partition: Partition): void {
    const handled = partition.open.findIndex(({ isHandled }) => !isHandled)
    const done = partition.open.splice(0, handled < 0 ? partition.open.length : handled).at(-1)
    if (done) partition.next = done.offset + 1n
  }

  return {
    received(number, offset) {
      const partition = partitions.get(number) ?? { open: [], next: null, committed: null }
      partitions.set(number, partition)
      const entry = { offset: BigInt(offset), isHandled: false }
      partition.open.push(entry)
      return () => {
        entry.isHandled = true
        if (partition.open[0] === entry) advance(partition)
      }
    },
    committable: () =>
      [...partitions].flatMap(([partition, { next, committed }]) =>
        next === null || next === committed ? [] : [{ partition, offset: String(next) }],
      ),
    committed(positions) {
      for (const { partition, offset } of positions) {
        const known = partitions.get(partition)
        if (known) known.committed = BigInt(offset)
      }
    },
  }
}
