/** Invariants of webhook deliveries: how each may change, and that receivers got what is recorded as delivered. */
import { FINAL, type Delivery } from '../../../src/domain/task.ts'
import { deliveryViolations } from '../../../src/verify/task-invariants.ts'
import type { WebhookEvent } from '../../../src/domain/webhooks.ts'
import type { Step } from '../scheduler.ts'
import type { Report, Seen } from '../invariant-checker.ts'

/** Attempts before a delivery fails (specification, section 8). */
const ATTEMPTS = 5

export function openDeliveryChecks(seen: Seen, report: Report) {
  const ended = new Map<string, number>()

  function changed(before: Delivery | null, after: Delivery, { label, args }: Step): void {
    if (!before) {
      const task = seen.tasks.get(after.taskId)
      if (!task || (task.state !== 'settling' && !FINAL.includes(task.state))) report(`delivery ${after.id} was made while its task is ${task?.state ?? 'nowhere'}`)
      return
    }
    if (after.epoch < before.epoch) report(`the epoch of delivery ${after.id} went back`)
    if (after.epoch > before.epoch && (before.leaseUntil ?? 0) > Number(args[0])) {
      report(`delivery ${after.id} was claimed during the lease of another claim`)
    }
    const mine = (label === 'recordAttempt' || label === 'returnDelivery') && args[0] === after.id
    if (mine && args[1] !== before.epoch && JSON.stringify(after) !== JSON.stringify(before)) {
      report(`delivery ${after.id} is claimed under epoch ${before.epoch}, and was changed under ${args[1]}`)
    }
    if (after.body !== before.body || after.url !== before.url) report(`delivery ${after.id} has another body or URL than before`)
    const lasting = JSON.stringify(after.attempts.slice(0, before.attempts.length)) === JSON.stringify(before.attempts)
    if (!lasting || after.attempts.length > before.attempts.length + 1) {
      report(`the attempts of delivery ${after.id} changed: ${JSON.stringify(before.attempts)} to ${JSON.stringify(after.attempts)}`)
    }
    if (after.attempts.length > ATTEMPTS) report(`delivery ${after.id} was attempted ${after.attempts.length} times`)
    const over = before.state === 'delivered' || before.state === 'failed'
    if (over && after.state !== before.state) report(`delivery ${after.id} was ${before.state} and is ${after.state}`)
    if (after.state === 'failed' && after.attempts.length < ATTEMPTS) {
      report(`delivery ${after.id} failed after ${after.attempts.length} attempts`)
    }
  }

  /** Called when a webhook is sent; the returned function is called when the attempt has ended. */
  function sent(taskId: string, event: WebhookEvent): () => void {
    if (event === 'task.refunded' && !ended.has(`${taskId}.task.failed`)) {
      report(`the refund of task ${taskId} was sent before an attempt of its failure had ended`)
    }
    const name = `${taskId}.${event}`
    return () => void ended.set(name, (ended.get(name) ?? 0) + 1)
  }

  function checkFinal(): void {
    for (const task of seen.tasks.values()) {
      const made = [...seen.deliveries.values()].filter(({ taskId }) => taskId === task.id)
      for (const sentence of deliveryViolations(task, made, 0)) report(sentence)
      for (const { id, state, attempts } of made) {
        if (state !== 'delivered' && state !== 'failed') report(`delivery ${id} is still ${state} after ${attempts.length} attempts`)
        if (state === 'delivered' && !ended.has(id)) report(`delivery ${id} is recorded as delivered, but no receiver got it`)
      }
    }
  }

  return { changed, sent, checkFinal }
}
