/** JSON Schemas of response bodies, for the OpenAPI document only. Bodies that OpenAI defines, such as chat completions, are typed loosely. */
import { Type, type TSchema } from 'typebox'
import { TaskRecord } from '../../src/tasks/public-record.ts'
import { Capabilities } from '../../src/tasks/capabilities.ts'
import { MediaUsage } from '../../src/tasks/media-usage.ts'

const dateTime = Type.String({ format: 'date-time' })
const orNull = (schema: TSchema) => Type.Union([schema, Type.Null()])
const open = { additionalProperties: true }

const error = {
  error: Type.Object(
    {
      message: Type.String(),
      type: Type.String(),
      code: Type.String(),
      param: orNull(Type.String({ description: 'The parameter at fault.' })),
    },
    open,
  ),
  errors: Type.Optional(
    Type.Array(Type.Object({ path: Type.String({ description: 'A JSON Pointer.' }), code: Type.String(), message: Type.String() }), {
      description: 'Every invalid value.',
    }),
  ),
}

const problem = { type: Type.String(), title: Type.String(), status: Type.Integer(), detail: Type.String(), instance: Type.String() }

const Task = { ...TaskRecord, $id: 'Task' }
const task = Type.Ref('Task#')
const page = (item: TSchema) =>
  Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(item),
    has_more: Type.Boolean(),
    next_cursor: orNull(Type.String({ description: 'The cursor of the next page.' })),
  })

const Delivery = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('delivery'),
    task_id: Type.String(),
    event: Type.Enum(['task.completed', 'task.failed', 'task.refunded']),
    url: Type.String(),
    status: Type.Enum(['pending', 'delivered', 'failed']),
    next_attempt_at: orNull(dateTime),
    created_at: dateTime,
    attempts: Type.Array(
      Type.Object({
        number: Type.Integer(),
        at: dateTime,
        duration_ms: Type.Integer(),
        status_code: orNull(Type.Integer()),
        error: orNull(Type.String()),
        response_prefix: orNull(Type.String({ description: 'Beginning of the answer of the receiver.' })),
        redelivery: Type.Boolean({ description: 'True for an attempt outside the schedule.' }),
      }),
    ),
  },
  { $id: 'Delivery' },
)

const Event = Type.Object(
  {
    id: Type.String({ description: 'The webhook-id of its webhook.' }),
    object: Type.Literal('event'),
    type: Type.Enum(['task.completed', 'task.failed', 'task.refunded']),
    task_id: Type.String(),
    created_at: dateTime,
    data: Type.Object({}, { ...open, description: 'As in the webhook.' }),
  },
  { $id: 'Event' },
)

const Window = Type.Object(
  {
    limit: Type.Integer(),
    used: Type.Integer(),
    reserved: Type.Integer({ description: 'By requests in flight.' }),
    remaining: Type.Integer(),
    resets_at: orNull(Type.Integer({ description: 'Epoch seconds; null while no window is open.' })),
  },
  { $id: 'Window', description: 'Tokens of a window.' },
)

const Model = Type.Object(
  { id: Type.Literal('svc-code'), object: Type.Literal('model'), created: Type.Integer(), owned_by: Type.String() },
  { $id: 'Model' },
)

/** Named schemas of the document. */
export const COMPONENTS: object[] = [
  Type.Object(error, { ...open, $id: 'Error', description: 'An error. Details such as required and available stand beside error.' }),
  Type.Object({ ...problem, ...error }, { ...open, $id: 'Problem', description: 'The same body, which is also an RFC 9457 problem.' }),
  Task,
  Delivery,
  Event,
  Window,
  Model,
  { ...MediaUsage, $id: 'MediaUsage' },
  { ...Capabilities, $id: 'Capabilities' },
]

export const Quote = Type.Object({
  object: Type.Literal('quote'),
  kind: Type.Optional(Type.String()),
  operation: Type.Optional(Type.String()),
  estimated_cost: Type.String(),
  available: Type.String(),
  affordable: Type.Boolean(),
  queue_position: Type.Integer(),
  estimated_wait_seconds: orNull(Type.Integer()),
})

export const Bodies = {
  task,
  taskOrQuote: Type.Union([task, Quote]),
  tasks: page(task),
  deliveries: page(Type.Ref('Delivery#')),
  delivery: Type.Ref('Delivery#'),
  eventLog: page(Type.Ref('Event#')),
  replay: Type.Object({
    object: Type.Literal('replay'),
    count: Type.Integer({ description: 'Deliveries that became due.' }),
    has_more: Type.Boolean(),
    next_cursor: orNull(Type.String({ description: 'The cursor of the next request.' })),
  }),
  mediaUsage: Type.Ref('MediaUsage#'),
  capabilities: Type.Ref('Capabilities#'),
  codingUsage: Type.Object({
    object: Type.Literal('usage'),
    plan: Type.String(),
    session: Type.Ref('Window#'),
    weekly: Type.Ref('Window#'),
    overshoot: Type.Integer({ description: 'Tokens beyond the weekly limit.' }),
    key: Type.Optional(
      Type.Object(
        { limit: Type.Integer(), used: Type.Integer(), reserved: Type.Integer(), remaining: Type.Integer() },
        { description: "The key's own share of the week, where it has one." },
      ),
    ),
  }),
  model: Type.Ref('Model#'),
  models: Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(Type.Ref('Model#')),
    models: Type.Array(Type.Object({}, open), { description: 'The catalogue that Codex reads.' }),
  }),
  chatCompletion: Type.Object(
    {
      id: Type.String(),
      object: Type.Literal('chat.completion'),
      model: Type.String(),
      choices: Type.Array(Type.Object({}, open)),
      usage: Type.Optional(orNull(Type.Object({}, open))),
    },
    open,
  ),
  response: Type.Object(
    {
      id: Type.String(),
      object: Type.Literal('response'),
      model: Type.String(),
      status: Type.String(),
      output: Type.Array(Type.Object({}, open)),
      usage: Type.Optional(orNull(Type.Object({}, open))),
    },
    open,
  ),
  upload: Type.Object({
    id: Type.String(),
    object: Type.Literal('upload'),
    media_url: Type.String({ description: 'Signed address of the file: a source of operations, until expires_at.' }),
    content_type: Type.String(),
    bytes: Type.Integer(),
    width: orNull(Type.Integer()),
    height: orNull(Type.Integer()),
    duration_ms: orNull(Type.Integer()),
    expires_at: dateTime,
  }),
  usageRecords: page(
    Type.Object(
      {
        specversion: Type.Literal('1.0'),
        id: Type.String({ description: 'Of the request or the task: it makes the record idempotent.' }),
        source: Type.String(),
        subject: Type.String({ description: 'The tenant.' }),
        time: dateTime,
        type: Type.Enum(['dev.tollgate.usage.coding.v1', 'dev.tollgate.usage.media.v1']),
        data: Type.Object({ tenant: Type.String(), plan: Type.String(), key: Type.String() }, open),
      },
      open,
    ),
  ),
  events: Type.String({ description: 'Server-Sent Events.' }),
  bytes: Type.String({ format: 'binary' }),
  jsonRpc: Type.Object(
    {
      jsonrpc: Type.Literal('2.0'),
      id: Type.Optional(Type.Unsafe({ type: ['string', 'number', 'null'] })),
      result: Type.Optional(Type.Object({}, open)),
      error: Type.Optional(Type.Object({ code: Type.Integer(), message: Type.String() }, open)),
    },
    open,
  ),
}
