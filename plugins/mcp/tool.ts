/** A tool of the MCP endpoint: an endpoint of the Media API under a name, with its schemas. */
import type { ToolAnnotations } from '@modelcontextprotocol/server'
import { Type } from 'typebox'
import type { Task } from '../../src/domain/task.ts'
import { Result, TaskRecord } from '../../src/tasks/public-record.ts'
import type { Submitter } from '../../src/tasks/submit.ts'

/** A list or the usage as REST answers it; or a task, and the seconds that the client waits for its end. */
export type Answer = { record: Record<string, unknown> } | { task: Task; waitSeconds: number }

export type Tool = {
  name: string
  title: string
  /** By which a model chooses: what the tool does, and which other tool does what it does not. */
  description: string
  annotations: ToolAnnotations
  /** JSON Schemas of the arguments and of the record. */
  input: object
  output: object
  /** It creates a paid task. */
  creates: boolean
  /** `args` passed the schema; `requestId` is that of the HTTP request. Throws the failures of the REST API. */
  call(args: Record<string, unknown>, caller: Submitter, requestId: string): Promise<Answer>
}

const { id, status, progress, error, estimated_cost, actual_cost } = TaskRecord.properties
const { width: _width, height: _height, duration_ms: _length, images: _images, ...address } = Result.properties
const result = Type.Union([Type.Object(address), Type.Null()])

/**
 * What the tools that create promise of a record: the members by which a client goes on. All of them, explained, are in the schema of `get_task` alone, because every
 * schema of `tools/list` takes room in the model's context.
 */
export const TaskAnswer = Type.Object(
  withoutWords({ id, status, progress, result, error, estimated_cost, actual_cost }) as Pick<
    typeof TaskRecord.properties,
    'id' | 'status' | 'progress' | 'error' | 'estimated_cost' | 'actual_cost'
  > & { result: typeof result },
)

/** A JSON Schema without its descriptions. */
function withoutWords(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withoutWords)
  if (typeof schema !== 'object' || schema === null) return schema
  return Object.fromEntries(
    Object.entries(schema).flatMap(([name, value]) =>
      name === 'description' && typeof value === 'string' ? [] : [[name, withoutWords(value)]],
    ),
  )
}

export const closed = { additionalProperties: false }

/** SDK clients give up after 60 seconds. */
const LONGEST_WAIT_SECONDS = 45

export const waitSeconds = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: LONGEST_WAIT_SECONDS,
    default: 0,
    description: 'Seconds to wait for the task to end. The record comes then, whatever its status. 0 returns it at once.',
  }),
)
