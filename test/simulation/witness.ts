/**
 * Sees everything that is written, right after it was, and holds it against what was there before. What it says is a sentence about a rule
 * that was broken. It reads the real store, past all trouble.
 */
import type { Store } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import type { Delivery, Task } from '../../src/domain/task.ts'
import { recordViolations } from '../../src/verify/subscription-invariants.ts'
import { taskViolations } from '../../src/verify/task-invariants.ts'
import { openPost } from './witness/post.ts'
import { openLedger } from './witness/ledger.ts'
import { openStory } from './witness/story.ts'
import { openWindows } from './witness/windows.ts'
import type { Step } from './scheduler.ts'

/** All that is stored, as it was read last. */
export type Seen = {
  records: Map<string, Subscription>
  tasks: Map<string, Task>
  deliveries: Map<string, Delivery>
}

export type Say = (sentence: string) => void

const TASK_VERBS = new Set(['moveTask', 'renewTask', 'relay'])

export function openWitness(store: Store, now: () => number) {
  const seen: Seen = { records: new Map(), tasks: new Map(), deliveries: new Map() }
  const violations: string[] = []
  const say: Say = (sentence) => void violations.push(sentence)
  const ledger = openLedger(seen, say)
  const windows = openWindows(say, now)
  const story = openStory(seen, say)
  const post = openPost(seen, say)

  async function lookAtRecord(id: string, step: Step): Promise<void> {
    const [before, after] = [seen.records.get(id), await store.subscription(id)]
    if (!after || (before && before.version === after.version)) return
    seen.records.set(id, after)
    for (const sentence of recordViolations(after)) say(sentence)
    if (before && after.version !== before.version + 1) say(`${id} went from version ${before.version} to ${after.version} in one write`)
    if (before && (after.at < before.at || after.keysVersion < before.keysVersion)) say(`time or keys of ${id} went back`)
    ledger.moved(before ?? null, after, step)
    for (const { n, burned } of before?.media?.past ?? []) {
      if (after.media?.past.some((period) => period.n === n)) continue
      const archived = (await store.periods(id)).some((period) => period.n === n && period.burned === burned)
      if (!archived) say(`${id} dropped period ${n} with ${burned} burned, and it is not archived`)
    }
    windows.moved(before ?? null, after, step)
  }

  async function lookAtTask(tenant: string, id: string, step: Step): Promise<void> {
    const [before, after] = [seen.tasks.get(id), await store.task(tenant, id)]
    if (!after) return
    seen.tasks.set(id, after)
    if (before && JSON.stringify(before) === JSON.stringify(after)) return
    for (const sentence of taskViolations(after, 0)) say(sentence)
    story.moved(before ?? null, after, step)
    ledger.ended(after)
  }

  async function lookAtDeliveries(taskId: string, step: Step): Promise<void> {
    for (const after of await store.deliveries(taskId)) {
      const before = seen.deliveries.get(after.id)
      seen.deliveries.set(after.id, after)
      post.moved(before ?? null, after, step)
    }
  }

  /** `result` is null when it is not known how much of the step was written. */
  async function wrote(step: Step, result: unknown): Promise<void> {
    const [first] = step.args
    if (step.label === 'heartbeat') windows.heartbeat(String(first), Number(step.args[1]))
    else if (step.label.startsWith('replace')) await lookAtRecord(String(first), step)
    else if (step.label === 'createTask') {
      const { task } = (result ?? { task: first }) as { task: Task }
      await lookAtTask(task.tenant, task.id, step)
    } else if (step.label === 'claimDeliveries') {
      const claimed = (result as Delivery[] | null)?.map((delivery) => delivery.taskId)
      for (const taskId of new Set(claimed ?? seen.tasks.keys())) await lookAtDeliveries(taskId, step)
    } else if (typeof first === 'string') {
      const taskId = first.split('.', 1)[0] ?? ''
      const task = seen.tasks.get(taskId)
      if (!task) return
      if (TASK_VERBS.has(step.label.split(' ', 1)[0] ?? '')) await lookAtTask(task.tenant, taskId, step)
      else await lookAtDeliveries(taskId, step)
      if (step.label === 'relay') await lookAtDeliveries(taskId, step)
    }
  }

  function atRest(): void {
    story.atRest()
    post.atRest()
    windows.atRest(seen.records.values())
  }

  const { answered, noOrphans } = story
  const { inFlight, requests } = windows
  return { seen, violations, say, wrote, atRest, answered, noOrphans, sent: post.sent, inFlight, requests }
}

export type Witness = ReturnType<typeof openWitness>
