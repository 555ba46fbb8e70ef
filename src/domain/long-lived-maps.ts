/** Maps that live as long as the process. */

/** Moves or adds an entry to the end of a map, and evicts the oldest above the limit. */
export function putNewest<V>(map: Map<string, V>, name: string, value: V, sizeMax: number): void {
  map.delete(name)
  map.set(name, value)
  const oldest = map.size > sizeMax ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}

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
