/** Messages of the broker (docs/kafka.md). They contain ids only; a receiver reads everything else in the store, which is the source of truth. */
import type { Task } from './task.ts'

/** A task that a worker may claim. */
export type TaskReady = {
  type: 'task.ready'
  /** Media kind or operation. */
  kind: string
  object: Task['object']
  tenant: string
  subscription: string
  task: string
  /** The epoch of the claim that may follow: rises with each run of the task. */
  attempt: number
  /** Epoch milliseconds. */
  readyAt: number
  /** One consumer receives all messages with this key. */
  key: string
  /** W3C Trace Context of the request that created the task; absent where it is not known. */
  traceparent?: string
}

/** Webhook deliveries that are due. `task` is null after a replay. */
export type WebhookDue = { type: 'webhook.due'; kind: 'webhook'; tenant: string; task: string | null; key: string; traceparent?: string }

export type Message = TaskReady | WebhookDue

/**
 * The partition key of a task: as many keys for a subscription as half of its tasks that run at once, so that few processes write its record at the same time.
 * `repeat` counts the messages of a task after the first: each is likely to reach another consumer, since that of the first may be full.
 */
export function partitionKey(subscription: string, task: string, maxConcurrentTasks: number, repeat = 0): string {
  const keys = Math.max(1, Math.ceil(maxConcurrentTasks / 2))
  return `${subscription}#${hash(task) % keys}${repeat === 0 ? '' : `#${repeat}`}`
}

/** FNV-1a, 32 bits (RFC 9923). */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193)
  return value >>> 0
}
