/** Bad input over MCP: each is the protocol's own error or a tool error with our code; nothing is charged, and nothing is left waiting. */
import t, { type Test } from 'tap'
import type { Task } from '../../src/domain/task.ts'
import { messageOf, modern, openEndpoint, textOf, type Endpoint } from './mcp-endpoint.ts'

/** A tool call of the earlier handshake, as it is. */
const call = (params: unknown, more: object = {}): object => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params, ...more })
const image = (args: unknown): object => call({ name: 'generate_image', arguments: args })

async function nothingCharged(t: Test, { get }: Endpoint): Promise<void> {
  t.match((await get('/api/v1/usage')).json(), { available: '10.0000', held: '0.0000', burned: '0.0000' })
  t.same((await get('/api/v1/generations')).json().data, [])
}

t.test('a message that is no request of the protocol is refused or ignored, and never runs a tool', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const args = { prompt: 'x' }
  const cases: [name: string, message: unknown, status: number, code: number | string | null][] = [
    ['a tool call without an id, which is a notification', { jsonrpc: '2.0', method: 'tools/call', params: { name: 'generate_image', arguments: args } }, 202, null],
    ['a method that is no text', call({ name: 'generate_image', arguments: args }, { method: 7 }), 400, 'invalid_request'],
    ['an id that is an object', call({ name: 'generate_image', arguments: args }, { id: {} }), 400, 'invalid_request'],
    ['an id that is a fraction', call({ name: 'generate_image', arguments: args }, { id: 1.5 }), 400, -32600],
    ['another version of JSON-RPC', call({ name: 'generate_image', arguments: args }, { jsonrpc: '1.0' }), 400, 'invalid_request'],
    ['no version', { id: 1, method: 'tools/call', params: { name: 'generate_image', arguments: args } }, 400, 'invalid_request'],
    ['params as a list', call([{ name: 'generate_image', arguments: args }]), 400, -32600],
    ['a result that nobody asked for', { jsonrpc: '2.0', id: 1, result: {} }, 202, null],
    ['a batch', [image(args), image(args)], 400, 'invalid_request'],
    ['a batch of one', [image(args)], 400, 'invalid_request'],
    ['text', '"tools/call"', 400, 'invalid_request'],
    ['null', 'null', 400, 'invalid_request'],
    ['no tool', call({ arguments: args }), 200, -32602],
    ['a tool that is no text', call({ name: ['generate_image'], arguments: args }), 200, -32602],
    ['an unknown tool', call({ name: 'generate_images', arguments: args }), 200, -32602],
    ['a tool by another spelling', call({ name: 'Generate_Image', arguments: args }), 200, -32602],
    ['a tool of every object', call({ name: '__proto__', arguments: args }), 200, -32602],
    ['another', call({ name: 'constructor', arguments: args }), 200, -32602],
    ['arguments as a list', image([args]), 200, -32602],
    ['arguments as text', image('{"prompt":"x"}'), 200, -32602],
    ['arguments of null', image(null), 200, -32602],
    ['a member of every object', image('PROTO'), 400, 'invalid_json'],
  ]
  for (const [name, message, status, code] of cases) {
    const text = (typeof message === 'string' ? message : JSON.stringify(message)).replace('"PROTO"', '{"prompt":"x","__proto__":{"x":1}}')
    const answer = await endpoint.rpc(text)
    t.equal(answer.status, status, name)
    const body = await answer.text()
    if (code !== null) t.equal(JSON.parse(/^data: (.*)$/m.exec(body)?.[1] ?? body).error.code, code, `${name}: ${body.slice(0, 200)}`)
    else t.notMatch(body, /generation/, name)
  }
  await nothingCharged(t, endpoint)
})

t.test('an envelope of 2026-07-28 that is not valid is refused before a tool runs', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const params = { name: 'generate_image', arguments: { prompt: 'x' } }
  const [message, headers] = modern('tools/call', params)
  const meta = (message as { params: { _meta: Record<string, unknown> } }).params._meta
  const capabilities = 'io.modelcontextprotocol/clientCapabilities'
  for (const wrong of [7, null, 'tasks', [], { extensions: 7 }, { extensions: { 'io.modelcontextprotocol/tasks': 7 } }]) {
    const answer = await messageOf(await endpoint.rpc({ ...message, params: { ...params, _meta: { ...meta, [capabilities]: wrong } } }, headers))
    t.match(answer, { error: { code: -32602 } }, JSON.stringify(wrong))
  }
  const { [capabilities]: _missing, ...without } = meta
  t.match(await messageOf(await endpoint.rpc({ ...message, params: { ...params, _meta: without } }, headers)), { error: { code: -32602 } })
  for (const [header, value] of [['mcp-name', 'get_usage'], ['mcp-method', 'tools/list'], ['mcp-protocol-version', '2025-11-25']] as const) {
    t.match(await messageOf(await endpoint.rpc(message, { ...headers, [header]: value })), { error: { code: -32020 } }, header)
  }
  await nothingCharged(t, endpoint)
})

