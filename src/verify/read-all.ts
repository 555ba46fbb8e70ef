/** Everything of a kind that a store keeps, in parts. */
import type { Kept, Store } from '../backends/store/store.ts'

const PAGE = 500

/** In the order of the ids. What is written meanwhile may be missing or new. Throws `Unavailable`. */
export async function* readAll<K extends keyof Kept>(store: Store, what: K): AsyncGenerator<Kept[K]> {
  for (let after: string | null = null; ;) {
    const { found, next }: { found: Kept[K][]; next: string | null } = await store.scan(what, after, PAGE)
    yield* found
    if (next === null) return
    after = next
  }
}
