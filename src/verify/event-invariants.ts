/** Invariants of the event log of one tenant. */
import type { Store } from '../backends/store/store.ts'

const PAGE = 200

/**
 * The events of tasks whose outbox was empty before (`expected`, their ids) are in the log, and its positions have no gap but one after a
 * restore. Events that were logged before `keptSince` may have been removed.
 */
export async function* eventLogViolations(store: Store, tenant: string, expected: Set<string>, keptSince: number): AsyncGenerator<string> {
  const missing = new Set(expected)
  let last: { position: number; loggedAt: number } | null = null
  for (let after = 0, more = true; more;) {
    const page = await store.events(tenant, after, 0, PAGE)
    for (const { id, position, loggedAt } of page) {
      missing.delete(id)
      // After a restore, positions begin with its time (decision 0025).
      const isGap = last !== null && position !== last.position + 1 && position <= last.loggedAt
      if (isGap && last && Math.min(last.loggedAt, loggedAt) >= keptSince)
        yield `the event log of ${tenant} has no events between positions ${last.position} and ${position}`
      last = { position, loggedAt }
    }
    after = page.at(-1)?.position ?? after
    more = page.length === PAGE
  }
  for (const id of missing) yield `event ${id} of ${tenant} is not in the event log`
}
