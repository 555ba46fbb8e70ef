/** Deliveries from write to write, and what receivers really got. */
import { FINAL, type Delivery } from '../../../src/domain/task.ts'
import { deliveryViolations } from '../../../src/verify/task-invariants.ts'
import type { WebhookEvent } from '../../../src/domain/webhooks.ts'
import type { Step } from '../scheduler.ts'
import type { Say, Seen } from '../witness.ts'

/** Attempts before a delivery has failed (specification, section 8). */
const ATTEMPTS = 5

export function openPost(seen: Seen, say: Say) {
  const ended = new Map<string, number>()

  function moved(before: Delivery | null, after: Delivery, { label, args }: Step): void {
    if (!before) {
      const task = seen.tasks.get(after.taskId)
      if (!task || !FINAL.includes(task.state)) say(`delivery ${after.id} was made while its task is ${task?.state ?? 'nowhere'}`)
      return
    }
    if (after.epoch < before.epoch) say(`the epoch of delivery ${after.id} went back`)
    if (after.epoch > before.epoch && (before.leaseUntil ?? 0) > Number(args[0])) {
      say(`delivery ${after.id} was claimed while another had it`)
    }
    const mine = (label === 'recordAttempt' || label === 'returnDelivery') && args[0] === after.id
    if (mine && args[1] !== before.epoch && JSON.stringify(after) !== JSON.stringify(before)) {
      say(`delivery ${after.id} is claimed under epoch ${before.epoch}, and was changed under ${args[1]}`)
    }
    if (after.body !== before.body || after.url !== before.url) say(`delivery ${after.id} sends something else than before`)
    const lasting = JSON.stringify(after.attempts.slice(0, before.attempts.length)) === JSON.stringify(before.attempts)
    if (!lasting || after.attempts.length > before.attempts.length + 1) {
      say(`the attempts of delivery ${after.id} changed: ${JSON.stringify(before.attempts)} to ${JSON.stringify(after.attempts)}`)
    }
    if (after.attempts.length > ATTEMPTS) say(`delivery ${after.id} was attempted ${after.attempts.length} times`)
    const over = before.state === 'delivered' || before.state === 'failed'
    if (over && after.state !== before.state) say(`delivery ${after.id} was ${before.state} and is ${after.state}`)
    if (after.state === 'failed' && after.attempts.length < ATTEMPTS) {
      say(`delivery ${after.id} failed after ${after.attempts.length} attempts`)
    }
  }

  /** A receiver is sent something; the answer is called when that attempt has ended. */
  function sent(taskId: string, event: WebhookEvent): () => void {
    if (event === 'task.refunded' && !ended.has(`${taskId}.task.failed`)) {
      say(`the refund of task ${taskId} was told before an attempt to tell its failure had ended`)
    }
    const name = `${taskId}.${event}`
    return () => void ended.set(name, (ended.get(name) ?? 0) + 1)
  }

  function atRest(): void {
    for (const task of seen.tasks.values()) {
      const made = [...seen.deliveries.values()].filter(({ taskId }) => taskId === task.id)
      for (const sentence of deliveryViolations(task, made, 0)) say(sentence)
      for (const { id, state, attempts } of made) {
        if (state !== 'delivered' && state !== 'failed') say(`delivery ${id} is still ${state} after ${attempts.length} attempts`)
        if (state === 'delivered' && !ended.has(id)) say(`delivery ${id} is said to be delivered, and no receiver saw it`)
      }
    }
  }

  return { moved, sent, atRest }
}
