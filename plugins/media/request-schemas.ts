/** The requests of the Media API as JSON Schema: validation and the API reference share it. */
import { Type, type Static } from 'typebox'
import { GENERATION_FIELDS, KINDS } from '../../src/domain/media-generations.ts'
import { OPERATION_DEFINITIONS, OPERATIONS, type OperationBody } from '../../src/domain/media-operations.ts'
import { LIST_FIELDS, PAGE_FIELDS } from '../../src/tasks/list-tasks.ts'
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

const TaskFields = Type.Object(TASK_FIELDS)

/** The parameters of each operation; `operation` chooses. */
export const OperationRequest = Type.Unsafe<OperationBody & Static<typeof TaskFields>>({
  $id: 'OperationRequest',
  title: 'OperationRequest',
  type: 'object',
  required: ['operation'],
  properties: { operation: Type.Enum([...OPERATIONS]) },
  discriminator: { propertyName: 'operation' },
  oneOf: OPERATIONS.map((operation) =>
    Type.Object(
      { operation: Type.Literal(operation), ...OPERATION_DEFINITIONS[operation].fields, ...TASK_FIELDS },
      { ...closed, title: operation },
    ),
  ),
})

export const CreateQuery = Type.Object({ dry_run: Type.Optional(Type.Boolean()) }, closed)

/** `plan`: the name of the one that pays; the caller's plugin reads it. */
export const KeylessCreateQuery = Type.Object({ ...CreateQuery.properties, plan: Type.Optional(Type.String({ maxLength: 253 })) }, closed)

export const TaskParams = Type.Object({ id: Type.String({ maxLength: 100 }) })

export const GenerationsQuery = Type.Object({ ...LIST_FIELDS, kind: Type.Optional(Type.Enum([...KINDS])) }, closed)
export const OperationsQuery = Type.Object({ ...LIST_FIELDS, operation: Type.Optional(Type.Enum([...OPERATIONS])) }, closed)

export const EventsQuery = Type.Object(PAGE_FIELDS, closed)

export const ReplayRequest = Type.Object(
  {
    since: Type.String({ format: 'date-time', description: 'Deliveries that were created at this time or later.' }),
    until: Type.String({ format: 'date-time', description: 'Deliveries that were created before this time; at most 31 days after since.' }),
    event: Type.Optional(Type.Enum(['task.completed', 'task.failed', 'task.refunded'])),
    status: Type.Optional(Type.Enum(['pending', 'delivered', 'failed'])),
    cursor: Type.Optional(
      Type.String({ minLength: 1, maxLength: 200, description: 'The next_cursor of the answer before, with the same other fields.' }),
    ),
  },
  { ...closed, $id: 'ReplayRequest', title: 'ReplayRequest' },
)
