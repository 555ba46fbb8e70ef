/** Bounded cache of ids, those go first that were not used for long: agents replay every id of a conversation in every request. */

/** With ids of at most `MAX_LENGTH` characters this is a few megabytes. */
const MAX_IDS = 16_384
/** Ids with sealed content are longer, and are not cached. */
const MAX_LENGTH = 256

export type RecentIds = {
  /** The text that was remembered for an id of a subscription, else the computed one. */
  get(subscription: string, id: string, compute: () => string): string
}

/**
 * Two maps in turn: when the newer one is full, it takes the place of the older one, which is dropped whole. Deleting the first entry of one map for
 * each new one would take longer and longer, because a search for the first walks over all that were deleted.
 */
export function openRecentIds(): RecentIds {
  let newer = new Map<string, string>()
  let older = new Map<string, string>()

  function remember(key: string, value: string): void {
    if (newer.size >= MAX_IDS / 2) {
      older = newer
      newer = new Map()
    }
    newer.set(key, value)
  }

  return {
    get(subscription, id, compute) {
      if (id.length > MAX_LENGTH) return compute()
      const key = `${subscription}\0${id}`
      const recent = newer.get(key)
      if (recent !== undefined) return recent
      const value = older.get(key) ?? compute()
      if (value.length <= MAX_LENGTH) remember(key, value)
      return value
    },
  }
}
