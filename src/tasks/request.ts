/** What a request for a task may say beside what is to be made. */
import { Type } from 'typebox'

/** For the schema of every request that creates a task. */
export const TASK_FIELDS = {
  webhook_url: Type.Optional(Type.String({ minLength: 1, maxLength: 2048, description: 'Where task.completed, task.failed and task.refunded are delivered.' })),
  metadata: Type.Optional(
    Type.Record(Type.String({ pattern: '^.{1,64}$' }), Type.String({ maxLength: 512 }), { maxProperties: 16, additionalProperties: false, description: 'Up to 16 pairs of your own.' }),
  ),
  max_cost: Type.Optional(Type.String({ maxLength: 24, description: 'A decimal string. A higher estimate is refused with max_cost_exceeded.' })),
}

/** What an idempotency key may be: 1 to 255 visible ASCII characters. */
export const IDEMPOTENCY_KEY = '^[\\x21-\\x7e]{1,255}$'
