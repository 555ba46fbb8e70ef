/** Calls of tools: arguments checked, tasks waited for, media attached, failures as the REST API has them. */
import { ProtocolError, ProtocolErrorCode, type CallToolResult, type Tool as PublishedTool } from '@modelcontextprotocol/server'
import type { FastifyInstance } from 'fastify'
import type { Failure } from '../../src/domain/errors.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'
import { FINAL, type Task } from '../../src/domain/task.ts'
import { publicRecord } from '../../src/tasks/public-record.ts'
import { recordOf } from '../../src/tasks/read-tasks.ts'
import { accountTools } from './account-tools.ts'
import { creationTools } from './creation-tools.ts'
import { openMediaContent, type AnswerShare } from './media-content.ts'
import { progressReporter } from './progress.ts'
import type { CallContext, RequestContext } from './request-context.ts'
import { declaresTasks, taskHandle } from './tasks-extension.ts'
import type { Tool } from './tool.ts'
import { uploadTool } from './upload-tool.ts'

export type ToolCalls = {
  /** The tools as `tools/list` shows them. */
  list: PublishedTool[]
  /** `tools/call`. Throws a `ProtocolError` for an unknown tool; every other failure is a tool error with the code and message of the REST API. */
  call(name: string, args: unknown, context: RequestContext, protocol: CallContext): Promise<CallToolResult>
  /** The result of a tool that answers with a task, as it is now. */
  resultOf(task: Task, context: RequestContext): Promise<CallToolResult>
}

export function openToolCalls(app: FastifyInstance): ToolCalls {
  const { tasks } = app
  const mediaOf = openMediaContent({ files: app.files, link: tasks.link, log: app.log })
  const tools = new Map(
    [...creationTools(tasks), ...accountTools(tasks), uploadTool(tasks, app.uploads)].map((tool) => [
      tool.name,
      { ...tool, valid: strictValidator({ schema: tool.input, httpPart: 'body' }) },
    ]),
  )

  /** The record with its media. That of a failed task is a tool error: models take anything else for success. */
  async function resultOf(task: Task, { request }: RequestContext): Promise<CallToolResult> {
    const result = resultWith(await recordOf(tasks, task), await mediaOf(task, request.bodyShare), request.bodyShare)
    return task.state === 'failed' ? { ...result, isError: true } : result
  }

  async function waited(task: Task, seconds: number, context: RequestContext, protocol: CallContext): Promise<CallToolResult> {
    const wait = {
      ms: seconds * 1000,
      signal: seconds > 0 ? AbortSignal.any([context.signal, protocol.mcpReq.signal]) : context.signal,
      changed: progressReporter(protocol),
    }
    return resultOf((await app.taskWatch.untilFinal(task, context.caller.key.keyId, wait)).task, context)
  }

  async function call(name: string, args: unknown, context: RequestContext, protocol: CallContext): Promise<CallToolResult> {
    const tool = tools.get(name)
    if (!tool) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Tool ${name} not found`)
    const given = (args ?? {}) as Record<string, unknown>
    try {
      if (!tool.valid(given)) throw Object.assign(new Error('the arguments are not valid'), { validation: tool.valid.errors })
      const answer = await tool.call(given, context.caller, context.request.id)
      if ('record' in answer) return resultWith(answer.record, [], context.request.bodyShare)
      const { task, waitSeconds } = answer
      if (tool.creates) context.request.log.setBindings({ taskId: task.id })
      if (!tool.creates) return await waited(task, waitSeconds, context, protocol)
      if (declaresTasks(protocol) && !FINAL.includes(task.state)) return taskHandle(task, app.config.TASK_MS)
      // The task is accepted: the client gets its record even if the store is unavailable from here on.
      return await waited(task, waitSeconds, context, protocol).catch(() => resultWith(publicRecord(task, null, tasks.link), [], null))
    } catch (error) {
      return errorResult(tool, await failureOf(tool, error, context), context)
    }
  }

  function errorResult(tool: Tool, failure: Failure, { request }: RequestContext): CallToolResult {
    const { cause, retryAfterSeconds } = failure.facts
    if (failure.status >= 500)
      request.log.error({ event: 'mcp_tool_failed', err: cause ?? failure, code: failure.code, tool: tool.name }, 'tool failed')
    const body = {
      ...app.errors.body(failure, request),
      ...(retryAfterSeconds === undefined ? {} : { retry_after_seconds: retryAfterSeconds }),
    }
    return { content: [{ type: 'text', text: JSON.stringify(body) }], isError: true }
  }

  /** As in the REST API, an inactive plan goes before faults of the request. */
  async function failureOf(tool: Tool, error: unknown, { caller }: RequestContext): Promise<Failure> {
    const failure = app.errors.of(error)
    if (!tool.creates || failure.status >= 500) return failure
    try {
      const reason = inactiveReason(await tasks.store.subscription(caller.key.subscription), app.clock())
      return reason ? planInactive(reason) : failure
    } catch (unavailable) {
      return app.errors.of(unavailable)
    }
  }

  return { list: [...tools.values()].map(published), call, resultOf }
}

/** The record is in the answer twice, which `share` counts. */
function resultWith(record: Record<string, unknown>, more: CallToolResult['content'], share: AnswerShare): CallToolResult {
  const text = JSON.stringify(record)
  share?.take(2 * text.length)
  return { content: [{ type: 'text', text }, ...more], structuredContent: record }
}

function published({ name, title, description, annotations, input, output }: Tool): PublishedTool {
  return { name, title, description, annotations: { title, ...annotations }, inputSchema: input, outputSchema: output } as PublishedTool
}
