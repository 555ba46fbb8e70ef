/** The requests of the Media API as JSON Schema: what validates is what the API reference shows. */
import { Type } from 'typebox'
import { OPERATIONS } from '../../src/backends/engines/engines-file.ts'
import { GENERATION_FIELDS, KINDS } from '../../src/domain/generations.ts'
import { STATUSES } from '../../src/tasks/public-record.ts'
import { TASK_FIELDS } from '../../src/tasks/request-fields.ts'

const closed = { additionalProperties: false }

export const GenerationRequest = Type.Object(
  {
    kind: Type.Enum([...KINDS]),
    ...GENERATION_FIELDS,
    ...TASK_FIELDS,
  },
  { ...closed, $id: 'GenerationRequest', title: 'GenerationRequest' },
)

/** Parameters beyond these belong to each operation; no engine of this version makes one, so they are not looked at. */
export const OperationRequest = Type.Object(
  { operation: Type.Enum([...OPERATIONS]), media_url: Type.Optional(Type.String({ minLength: 1 })) },
  { additionalProperties: true, $id: 'OperationRequest', title: 'OperationRequest' },
)

export const CreateQuery = Type.Object({ dry_run: Type.Optional(Type.Boolean()) }, closed)

export const TaskParams = Type.Object({ id: Type.String({ maxLength: 100 }) })

const dateTime = Type.String({ format: 'date-time' })

const listQuery = {
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
  cursor: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  status: Type.Optional(Type.Enum([...STATUSES])),
  created_after: Type.Optional(dateTime),
  created_before: Type.Optional(dateTime),
}
export const GenerationsQuery = Type.Object({ ...listQuery, kind: Type.Optional(Type.Enum([...KINDS])) }, closed)
export const OperationsQuery = Type.Object({ ...listQuery, operation: Type.Optional(Type.Enum([...OPERATIONS])) }, closed)
