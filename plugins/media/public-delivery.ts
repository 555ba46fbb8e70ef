/** A webhook delivery with its attempts, as clients get it. */
import { iso } from '../../src/domain/iso-time.ts'
import type { Delivery } from '../../src/domain/task.ts'

/** A delivery as the wire shows it. */
export function publicDelivery(delivery: Delivery): Record<string, unknown> {
  return {
    id: delivery.id,
    object: 'delivery',
    task_id: delivery.taskId,
    event: delivery.event,
    url: delivery.url,
    // A delivery that waits for the first attempt of another one is pending to clients.
    status: delivery.state === 'waiting' ? 'pending' : delivery.state,
    next_attempt_at: delivery.state === 'pending' ? iso(delivery.nextAttemptAt) : null,
    created_at: iso(delivery.createdAt),
    attempts: delivery.attempts.map((attempt) => ({
      number: attempt.number,
      at: iso(attempt.at),
      duration_ms: attempt.durationMs,
      status_code: attempt.statusCode,
      error: attempt.error,
      response_prefix: attempt.responsePrefix,
      redelivery: attempt.redelivery ?? false,
    })),
  }
}
