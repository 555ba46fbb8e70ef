/** Invariant of what an upstream bills and nobody is charged: a request is sent before its admission is stored only while the store stores what its process writes. */
import type { Report } from '../invariant-checker.ts'
import type { Process } from '../scheduler.ts'

export function openBillChecks(report: Report) {
  /** Processes whose last write of a record succeeded. */
  const storing = new WeakSet<Process>()
  return {
    wrote(process: Process, succeeded: boolean): void {
      if (succeeded) storing.add(process)
      else storing.delete(process)
    },
    /** A request goes to its upstream, which bills it. */
    sent(process: Process, id: string, isStored: boolean): void {
      if (!isStored && !storing.has(process)) report(`request ${id} was sent before its admission was stored, after a write that failed or before any that succeeded`)
    },
  }
}
