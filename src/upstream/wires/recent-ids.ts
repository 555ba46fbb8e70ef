/** Bounded cache of ids, least recently used first out: agents replay every id of a conversation in every request. */

/** With ids of at most `MAX_LENGTH` characters this is a few megabytes. */
const MAX_IDS = 16_384
/** Ids with sealed content are longer, and are not cached. */
const MAX_LENGTH = 256

export type RecentIds = {
  /** The text that was remembered for an id of a subscription, else the computed one. */
  get(subscription: string, id: string, compute: () => string): string
}

export function openRecentIds(): RecentIds {
  const known = new Map<string, string>()
  return {
    get(subscription, id, compute) {
      if (id.length > MAX_LENGTH) return compute()
      const key = `${subscription}\0${id}`
      const found = known.get(key)
      const value = found ?? compute()
      // A Map keeps the order of insertion.
      if (found !== undefined) known.delete(key)
      else if (known.size >= MAX_IDS) known.delete(known.keys().next().value as string)
      if (value.length <= MAX_LENGTH) known.set(key, value)
      return value
    },
  }
}
