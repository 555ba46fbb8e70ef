/** What some work does to the heap of this thread: bytes that it allocates, and those of them that reach the old generation. */
import { GCProfiler, getHeapStatistics } from 'node:v8'

export type Heaped = { allocated: number; promoted: number }

type Spaces = readonly { spaceName: string; spaceUsedSize: number }[]

/** Starts to watch. `stop` returns the bytes so far. What survives a collection of the young generation twice is promoted: it costs a copy, and a share of a slow collection later. */
export function watchHeap(): { stop(): Heaped } {
  const profiler = new GCProfiler()
  profiler.start()
  const begun = usedNow()
  return {
    stop() {
      const ended = usedNow()
      const { statistics } = profiler.stop() ?? { statistics: [] }
      let [freed, promoted] = [0, 0]
      for (const { gcType, beforeGC, afterGC } of statistics) {
        freed += beforeGC.heapStatistics.usedHeapSize - afterGC.heapStatistics.usedHeapSize
        if (gcType === 'Scavenge') promoted += old(afterGC.heapSpaceStatistics) - old(beforeGC.heapSpaceStatistics)
      }
      return { allocated: ended - begun + freed, promoted }
    },
  }
}

function usedNow(): number {
  return getHeapStatistics().used_heap_size
}

function old(spaces: Spaces): number {
  return spaces.reduce((sum, { spaceName, spaceUsedSize }) => (spaceName.startsWith('new') ? sum : sum + spaceUsedSize), 0)
}
