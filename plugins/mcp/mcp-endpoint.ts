/** The MCP endpoint over the official SDK, loaded with the first request. */
import type { ServerResponse } from 'node:http'
import { toNodeHandler, type NodeIncomingMessageLike } from '@modelcontextprotocol/node'
import { createMcpHandler, McpServer, type AuthInfo, type CallToolResult, type ServerContext, type StandardSchemaWithJSON } from '@modelcontextprotocol/server'
import type { FastifyInstance } from 'fastify'
import about from '../../package.json' with { type: 'json' }
import type { Failure } from '../../src/domain/errors.ts'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { mediaTools, type Tool } from './tools.ts'
import type { RequestContext } from './request-context.ts'

export type Endpoint = {
  /** Answers the request with its parsed body. Never throws. */
  serve(context: RequestContext, response: ServerResponse): Promise<void>
  close(): Promise<void>
}

const INSTRUCTIONS =
  'Makes media as paid, asynchronous tasks. A tool that creates a task returns its record at once, or after wait_seconds; call get_task until its status is completed, failed or canceled. Amounts are decimal strings.'

export function openEndpoint(app: FastifyInstance): Endpoint {
  const compile = strictValidator()
  const tools = mediaTools(app).map((tool) => ({ ...tool, valid: compile({ schema: tool.input, httpPart: 'body' }) }))

  type Checked = (typeof tools)[number]

  /** Calls a tool. Every error becomes a tool error with the code and message of the REST API: the SDK would send the text of any error. */
  async function call(tool: Checked, args: unknown, context: RequestContext, protocol: ServerContext): Promise<CallToolResult> {
    try {
      if (!tool.valid(args)) throw Object.assign(new Error('the arguments are not valid'), { validation: tool.valid.errors })
      const { record, more } = await tool.call(args as Record<string, unknown>, context, protocol)
      return { content: [{ type: 'text', text: JSON.stringify(record) }, ...more], structuredContent: record }
    } catch (error) {
      const failure = await failureOf(tool, error, context)
      const { facts } = failure
      if (failure.status >= 500) context.request.log.error({ err: facts.cause ?? failure, code: failure.code, tool: tool.name }, 'tool failed')
      const body = { ...app.errors.body(failure, context.request), ...(facts.retryAfterSeconds === undefined ? {} : { retry_after_seconds: facts.retryAfterSeconds }) }
      return { content: [{ type: 'text', text: JSON.stringify(body) }], isError: true }
    }
  }

  /** As in the REST API, an inactive plan goes before faults of the request. */
  async function failureOf(tool: Tool, error: unknown, { caller }: RequestContext): Promise<Failure> {
    const failure = app.errors.of(error)
    if (!tool.creates || failure.status >= 500) return failure
    try {
      const reason = inactiveReason(await app.tasks.store.subscription(caller.key.subscription), app.clock())
      return reason ? planInactive(reason) : failure
    } catch (unavailable) {
      return app.errors.of(unavailable)
    }
  }

  function serverFor(context: RequestContext): McpServer {
    const server = new McpServer(
      { name: 'tollgate', title: 'Tollgate Media API', version: about.version },
      { instructions: INSTRUCTIONS, capabilities: { tools: { listChanged: false } } },
    )
    for (const tool of tools) {
      const { name, title, description, annotations } = tool
      const shape = { title, description, annotations: { title, ...annotations }, inputSchema: published(tool.input), outputSchema: published(tool.output) }
      server.registerTool(name, shape, (args, protocol) => call(tool, args, context, protocol))
    }
    return server
  }

  const handler = createMcpHandler(({ authInfo }) => serverFor(contextOf(authInfo)), {
    legacy: 'stateless',
    onerror: (err) => app.log.info({ err }, 'MCP request refused'),
  })
  const serve = toNodeHandler(handler, { onerror: (err) => app.log.error({ event: 'mcp_request_failed', err }, 'MCP request failed') })
  return {
    serve(context, response) {
      // The SDK passes this to the tools; it does not need the key itself.
      const auth: AuthInfo = { token: '', clientId: context.caller.key.keyId, scopes: [], extra: { context } }
      const message = Object.assign(context.request.raw, { auth }) as NodeIncomingMessageLike
      return serve(message, response, context.request.body)
    },
    close: () => handler.close(),
  }
}

function contextOf(authInfo: AuthInfo | undefined): RequestContext {
  return authInfo?.extra?.['context'] as RequestContext
}

/** A schema that the SDK publishes and does not check: `call` validates arguments itself, so that errors are those of the REST API. */
function published(schema: object): StandardSchemaWithJSON {
  const shown = () => schema as Record<string, unknown>
  return { '~standard': { version: 1, vendor: 'tollgate', validate: (value) => ({ value }), jsonSchema: { input: shown, output: shown } } }
}
