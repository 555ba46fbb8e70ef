/** The limit of V8's young generation, where an object lies until it has survived two collections. */
import { PerformanceObserver } from 'node:perf_hooks'
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'

/**
 * Of each of its two halves. V8's own limit is 32 MB, and it never shrinks while the process is idle: each open stream survives, and 500 of them grow it to 64 MB.
 * Smaller ones take processor time (`docs/benchmarks.md`, "Memory of an idle stream").
 */
const HALF_BYTES = 8 * 1024 * 1024

/** Lets the young generation double whenever as much as it holds has survived, up to `halfBytes`. */
export function growYoungGeneration(halfBytes = HALF_BYTES): void {
  setFlagsFromString('--semi-space-growth-factor=2')
  const collections = new PerformanceObserver(() => {
    // The headers of its pages do not count.
    if (halfOfYoungGeneration() < 0.9 * halfBytes) return
    setFlagsFromString('--semi-space-growth-factor=1')
    collections.disconnect()
  })
  collections.observe({ type: 'gc' })
}

/** In bytes, about. */
export function halfOfYoungGeneration(): number {
  const space = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')
  return space ? space.space_used_size + space.space_available_size : 0
}
