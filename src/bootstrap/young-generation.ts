/** The size of V8's young generation, where an object lies until it has survived two collections. */
import { constants, PerformanceObserver } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'

/** A larger young generation is collected less often. Collections of the smallest take half a millisecond, so that up to this rate a larger one would save no more than 2.5 % of a core. */
const COLLECTIONS_PER_SECOND = 50
/** Longer than it takes to open hundreds of streams at once. */
const WINDOW_MS = 5000

/**
 * Lets the young generation double only while it is collected often. V8 doubles it, up to 64 MB, whenever as much as it holds has survived, as each stream does that is only open,
 * and does not shrink it while the process is idle (`bench/notes/coding.md`).
 */
export function growYoungGeneration(perSecond = COLLECTIONS_PER_SECOND, windowMs = WINDOW_MS): void {
  let since = performance.now()
  let collections = 0
  setGrowthFactor(1)
  new PerformanceObserver((list) => {
    collections += list.getEntries().filter((entry) => isOfYoungGeneration(entry as unknown as Collection)).length
    const now = performance.now()
    if (now - since < windowMs) return
    setGrowthFactor(collections * 1000 > perSecond * (now - since) ? 2 : 1)
    since = now
    collections = 0
  }).observe({ type: 'gc' })
}

/** An entry of type `gc`. */
type Collection = { detail: { kind: number } }

function isOfYoungGeneration({ detail }: Collection): boolean {
  return detail.kind === constants.NODE_PERFORMANCE_GC_MINOR
}

/** 1: it keeps its size. */
export function setGrowthFactor(factor: 1 | 2): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`)
}
