/** The request fields that every creation of a task shares. */
import { Type } from 'typebox'
import { FIELD_PATTERNS } from '../domain/field-patterns.ts'

/** For the schema of every request that creates a task. */
export const TASK_FIELDS = {
  webhook_url: Type.Optional(
    Type.String({ minLength: 1, maxLength: 2048, description: 'Where task.completed, task.failed and task.refunded are delivered.' }),
  ),
  metadata: Type.Optional(
    Type.Unsafe<Record<string, string>>(
      Type.Object(
        {},
        {
          additionalProperties: Type.String({ maxLength: 512 }),
          maxProperties: 16,
          propertyNames: { pattern: FIELD_PATTERNS.metadataName.pattern },
          description: 'Up to 16 pairs of your own.',
        },
      ),
    ),
  ),
  max_cost: Type.Optional(
    Type.String({ maxLength: 24, description: 'A decimal string. A higher estimate is refused with max_cost_exceeded.' }),
  ),
}
