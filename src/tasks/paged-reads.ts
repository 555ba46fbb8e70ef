/** Everything of a kind that a store keeps, in parts. */
import type { Kept, Store } from '../backends/store/store.ts'
import type { UsagePosition, UsageRange, UsageRecord } from '../domain/usage-records.ts'

const PAGE = 500

/** All items of a list that is read by pages of `size`, each from the id of the last item on; the first from `''`. Throws what `page` throws. */
export async function* readPages<T extends { id: string }>(size: number, page: (after: string) => Promise<T[]>): AsyncGenerator<T> {
  for (let after: string | undefined = ''; after !== undefined;) {
    const items: T[] = await page(after)
    yield* items
    after = items.length < size ? undefined : items.at(-1)?.id
  }
}

/** In the order of the ids. What is written meanwhile may be missing or new. Throws `Unavailable`. */
export async function* readAll<K extends keyof Kept>(store: Store, what: K): AsyncGenerator<Kept[K]> {
  for (let after: string | null = null; ;) {
    const { found, next }: { found: Kept[K][]; next: string | null } = await store.scan(what, after, PAGE)
    yield* found
    if (next === null) return
    after = next
  }
}

/** The usage records of a plan in a range, oldest first, by pages that are not empty. Throws `Unavailable`. */
export async function* readUsage(
  store: Pick<Store, 'usageRecords'>,
  subscription: string,
  range: UsageRange,
): AsyncGenerator<UsageRecord[]> {
  for (let after: UsagePosition | null = null; ;) {
    const page: UsageRecord[] = await store.usageRecords(subscription, range, after, PAGE)
    if (page.length > 0) yield page
    if (page.length < PAGE) return
    after = page.at(-1) ?? after
  }
}
