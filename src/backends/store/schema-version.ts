/** Start-up check of a store's schema version. */

/** Throws an Error with a sentence for the operator if the store at `place` has a schema above `newest`, the newest that this program supports. */
export function refuseNewer(version: number, newest: number, place: string): void {
  if (version <= newest) return
  throw new Error(
    `The store ${place} has schema ${version} and this Tollgate supports none newer than ${newest}: ` +
      'start the newer Tollgate, or restore a backup from before its upgrade.',
  )
}

/** As `refuseNewer`, and throws for an older schema too: a read-only caller cannot upgrade it. */
export function refuseOther(version: number, newest: number, place: string): void {
  refuseNewer(version, newest, place)
  if (version < newest)
    throw new Error(`The store ${place} has the older schema ${version}: start this Tollgate on it once, which upgrades it.`)
}
