/**
 * What a record has open, by id: its reservations, its holds. Their ids never come twice, and V8 gives an object that is copied (`{ ...all }`) a shape of its own
 * for every such name, which is five to ten times slower than a dictionary. An object without a prototype is a dictionary from the start.
 */

/** A copy in which `id` is open, or is as `one` says now. It stays in its place, or comes last. */
export function put<T>(all: Record<string, T>, id: string, one: T): Record<string, T> {
  const copy = Object.create(null) as Record<string, T>
  for (const name in all) copy[name] = all[name] as T
  copy[id] = one
  return copy
}

/** A copy without those that are closed. */
export function without<T>(all: Record<string, T>, closed: (id: string) => boolean): Record<string, T> {
  const copy = Object.create(null) as Record<string, T>
  for (const name in all) if (!closed(name)) copy[name] = all[name] as T
  return copy
}
