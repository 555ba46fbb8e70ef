/** A map that forgets what was put longest ago. */

/** Moves or adds an entry to the end, and evicts the oldest above the limit. */
export function putNewest<V>(map: Map<string, V>, name: string, value: V, sizeMax: number): void {
  map.delete(name)
  map.set(name, value)
  const oldest = map.size > sizeMax ? map.keys().next().value : undefined
  if (oldest !== undefined) map.delete(oldest)
}
