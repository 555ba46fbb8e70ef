/**
 * Removes an entry. Returns the collection to go on with: a new one in place of one that has become empty. V8 links each table that a Map or Set
 * has outgrown to its successor: once one is garbage of the old generation, all later ones, and what they name, are promoted to it as well.
 */
export function removeEntry<K, V>(entries: Map<K, V>, key: K): Map<K, V>
export function removeEntry<T>(entries: Set<T>, key: T): Set<T>
export function removeEntry(entries: Map<unknown, unknown> | Set<unknown>, key: unknown): Map<unknown, unknown> | Set<unknown> {
  entries.delete(key)
  if (entries.size > 0) return entries
  return entries instanceof Map ? new Map() : new Set()
}
