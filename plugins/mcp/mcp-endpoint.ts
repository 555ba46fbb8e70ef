/** The MCP endpoint over the official SDK, loaded with the first request. */
import type { ServerResponse } from 'node:http'
import { toNodeHandler, type NodeIncomingMessageLike } from '@modelcontextprotocol/node'
import { createMcpHandler, Server, SERVER_INFO_META_KEY, type AuthInfo, type McpRequestContext } from '@modelcontextprotocol/server'
import type { FastifyInstance } from 'fastify'
import about from '../../package.json' with { type: 'json' }
import { findTask } from '../../src/tasks/read-tasks.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import { directCallOf, type DirectCall } from './direct-calls.ts'
import type { RequestContext } from './request-context.ts'
import { serveTaskResources } from './task-resources.ts'
import { refusedListen, serveTasks, TASKS_EXTENSION } from './tasks-extension.ts'
import { openToolCalls } from './tool-calls.ts'

export type Endpoint = {
  /** Answers the request with its parsed body. Never throws. */
  serve(context: RequestContext, response: ServerResponse): Promise<void>
  close(): Promise<void>
}

const INSTRUCTIONS =
  'Makes and edits images, video and music as paid, asynchronous tasks. A tool that creates a task returns its record at once, or after wait_seconds; call get_task until its status is completed, failed or canceled. ' +
  'The address in the result of one task can be the media_url of the next. Amounts of money are decimal strings.'

const ABOUT = { name: 'tollgate', title: 'Tollgate Media API', version: about.version }

export function openEndpoint(app: FastifyInstance): Endpoint {
  const { tasks } = app
  const { list, call, resultOf } = openToolCalls(app)

  /** A server for one request. The SDK's `McpServer` would check arguments and word errors by itself; here they are those of the REST API. */
  function serverFor({ era, authInfo }: McpRequestContext): Server {
    const context = authInfo?.extra?.['context'] as RequestContext
    const { tenant } = context.caller.key
    const extensions = era === 'modern' ? { extensions: { [TASKS_EXTENSION]: {} } } : {}
    const server = new Server(ABOUT, {
      instructions: INSTRUCTIONS,
      capabilities: { tools: { listChanged: false }, resources: { listChanged: false, subscribe: false }, ...extensions },
    })
    server.setRequestHandler('tools/list', () => ({ tools: list }))
    server.setRequestHandler('tools/call', ({ params }, protocol) => call(params.name, params.arguments, context, protocol))
    serveTaskResources(server, tasks, tenant, app.errors.of)
    if (era === 'modern') {
      serveTasks(server, {
        find: (id) => findTask(tasks, tenant, id),
        cancel: async (task) => {
          await cancel(tasks, task).catch((error: unknown) => {
            if (app.errors.of(error).code !== 'already_final') throw error
          })
        },
        resultOf: (task) => resultOf(task, context),
        keptMs: app.config.TASK_MS,
        failureOf: app.errors.of,
      })
    }
    return server
  }

  const handler = createMcpHandler(serverFor, {
    legacy: 'stateless',
    onerror: (err) => app.log.info({ err }, 'MCP request refused'),
  })

  /** The answer of a direct call, with the members that the SDK gives it. */
  async function answer({ id, name, args, era }: DirectCall, context: RequestContext, response: ServerResponse): Promise<void> {
    const result = await call(name, args, context, { mcpReq: { signal: context.signal, notify: async () => {} } })
    const more = era === 'modern' ? { resultType: 'complete', _meta: { [SERVER_INFO_META_KEY]: ABOUT } } : {}
    const body = JSON.stringify({ result: { ...result, ...more }, jsonrpc: '2.0', id })
    // With its length, head and body are one write.
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }).end(body)
  }

  const serve = toNodeHandler(handler, { onerror: (err) => app.log.error({ event: 'mcp_request_failed', err }, 'MCP request failed') })
  return {
    async serve(context, response) {
      const refused = refusedListen(context.request.body)
      if (refused) return void response.writeHead(400, { 'content-type': 'application/json' }).end(JSON.stringify(refused))
      // The SDK passes this to the factory; it does not need the key itself.
      const auth: AuthInfo = { token: '', clientId: context.caller.key.keyId, scopes: [], extra: { context } }
      // Any type is both of those that the SDK looks for by name (RFC 9110, 12.5.1).
      const { headers } = context.request.raw
      if (/(^|,)\s*\*\/\*\s*([;,]|$)/.test(headers.accept ?? '*/*')) headers.accept = 'application/json, text/event-stream'
      const direct = directCallOf(context.request)
      if (direct) {
        return answer(direct, context, response).catch((err: unknown) => {
          app.log.error({ event: 'mcp_request_failed', err }, 'MCP request failed')
          response.destroy()
        })
      }
      const message = Object.assign(context.request.raw, { auth }) as NodeIncomingMessageLike
      return serve(message, response, context.request.body)
    },
    close: () => handler.close(),
  }
}
