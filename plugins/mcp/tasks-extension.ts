/**
 * The Tasks extension of MCP (`io.modelcontextprotocol/tasks`, SEP-2663): a client that declares it gets a handle from a tool that creates
 * a task, and reads and cancels the task under the id of the REST API. There is nothing to ask the client for, so no task is ever
 * `input_required`, and `tasks/update` has no effect.
 */
import {
  CLIENT_CAPABILITIES_META_KEY,
  MissingRequiredClientCapabilityError,
  PROTOCOL_VERSION_META_KEY,
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type ClientCapabilities,
  type Result,
  type Server,
} from '@modelcontextprotocol/server'
import type { Failure } from '../../src/domain/errors.ts'
import { FINAL, type Task } from '../../src/domain/task.ts'
import { publicStatus } from '../../src/tasks/public-record.ts'
import type { CallContext } from './request-context.ts'

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks'

const POLL_INTERVAL_MS = 2_000

/** What the methods of the extension do. `find` throws `not_found`; `cancel` does nothing to a task that has ended. */
export type TaskMethods = {
  find(id: string): Promise<Task>
  cancel(task: Task): Promise<void>
  /** The result of the tool call that created the task, which has ended. */
  resultOf(task: Task): Promise<CallToolResult>
  /** How long a task is kept after its end. */
  keptMs: number
  /** The public failure of a thrown error. */
  failureOf(error: unknown): Failure
}

/** Whether the client declared the extension on this request. */
export function declaresTasks({ mcpReq }: CallContext): boolean {
  return isDeclared(mcpReq.envelope)
}

function isDeclared(meta: object | undefined): boolean {
  const envelope: Record<string, unknown> = { ...meta }
  const capabilities = envelope[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined
  return capabilities?.extensions?.[TASKS_EXTENSION] !== undefined
}

type Listen = {
  id?: unknown
  method?: unknown
  params?: { notifications?: { taskIds?: unknown } | null; _meta?: Record<string, unknown> | null } | null
}

/**
 * The error for a `subscriptions/listen` for tasks by a client that does not declare the extension; null for any other message. The SDK
 * answers those requests by itself, without a look at tasks.
 */
export function refusedListen(message: unknown): object | null {
  const { id, method, params } = message as Listen
  if (method !== 'subscriptions/listen' || typeof params?.notifications?.taskIds !== 'object') return null
  const meta = params._meta ?? {}
  if (meta[PROTOCOL_VERSION_META_KEY] === undefined || isDeclared(meta)) return null
  const { code, message: text, data } = missingExtension()
  return { jsonrpc: '2.0', id: id ?? null, error: { code, message: text, data } }
}

function missingExtension(): MissingRequiredClientCapabilityError {
  return new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } })
}

/** `CreateTaskResult`: the answer of a tool that has created a task. */
export function taskHandle(task: Task, keptMs: number): CallToolResult {
  // The SDK gives every result of a tool a content.
  return { content: [], resultType: 'task', ...taskState(task, keptMs) }
}

/** Serves `tasks/get`, `tasks/update` and `tasks/cancel`. */
export function serveTasks(server: Server, { find, cancel, resultOf, keptMs, failureOf }: TaskMethods): void {
  const methods: Record<string, (task: Task) => Promise<Result>> = {
    async 'tasks/get'(task) {
      const state = taskState(task, keptMs)
      return state.status === 'completed' ? { ...state, result: { resultType: 'complete', ...(await resultOf(task)) } } : state
    },
    'tasks/update': async () => ({}),
    async 'tasks/cancel'(task) {
      await cancel(task)
      return {}
    },
  }
  for (const [method, answer] of Object.entries(methods)) {
    server.setRequestHandler(method, { params: ANY }, async (params, protocol) => {
      if (!declaresTasks(protocol)) throw missingExtension()
      try {
        return await answer(await find(String((params as { taskId?: unknown }).taskId)))
      } catch (error) {
        const { code, message } = failureOf(error)
        if (code === 'not_found') throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Task not found')
        throw new ProtocolError(ProtocolErrorCode.InternalError, message, { code })
      }
    })
  }
}

type TaskState = {
  taskId: string
  status: 'working' | 'completed' | 'cancelled'
  statusMessage: string
  createdAt: string
  lastUpdatedAt: string
  ttlMs: number
  pollIntervalMs: number
}

/** A failed task is `completed` with a result that `isError`: SEP-2663 keeps `failed` for errors of JSON-RPC (docs/decisions/0054-failed-tasks-over-mcp.md). */
function taskState(task: Task, keptMs: number): TaskState {
  return {
    taskId: task.id,
    status: task.state === 'canceled' ? 'cancelled' : FINAL.includes(task.state) ? 'completed' : 'working',
    statusMessage: publicStatus(task),
    createdAt: new Date(task.createdAt).toISOString(),
    lastUpdatedAt: new Date(task.endedAt ?? task.startedAt ?? task.createdAt).toISOString(),
    ttlMs: (task.endedAt ?? task.createdAt) - task.createdAt + keptMs,
    pollIntervalMs: POLL_INTERVAL_MS,
  }
}

/** Takes any params: the declaration of the extension is checked before them. */
const ANY = { '~standard': { version: 1, vendor: 'tollgate', validate: (value: unknown) => ({ value }) } } as const
