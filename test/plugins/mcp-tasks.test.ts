/** The Tasks extension of MCP: the task of the REST API under its own id, against the schemas and the client of the extension's own package. */
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client'
import { isCreateTaskResultV2, isDetailedTaskV2 } from '@modelcontextprotocol/ext-tasks/core/v2'
import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { MADE } from '../fakes/engine.ts'
import { messageOf, modern, openEndpoint, type Endpoint, type Message } from './mcp-endpoint.ts'
import { isFinal } from './studio.ts'

const TASKS = 'io.modelcontextprotocol/tasks'
const DECLARED = { extensions: { [TASKS]: {} } }

/** Sends a request of a client that declares the extension. */
async function send(endpoint: Endpoint, method: string, params: Record<string, unknown>, raw?: string): Promise<Message> {
  const [message, headers] = modern(method, params, DECLARED)
  return messageOf(await endpoint.rpc(message, { ...headers, ...(raw === undefined ? {} : { authorization: `Bearer ${raw}` }) }))
}

const create = async (endpoint: Endpoint, args: object = {}): Promise<Record<string, unknown>> => (await send(endpoint, 'tools/call', { name: 'generate_image', arguments: { prompt: 'a lighthouse', ...args } })).result ?? {}
const stateOf = async (endpoint: Endpoint, taskId: unknown): Promise<Record<string, unknown>> => (await send(endpoint, 'tasks/get', { taskId })).result ?? {}

t.test('server/discover declares the extension; a handshake of an earlier revision does not, and knows none of its methods', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  t.match((await messageOf(await endpoint.rpc(...modern('server/discover')))).result, { capabilities: { extensions: { [TASKS]: {} } } })
  const hello = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: { ...DECLARED }, clientInfo: { name: 'raw', version: '1' } } }
  t.notMatch((await messageOf(await endpoint.rpc(hello))).result, { capabilities: { extensions: {} } })
  const versioned = { 'mcp-protocol-version': '2025-11-25' }
  const { id } = (await endpoint.create()).json()
  for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update', 'tasks/result', 'tasks/list']) {
    t.match(await messageOf(await endpoint.rpc({ jsonrpc: '2.0', id: 2, method, params: { taskId: id } }, versioned)), { error: { code: -32601 } }, method)
  }
  const asked = { jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name: 'generate_image', arguments: { prompt: 'x' }, task: { ttl: 60_000 } } }
  t.match((await messageOf(await endpoint.rpc(asked, versioned))).result, { structuredContent: { status: 'queued' } }, 'tasks of 2025-11-25, which were experimental, are not served')
})

t.test('a client that does not declare the extension gets records, and -32021 for its methods, whatever it declared before', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { taskId } = await create(endpoint)
  for (const capabilities of [{}, { extensions: {} }, { extensions: { 'io.modelcontextprotocol/ui': {} } }]) {
    const called = (await messageOf(await endpoint.rpc(...modern('tools/call', { name: 'generate_image', arguments: { prompt: 'x' } }, capabilities)))).result
    t.match(called, { resultType: 'complete', structuredContent: { object: 'generation', status: 'queued' } })
    for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
      const answer = await endpoint.rpc(...modern(method, { taskId, inputResponses: {} }, capabilities))
      t.equal(answer.status, 400)
      t.match(await messageOf(answer), { error: { code: -32021, data: { requiredCapabilities: DECLARED } } }, method)
    }
  }
  t.match((await endpoint.get(`/api/v1/generations/${taskId}`)).json(), { status: 'queued' }, 'and cancels nothing')
})

t.test('a tool that creates answers with a handle at once, whatever wait_seconds; the other tools answer as ever', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const handle = await create(endpoint, { wait_seconds: 45, idempotency_key: 'k' })
  t.ok(isCreateTaskResultV2(handle), JSON.stringify(handle))
  const { taskId } = handle
  const record = (await endpoint.get(`/api/v1/generations/${taskId}`)).json()
  t.match(handle, { resultType: 'task', status: 'working', statusMessage: 'queued', createdAt: record.created_at, lastUpdatedAt: record.created_at, ttlMs: 90 * 86_400_000, pollIntervalMs: 2_000 })
  t.equal((await create(endpoint, { wait_seconds: 45, idempotency_key: 'k' }))['taskId'], taskId, 'one key is one task')
  t.match((await send(endpoint, 'tools/call', { name: 'get_task', arguments: { task_id: taskId } })).result, { resultType: 'complete', structuredContent: record })
  t.match(await create(endpoint, { prompt: '' }), { isError: true }, 'what is refused is a tool error')
  t.match(await create(endpoint, { idempotency_key: 'k', prompt: 'another' }), { isError: true })
})

