/**
 * Invariant checker: reads the real store, without injected faults, after every write and compares it with the state before. A violation is
 * reported as a sentence.
 */
import type { Store } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import type { Delivery, Task } from '../../src/domain/task.ts'
import type { WindowsView } from '../../src/domain/token-windows.ts'
import { recordViolations } from '../../src/verify/subscription-invariants.ts'
import { taskViolations } from '../../src/verify/task-invariants.ts'
import { openBillChecks } from './invariants/bills.ts'
import { openClockChecks } from './invariants/clocks.ts'
import { openDeliveryChecks } from './invariants/deliveries.ts'
import { openEventChecks } from './invariants/events.ts'
import { openFileChecks } from './invariants/files.ts'
import { openMediaAccountChecks } from './invariants/media-account.ts'
import { openPlanChecks } from './invariants/plans.ts'
import { openTaskChecks } from './invariants/tasks.ts'
import { openTokenWindowChecks } from './invariants/token-windows.ts'
import { openUsageChecks } from './invariants/usage.ts'
import type { SimulatedFiles } from './media/files.ts'
import type { Step } from './scheduler.ts'
import type { Troubles } from './world.ts'

/** The stored state, as last read. */
export type Seen = {
  records: Map<string, Subscription>
  tasks: Map<string, Task>
  deliveries: Map<string, Delivery>
}

export type Report = (sentence: string) => void

const TASK_VERBS = new Set(['moveTask', 'renewTask', 'relay'])

export function openInvariantChecker(store: Store, now: () => number, troubles: Troubles, files: () => SimulatedFiles) {
  const seen: Seen = { records: new Map(), tasks: new Map(), deliveries: new Map() }
  const violations: string[] = []
  const report: Report = (sentence) => void violations.push(sentence)
  const mediaAccount = openMediaAccountChecks(seen, report, now)
  const windows = openTokenWindowChecks(report, now)
  const plans = openPlanChecks(report)
  const usage = openUsageChecks(store, seen, report)
  const bills = openBillChecks(report)
  const clock = openClockChecks(report, now, troubles)
  const tasks = openTaskChecks(seen, report, now, troubles)
  const deliveries = openDeliveryChecks(seen, report)
  let media: ReturnType<typeof openFileChecks> | null = null
  const mediaFiles = () => (media ??= openFileChecks(seen, files(), report, now))
  const events = openEventChecks(store, seen, report)

  async function checkRecord(id: string, step: Step): Promise<void> {
    const [stored, after] = [seen.records.get(id), await store.subscription(id)]
    if (!after || (stored && stored.version === after.version)) return
    const before = clock.healed(stored, after)
    seen.records.set(id, after)
    for (const sentence of recordViolations(after)) report(sentence)
    if (before && after.version !== before.version + 1) report(`${id} went from version ${before.version} to ${after.version} in one write`)
    if (before && (after.at < before.at || after.keysVersion < before.keysVersion)) report(`time or keys of ${id} went back`)
    if (before !== stored) {
      mediaAccount.healed(after)
      windows.healed(after)
    }
    clock.changed(after, step)
    if (before) plans.changed(before, after, step)
    mediaAccount.changed(before ?? null, after, step)
    for (const { n, burned } of before?.media?.past ?? []) {
      if (after.media?.past.some((period) => period.n === n)) continue
      const archived = (await store.periods(id)).some((period) => period.n === n && period.burned === burned)
      if (!archived) report(`${id} dropped period ${n} with ${burned} burned without archiving it`)
    }
    windows.changed(before ?? null, after, step)
  }

  async function checkTask(tenant: string, id: string, step: Step): Promise<void> {
    const [before, after] = [seen.tasks.get(id), await store.task(tenant, id)]
    if (!after) return
    seen.tasks.set(id, after)
    if (before && JSON.stringify(before) === JSON.stringify(after)) return
    for (const sentence of taskViolations(after, 0)) report(sentence)
    tasks.changed(before ?? null, after, step)
    mediaAccount.ended(after)
    mediaFiles().changed(before ?? null, after)
  }

  async function checkDeliveries(taskId: string, step: Step): Promise<void> {
    for (const after of await store.deliveries(taskId)) {
      const before = seen.deliveries.get(after.id)
      seen.deliveries.set(after.id, after)
      deliveries.changed(before ?? null, after, step)
    }
  }

  /** `result` is null when it is unknown which writes of the step took effect. */
  async function wrote(step: Step, result: unknown): Promise<void> {
    const [first] = step.args
    if (step.label === 'heartbeat') windows.heartbeat(String(first), Number(step.args[1]))
    else if (step.label.startsWith('replace')) await checkRecord(String(first), step)
    else if (step.label === 'createTask') {
      const { task } = (result ?? { task: first }) as { task: Task }
      await checkTask(task.tenant, task.id, step)
    } else if (step.label === 'claimDeliveries') {
      const claimed = (result as Delivery[] | null)?.map((delivery) => delivery.taskId)
      for (const taskId of new Set(claimed ?? seen.tasks.keys())) await checkDeliveries(taskId, step)
    } else if (typeof first === 'string') {
      const taskId = first.split('.', 1)[0] ?? ''
      const task = seen.tasks.get(taskId)
      if (!task) return
      if (TASK_VERBS.has(step.label.split(' ', 1)[0] ?? '')) await checkTask(task.tenant, taskId, step)
      else await checkDeliveries(taskId, step)
      if (step.label === 'relay') {
        await checkDeliveries(taskId, step)
        await events.follow(task.tenant)
      }
    }
  }

  async function checkFinal(): Promise<void> {
    tasks.checkFinal()
    mediaFiles().checkFinal()
    await events.checkFinal()
    deliveries.checkFinal()
    windows.checkFinal(seen.records.values())
    plans.checkFinal(seen.records.values())
    await usage.checkFinal(windows.requests)
  }

  const { answered, checkSwept, checkClaimed } = tasks
  const { inFlight, dead, requests } = windows
  const refused = (id: string, view: WindowsView) => {
    const record = seen.records.get(id)
    if (record) windows.refused(record, view)
  }
  return { seen, violations, report, wrote, checkFinal, answered, checkSwept, checkClaimed, sent: deliveries.sent, bills, inFlight, dead, requests, refused, declared: plans.declared }
}

export type InvariantChecker = ReturnType<typeof openInvariantChecker>
