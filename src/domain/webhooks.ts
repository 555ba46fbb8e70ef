/**
 * Webhooks: envelope, signature headers, retry schedule, and the verdict on an answer (specification, sections 2.3, 6 and 8).
 * The body is made once, as text, with the event; every attempt sends the same bytes under fresh headers.
 */
import { createHmac } from 'node:crypto'
import { iso } from './iso-time.ts'
import { formatMoney } from './money.ts'

export const WEBHOOK_EVENTS = ['task.completed', 'task.failed', 'task.refunded'] as const
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number]

/** Money is micro-units, times are epoch milliseconds. */
export type Completed = {
  taskId: string
  /** `image_url`, `video_url` or `audio_url` and what else describes the output; sent as it is. */
  result: Record<string, unknown>
  estimatedMicro: number
  actualMicro: number
  /** Processing time in whole seconds, as in the task's record. */
  durationSeconds: number
  createdAt: number
  completedAt: number
}

export type Failed = {
  taskId: string
  error: { code: string; message: string }
  estimatedMicro: number
  refundMicro: number
  attempts: number
  createdAt: number
  failedAt: number
}

export type Refunded = { taskId: string; refundMicro: number; newBalanceMicro: number }

/** `data` of `task.completed`: exactly the fields of section 6.2. */
export function completedData(task: Completed): Record<string, unknown> {
  return {
    task_id: task.taskId,
    status: 'completed',
    result: task.result,
    estimated_cost: formatMoney(task.estimatedMicro),
    actual_cost: formatMoney(task.actualMicro),
    duration_seconds: task.durationSeconds,
    created_at: iso(task.createdAt),
    completed_at: iso(task.completedAt),
  }
}

/** `data` of `task.failed`: exactly the fields of section 6.2. */
export function failedData(task: Failed): Record<string, unknown> {
  return {
    task_id: task.taskId,
    status: 'failed',
    error: { code: task.error.code, message: task.error.message },
    estimated_cost: formatMoney(task.estimatedMicro),
    refund_amount: formatMoney(task.refundMicro),
    attempts: task.attempts,
    created_at: iso(task.createdAt),
    failed_at: iso(task.failedAt),
  }
}

/** `data` of `task.refunded`: exactly the fields of section 6.2. */
export function refundedData(task: Refunded): Record<string, unknown> {
  return { task_id: task.taskId, refund_amount: formatMoney(task.refundMicro), new_balance: formatMoney(task.newBalanceMicro) }
}

/**
 * The raw body of a webhook: the envelope of section 2.3 as JSON text. `atMs` is the time of the event, not of an attempt.
 * Keep the text: parsing and writing it again could change bytes that were signed.
 */
export function envelope(event: WebhookEvent, atMs: number, data: Record<string, unknown>): string {
  return JSON.stringify({ event, timestamp: iso(atMs), data })
}

export type Signing = {
  event: WebhookEvent
  /** The raw body, as `envelope` wrote it. */
  body: string
  /** The raw API key that created the task, also after it was rotated. */
  apiKey: string
  /** Which version of the key that is: `keyId-revision`. */
  keyVersionId: string
  /** The brand in header names, such as SVC. */
  brand: string
  /** The same in every attempt of a delivery. */
  messageId: string
  /** The time of this attempt, epoch milliseconds. */
  atMs: number
}

/**
 * The headers of one attempt: those of section 6.3, the version of the key that signed, and those of Standard Webhooks 1.0.
 * Its secret is `whsec_` + base64 of the API key, so that both signatures are keyed with the same bytes.
 */
export function signatureHeaders(signing: Signing): Record<string, string> {
  const { body, apiKey, brand, messageId } = signing
  const seconds = String(Math.floor(signing.atMs / 1000))
  return {
    'Content-Type': 'application/json',
    [`X-${brand}-Signature`]: `sha256=${createHmac('sha256', apiKey).update(body).digest('hex')}`,
    [`X-${brand}-Event`]: signing.event,
    [`X-${brand}-Key-Id`]: signing.keyVersionId,
    'webhook-id': messageId,
    'webhook-timestamp': seconds,
    'webhook-signature': `v1,${createHmac('sha256', apiKey).update(`${messageId}.${seconds}.${body}`).digest('base64')}`,
  }
}
