/** What an operator is told of a store whose schema is not this program's. */

/** Throws an Error with a sentence for the operator if the store at `place` has a schema above `newest`, the newest that this program knows. */
export function refuseNewer(version: number, newest: number, place: string): void {
  if (version <= newest) return
  throw new Error(
    `The store ${place} has schema ${version} and this Tollgate knows none newer than ${newest}: ` +
      'start the newer Tollgate, or bring back a backup from before its upgrade.',
  )
}

/** The same for who may only read, and so cannot bring an older store up to date. */
export function refuseOther(version: number, newest: number, place: string): void {
  refuseNewer(version, newest, place)
  if (version < newest) throw new Error(`The store ${place} has the older schema ${version}: start this Tollgate on it once, which brings it up to date.`)
}
