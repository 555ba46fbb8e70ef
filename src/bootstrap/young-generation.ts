/** The size of V8's young generation, where an object lies until it has survived two collections. */
import { PerformanceObserver } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'

/** A larger young generation is collected less often. Up to this rate, that saves no processor time worth its memory. */
const COLLECTIONS_PER_SECOND = 20
const WINDOW_MS = 1000

/**
 * Lets the young generation double only while it is collected often. V8 doubles it, up to 64 MB, whenever as much as it holds has survived, as each stream does that is only open,
 * and does not shrink it while the process is idle (`docs/benchmarks.md`, "Memory of an idle stream").
 */
export function growYoungGeneration(perSecond = COLLECTIONS_PER_SECOND): void {
  let since = performance.now()
  let collections = 0
  setGrowthFactor(1)
  new PerformanceObserver((list) => {
    collections += list.getEntries().length
    const now = performance.now()
    if (now - since < WINDOW_MS) return
    setGrowthFactor(collections * 1000 > perSecond * (now - since) ? 2 : 1)
    since = now
    collections = 0
  }).observe({ type: 'gc' })
}

function setGrowthFactor(factor: 1 | 2): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`)
}