t.test('arguments of a wrong type or size are tool errors of every tool, with the path of each', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { tools } = (await messageOf(await endpoint.rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list' }))).result as unknown as { tools: { name: string; inputSchema: { properties: Record<string, { type?: string; enum?: unknown[] }> } }[] }
  t.equal(tools.length, 14)
  for (const { name, inputSchema } of tools) {
    for (const argument of Object.keys(inputSchema.properties)) {
      for (const wrong of [{ nested: { deeply: true } }, ['x'], null, true, -1, '\u0000'.repeat(9000)]) {
        const isAllowed = (argument === 'crop' && wrong === true) || (argument === 'media_urls' && Array.isArray(wrong)) || (/^(media|mask|image)_url$/.test(argument) && typeof wrong === 'string')
        if (isAllowed) continue
        const { result } = await messageOf(await endpoint.rpc(call({ name, arguments: { [argument]: wrong } })))
        const { error, errors } = (result ? textOf(result) : {}) as { error: { code: string }; errors: { path: string }[] }
        const isNamed = errors?.some(({ path }) => path === `/${argument}` || path.startsWith(`/${argument}/`))
        if (!result?.isError || error?.code !== 'invalid_request' || !isNamed) t.fail(`${name} ${argument} ${JSON.stringify(wrong).slice(0, 40)}: ${JSON.stringify(result).slice(0, 300)}`)
      }
    }
    const unknown = textOf((await messageOf(await endpoint.rpc(call({ name, arguments: { colour: 'red' } })))).result as never) as { errors: { path: string }[] }
    t.match(unknown.errors.at(-1), { path: '/colour' }, name)
  }
  await nothingCharged(t, endpoint)
})

t.test('a subscription to tasks needs the extension; with it none is agreed to, and the stream ends at once', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const params = { notifications: { taskIds: ['x'] } }
  const refused = await endpoint.rpc(...modern('subscriptions/listen', params))
  t.equal(refused.status, 400)
  t.match(await messageOf(refused), { id: 1, error: { code: -32021, data: { requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } } } })
  const agreed = await (await endpoint.rpc(...modern('subscriptions/listen', params, { extensions: { 'io.modelcontextprotocol/tasks': {} } }))).text()
  t.match(agreed, /"notifications":\{\}/)
  t.match(await messageOf(await endpoint.rpc({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params })), { error: { code: -32601 } }, 'earlier revisions do not have it')
})

t.test('a client that disconnects while it waits leaves no wait behind, and its task continues', async (t) => {
  const endpoint = await openEndpoint(t)
  const { task: read } = endpoint.store
  let reads = 0
  // A run reads its task as well, to learn that it was canceled.
  endpoint.store.task = (tenant, id) => {
    if (new Error('read').stack?.includes('task-watch')) reads++
    return read(tenant, id)
  }
  for (const [message, headers] of [[image({ prompt: 'a lighthouse', wait_seconds: 45 }), {}], modern('tools/call', { name: 'generate_image', arguments: { prompt: 'a lighthouse', wait_seconds: 45 } })] as const) {
    endpoint.engine.next('hang')
    const begun = endpoint.engine.runs.length + 1
    const leaving = new AbortController()
    const left = endpoint.rpc(message, headers, leaving.signal).then((response) => response.text())
    await endpoint.engine.begun(begun)
    while (reads < 2) await new Promise((resolve) => setTimeout(resolve, 20))
    leaving.abort()
    await t.rejects(left)
    // A watched task is read once a second at least.
    let before = -1
    while (before !== reads) {
      before = reads
      await new Promise((resolve) => setTimeout(resolve, 1_500))
    }
    const { id } = (await endpoint.get('/api/v1/generations')).json().data[0]
    t.equal((await read('acme', id) as Task).state, 'processing')
    endpoint.engine.release()
    await endpoint.until(id, ({ status }) => status === 'completed')
    reads = 0
  }
})

t.test('200 clients that wait for one task cost the reads of a few, and each gets its end', async (t) => {
  const endpoint = await openEndpoint(t)
  const id = await endpoint.hanging()
  // A key has fifty waits.
  const keys = [endpoint.raw, ...(await Promise.all([1, 2, 3].map(async () => (await endpoint.key(endpoint.subscription)).raw)))]
  const { task: read } = endpoint.store
  let reads = 0
  endpoint.store.task = (tenant, task) => {
    reads++
    return read(tenant, task)
  }
  const get = call({ name: 'get_task', arguments: { task_id: id, wait_seconds: 45 } })
  const waiting = keys.flatMap((raw) => Array.from({ length: 50 }, () => endpoint.rpc(get, { authorization: `Bearer ${raw}` }).then(messageOf)))
  // Each call reads the task once before it waits.
  while (reads < 202) await new Promise((resolve) => setTimeout(resolve, 20))
  endpoint.engine.release()
  const answers = await Promise.all(waiting)
  t.same(new Set(answers.map(({ result }) => Object(result?.structuredContent).status)), new Set(['completed']))
  t.ok(reads < 260, `${reads} reads`)
})
