/** Invariants of event logs: a reader that follows the positions of each tenant reads every event once, and there is no gap. */
import type { Store } from '../../../src/backends/store/store.ts'
import { eventsOf } from '../../../src/verify/task-invariants.ts'
import type { Report, Seen } from '../invariant-checker.ts'

const PAGE = 50

export function openEventChecks(store: Store, seen: Seen, report: Report) {
  /** Their bodies, by their ids. */
  const read = new Map<string, string>()
  const positions = new Map<string, number>()

  /** Reads what was appended since; a page that comes back full is followed by another. */
  async function follow(tenant: string): Promise<void> {
    const page = await store.events(tenant, positions.get(tenant) ?? 0, 0, PAGE)
    for (const { id, body, position } of page) {
      if (read.has(id)) report(`event ${id} was read twice`)
      read.set(id, body)
      if (id.endsWith('.task.refunded') && !read.has(id.replace('refunded', 'failed'))) report(`event ${id} was logged before the failure`)
      if (position !== (positions.get(tenant) ?? 0) + 1) report(`event ${id} of ${tenant} is at ${position}, after ${positions.get(tenant) ?? 0}`)
      positions.set(tenant, position)
    }
    if (page.length === PAGE) await follow(tenant)
  }

  async function checkFinal(): Promise<void> {
    for (const tenant of new Set([...seen.tasks.values()].map((task) => task.tenant))) await follow(tenant)
    const wanted = new Set([...seen.tasks.values()].flatMap((task) => eventsOf(task).map((event) => `${task.id}.${event}`)))
    for (const id of wanted) if (!read.has(id)) report(`a reader missed event ${id}`)
    for (const id of read.keys()) if (!wanted.has(id)) report(`event ${id} was logged, but its task has no such event`)
    for (const { id, body } of seen.deliveries.values()) if (read.has(id) && read.get(id) !== body) report(`delivery ${id} has another body than its event`)
  }

  return { follow, checkFinal }
}
