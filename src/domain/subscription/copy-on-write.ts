/**
 * Copy-on-write of the open reservations of a record, by id. The ids never repeat, and V8 gives a copied object (`{ ...all }`) a hidden class
 * for every such name, which is five to ten times slower than a dictionary. An object without a prototype is a dictionary from the start.
 */

/** A copy with `id` set to `one`. An existing id keeps its position; a new one comes last. */
export function put<T>(all: Record<string, T>, id: string, one: T): Record<string, T> {
  const copy = copyOf(all)
  copy[id] = one
  return copy
}

/** A copy without these ids. */
export function without<T>(all: Record<string, T>, closed: string[]): Record<string, T> {
  const copy = copyOf(all)
  for (const id of closed) delete copy[id]
  return copy
}

function copyOf<T>(all: Record<string, T>): Record<string, T> {
  const copy = Object.create(null) as Record<string, T>
  for (const id in all) copy[id] = all[id] as T
  return copy
}