t.test('tasks/get follows a task to its end, and then has the result of its tool call', async (t) => {
  const endpoint = await openEndpoint(t)
  endpoint.engine.next('hang', { fail: 'provider_rejected', retryable: false })
  const { taskId } = await create(endpoint, { idempotency_key: 'k' })
  await endpoint.engine.begun(1)
  const working = await stateOf(endpoint, taskId)
  t.ok(isDetailedTaskV2(working))
  t.match(working, { resultType: 'complete', taskId, status: 'working', statusMessage: 'processing' })
  endpoint.engine.release()
  await endpoint.until(String(taskId), isFinal)
  const done = await stateOf(endpoint, taskId)
  t.ok(isDetailedTaskV2(done))
  const { _meta, ...sameTool } = (await send(endpoint, 'tools/call', { name: 'get_task', arguments: { task_id: taskId } })).result as Record<string, unknown>
  t.match(done, { status: 'completed', statusMessage: 'completed' })
  t.same(done['result'], sameTool)
  t.match(sameTool, { content: [{}, { type: 'image', data: MADE.toString('base64') }, { type: 'resource_link' }] })
  const again = await create(endpoint, { idempotency_key: 'k' })
  t.match(again, { resultType: 'complete', structuredContent: { id: taskId, status: 'completed' } }, 'an ended task needs no handle')

  const failing = await create(endpoint)
  await endpoint.until(String(failing['taskId']), isFinal)
  const failed = await stateOf(endpoint, failing['taskId'])
  t.ok(isDetailedTaskV2(failed))
  t.match(failed, { status: 'completed', statusMessage: 'failed', result: { isError: true, structuredContent: { status: 'failed', error: { code: 'provider_rejected' }, actual_cost: '0.0000' } } })
})

t.test('tasks/cancel ends a task and returns its money; an ended task does not change; REST and the extension see one task', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { taskId } = await create(endpoint)
  for (let i = 0; i < 2; i++) t.match(await send(endpoint, 'tasks/cancel', { taskId }), { result: { resultType: 'complete' }, error: undefined })
  const canceled = await stateOf(endpoint, taskId)
  t.ok(isDetailedTaskV2(canceled))
  t.match(canceled, { status: 'cancelled', statusMessage: 'canceled' })
  t.match((await endpoint.get(`/api/v1/generations/${taskId}`)).json(), { status: 'canceled', refund_amount: '0.0400' })
  t.equal((await endpoint.get('/api/v1/usage')).json().held, '0.0000')

  const { id } = (await endpoint.operate({ operation: 'upscale', media_url: 'https://example.com/a.png' })).json()
  t.match(await stateOf(endpoint, id), { taskId: id, status: 'working' }, 'a task that REST made')
  t.match(await send(endpoint, 'tasks/update', { taskId: id, inputResponses: { name: { action: 'accept' } } }), { result: { resultType: 'complete' } })
  await endpoint.post(`/api/v1/operations/${id}/cancel`)
  t.match(await stateOf(endpoint, id), { status: 'cancelled' })
})

t.test("a task that is not there, or another tenant's, is -32602; a store that is away is -32603 and leaks nothing", async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { taskId } = await create(endpoint)
  const other = await endpoint.key(endpoint.subscription, { tenant: 'globex' })
  for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
    for (const [params, raw] of [[{ taskId: 'nope' }], [{}], [{ taskId: 7 }], [{ taskId: { id: 1 } }], [{ taskId }, other.raw]] as const) {
      t.match(await send(endpoint, method, { ...params }, raw), { error: { code: -32602, message: 'Task not found' } }, `${method} ${JSON.stringify(params)}`)
    }
  }
  t.match((await endpoint.get(`/api/v1/generations/${taskId}`)).json(), { status: 'queued' })
  endpoint.store.task = async () => {
    throw new Unavailable('store', new Error('the secret of the store'))
  }
  const away = await send(endpoint, 'tasks/get', { taskId })
  t.match(away, { error: { code: -32603, data: { code: 'unavailable' } } })
  t.notMatch(JSON.stringify(away), /secret/)
})

t.test("the client of the extension's own package runs a tool to its end by its handle, and cancels one", async (t) => {
  const endpoint = await openEndpoint(t)
  const client = await endpoint.connect()
  let id = 0
  const session = createTaskSessionFromClient(client, {
    endpointId: 'tollgate',
    v2RequestFraming: { protocolVersion: '2026-07-28', clientInfo: { name: 'test', version: '1' }, clientCapabilities: DECLARED },
    async rawDispatch(request) {
      const { method, params } = request as { method: string; params: Record<string, unknown> }
      const { error, result } = await messageOf(await endpoint.rpc(...modern(method, params, DECLARED, ++id)))
      return error ? { kind: 'error', error: error as never } : { kind: 'result', result: result as never }
    },
  })
  t.teardown(() => session.close())
  const execution = await session.callTool('generate_image', { prompt: 'a lighthouse' })
  t.equal(execution.kind, 'task')
  const { outcome } = await execution.settle()
  const taskId = execution.kind === 'task' ? execution.handle.taskId : ''
  t.match(outcome, { status: 'completed', result: { structuredContent: (await endpoint.get(`/api/v1/generations/${taskId}`)).json() } })

  endpoint.engine.next('hang')
  const running = await session.callTool('generate_image', { prompt: 'another' })
  await running.cancel()
  t.match((await running.settle()).outcome, { status: 'cancelled' })
})
