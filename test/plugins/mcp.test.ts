import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import t from 'tap'
import { openMediaContent } from '../../plugins/mcp/media-content.ts'
import { openBodyBudget, type BodyShare } from '../../plugins/request-body/body-budget.ts'
import { isOwnHost, isOwnOrigin } from '../../src/config/own-address.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { Task } from '../../src/domain/task.ts'
import { png } from '../backends/engines/media-samples.ts'
import { MADE } from '../fakes/engine.ts'
import { bearer, CODING, MEDIA } from './gateway.ts'
import { errorOf, messageOf, modern, openEndpoint, textOf } from './mcp-endpoint.ts'
import { isFinal } from './studio.ts'

const MANUAL = readFileSync(join(import.meta.dirname, '../../docs/mcp.md'), 'utf8')

const TOOLS = ['generate_image', 'generate_video', 'generate_music', 'background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim', 'merge', 'get_task', 'list_tasks', 'cancel_task', 'get_usage', 'create_upload']

for (const [mode, revision] of [['auto', '2026-07-28'], ['legacy', '2025-11-25']] as const) {
  t.test(`a client of revision ${revision} gets an image, and the very record of the REST API`, async (t) => {
    const endpoint = await openEndpoint(t)
    const client = await endpoint.connect(mode)
    t.equal(client.getNegotiatedProtocolVersion(), revision)
    t.same((await client.listTools()).tools.map(({ name }) => name), TOOLS)
    const heard: number[] = []
    const made = await client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', wait_seconds: 45 } }, { onprogress: ({ progress }) => heard.push(progress) })
    const record = made.structuredContent as { id: string; result: { image_url: string } }
    t.match(record, { object: 'generation', kind: 'image', prompt: 'a lighthouse', status: 'completed', actual_cost: '0.0400' })
    t.same(record, (await endpoint.get(`/api/v1/generations/${record.id}`)).json())
    t.same(textOf(made), record)
    t.same(made.content[1], { type: 'image', data: MADE.toString('base64'), mimeType: 'image/png' })
    t.match(made.content[2], { type: 'resource_link', uri: record.result.image_url, mimeType: 'image/png', size: MADE.length })
    t.same([heard.at(-1), heard], [100, heard.toSorted((a, b) => a - b)])
    t.same((await client.callTool({ name: 'get_task', arguments: { task_id: record.id } })).content, made.content)
    t.same((await client.callTool({ name: 'get_usage', arguments: {} })).structuredContent, (await endpoint.get('/api/v1/usage')).json())
  })
}

t.test('an MCP client works with the server entry of docs/mcp.md: url, and headers with Authorization', async (t) => {
  const { url, raw } = await openEndpoint(t)
  const { mcpServers } = JSON.parse(/```json\n(.*?)```/s.exec(MANUAL)?.[1] ?? '')
  t.match(mcpServers, { media: { url: /^http:.*\/mcp$/, headers: { Authorization: /^Bearer / } } })
  t.same(Object.keys(mcpServers.media), ['type', 'url', 'headers'])
  const entry = { url, headers: { Authorization: mcpServers.media.headers.Authorization.replace(/svc_live_\S+/, raw) } }
  const connect = async (headers: Record<string, string>) => {
    const client = new Client({ name: 'test', version: '1' })
    t.teardown(() => client.close())
    await client.connect(new StreamableHTTPClientTransport(new URL(entry.url), { requestInit: { headers } }))
    return client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', wait_seconds: 45 } })
  }
  t.match((await connect(entry.headers)).structuredContent, { status: 'completed', result: { image_url: String } })
  await t.rejects(connect({}), 'without the header it is refused')
})

for (const revision of ['2025-06-18', '2025-11-25']) {
  t.test(`a client that speaks ${revision} by itself is served without a session`, async (t) => {
    const endpoint = await openEndpoint(t, { loops: false })
    const params = { protocolVersion: revision, capabilities: {}, clientInfo: { name: 'raw', version: '1' } }
    const hello = await endpoint.rpc({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
    t.equal(hello.headers.get('mcp-session-id'), null)
    t.match(hello.headers.get('x-request-id'), /./)
    t.match(await messageOf(hello), { id: 1, result: { protocolVersion: revision, serverInfo: { name: 'tollgate' }, capabilities: { tools: {} } } })
    const versioned = { 'mcp-protocol-version': revision }
    t.equal((await endpoint.rpc({ jsonrpc: '2.0', method: 'notifications/initialized' }, versioned)).status, 202)
    const created = await messageOf(await endpoint.rpc({ jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'generate_image', arguments: { prompt: 'x' } } }, versioned))
    t.match(created, { id: 2, result: { structuredContent: { status: 'queued', queue_position: 1 } } })
    t.equal(created.result?.content.length, 1, 'nothing to show yet')
    t.match(await messageOf(await endpoint.rpc({ jsonrpc: '2.0', id: 3, method: 'tools/call', params: { name: 'nope' } }, versioned)), { id: 3, error: { code: -32602 } })
  })
}

t.test('tools say what they take, what they answer and what they do', async (t) => {
  const client = await (await openEndpoint(t, { loops: false })).connect()
  const manual = MANUAL.split('\n')
  for (const { name, title, description, inputSchema, outputSchema, annotations } of (await client.listTools()).tools) {
    t.ok(title && description, name)
    const shared = outputSchema && 'idempotency_key' in (inputSchema.properties ?? {}) ? manual.find((line) => line.startsWith('Each tool that creates')) : ''
    const row = `${manual.find((line) => line.startsWith(`| \`${name}\` |`)) ?? ''}${shared}`
    t.same(Object.keys(inputSchema.properties ?? {}).filter((argument) => !row.includes(`\`${argument}\``)), [], `docs/mcp.md tells every argument of ${name}`)
    t.match(inputSchema, { type: 'object', additionalProperties: false })
    t.match(outputSchema, { type: 'object', required: [{ get_usage: 'object', list_tasks: 'object', create_upload: 'upload_url' }[name] ?? 'id'] })
    const reads = /^(get|list)_/.test(name)
    const cancels = name === 'cancel_task'
    t.match(annotations, { title, readOnlyHint: reads, openWorldHint: !reads && !cancels && name !== 'create_upload', ...(reads ? {} : { destructiveHint: cancels, idempotentHint: cancels }) })
  }
})

t.test('a local file is sent to the address that create_upload gives, and is the source of a tool', async (t) => {
  const endpoint = await openEndpoint(t)
  const client = await endpoint.connect()
  const { upload_url, command } = (await client.callTool({ name: 'create_upload', arguments: {} })).structuredContent as { upload_url: string; command: string }
  t.equal(command, `curl -T FILE '${upload_url}'`)
  const { pathname, search } = new URL(upload_url)
  const sent = await endpoint.app.inject({ method: 'PUT', url: `${pathname}${search}`, payload: png(64, 48) })
  t.match(sent.json(), { object: 'upload', width: 64 })
  t.match((await client.callTool({ name: 'upscale', arguments: { media_url: sent.json().media_url, wait_seconds: 20 } })).structuredContent, { status: 'completed' })
  await endpoint.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match(await client.callTool({ name: 'create_upload', arguments: {} }), { isError: true, content: [{ text: /plan_inactive/ }] })
})

t.test('the list of tools leaves room in the context of a model', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { tools } = (await messageOf(await endpoint.rpc(...modern('tools/list')))).result as unknown as { tools: { outputSchema: object }[] }
  const bytes = (value: unknown) => Buffer.byteLength(JSON.stringify(value))
  t.ok(bytes(tools) < 40_000, `${bytes(tools)} bytes`)
  t.ok(bytes(tools.map(({ outputSchema }) => outputSchema)) < 18_000, 'all output schemas')
})

t.test('a call that is answered without the server of the SDK has the same answer as by it', async (t) => {
  const endpoint = await openEndpoint(t)
  const { id } = (await endpoint.create({}, { prefer: 'wait=30' })).json()
  const calls = [['get_task', { task_id: id }], ['get_task', { task_id: id, wait_seconds: 0 }], ['get_task', { task_id: 'unknown' }], ['get_task', { colour: 'red' }], ['list_tasks', { limit: 1 }], ['list_tasks', { kind: 'image', operation: 'trim' }], ['get_usage', {}]] as const
  for (const [name, args] of calls) {
    const [message, headers] = modern('tools/call', { name, arguments: args })
    const { params } = message as { params: { _meta: object } }
    const stamped = (text: string) => text.replaceAll(/(request_id\\*":\\*"|urn:request:)[\w-]+/g, '$1')
    // A progress token leaves the call to the SDK.
    const bySdk = await endpoint.rpc({ ...message, params: { ...params, _meta: { ...params._meta, progressToken: 1 } } }, headers)
    const directly = await endpoint.rpc(message, headers)
    t.same(JSON.parse(stamped(JSON.stringify(await messageOf(directly)))), JSON.parse(stamped(JSON.stringify(await messageOf(bySdk)))), `${name} ${JSON.stringify(args)}`)
    const legacy = { jsonrpc: '2.0', id: 'a', method: 'tools/call', params: { name, arguments: args } }
    const before = { 'mcp-protocol-version': '2025-11-25' }
    const [streamed, plain] = [await endpoint.rpc({ ...legacy, params: { ...legacy.params, _meta: { progressToken: 1 } } }, before), await endpoint.rpc(legacy, before)]
    t.same([streamed.headers.get('content-type'), plain.headers.get('content-type')], ['text/event-stream', 'application/json'])
    t.equal(plain.headers.get('content-length'), String((await plain.clone().arrayBuffer()).byteLength))
    t.same(JSON.parse(stamped(JSON.stringify(await messageOf(plain)))), JSON.parse(stamped(JSON.stringify(await messageOf(streamed)))), `${name} ${JSON.stringify(args)}`)
  }
})

t.test('a client that accepts anything is answered', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  for (const accept of ['*/*', 'text/html, */*;q=0.1']) {
    const answer = await endpoint.rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list' }, { accept })
    t.match([answer.status, (await messageOf(answer)).result], [200, { tools: [{}] }], accept)
  }
})

t.test('a task that failed is a tool error, with its record', async (t) => {
  const endpoint = await openEndpoint(t)
  endpoint.engine.next({ fail: 'provider_rejected', retryable: false })
  for (const mode of ['auto', 'legacy'] as const) {
    const client = await endpoint.connect(mode)
    const failed = { isError: true, structuredContent: { status: 'failed', error: { code: 'provider_rejected' }, actual_cost: '0.0000' } }
    const made = await client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', idempotency_key: 'k', wait_seconds: 45 } })
    t.match(made, failed)
    t.same(textOf(made), made.structuredContent)
    t.match(await client.callTool({ name: 'get_task', arguments: { task_id: (made.structuredContent as { id: string }).id } }), failed)
  }
})

t.test('what is wrong with a message is an error of JSON-RPC, as docs/mcp.md lists them; and so does it list the revisions that are served', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const rows = [...MANUAL.matchAll(/^\| .* \| (\d{3}) \| (-\d+) \|$/gm)].map(([, status, code]) => `${status} ${code}`)
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  const unknownTool = { ...list, method: 'tools/call', params: { name: 'nope' } }
  const [unserved, unservedHeaders] = modern('tools/list')
  const future = JSON.parse(JSON.stringify(unserved).replace('2026-07-28', '2099-01-01'))
  const cases: [unknown, Record<string, string>, string][] = [
    [{ ...list, id: null }, {}, '400 -32600'],
    [{ jsonrpc: '2.0' }, {}, '400 -32600'],
    [list, { 'mcp-protocol-version': '1999-01-01' }, '400 -32000'],
    [future, { ...unservedHeaders, 'mcp-protocol-version': '2099-01-01' }, '400 -32022'],
    [unserved, {}, '400 -32020'],
    [list, { accept: 'application/json' }, '406 -32000'],
    [{ ...list, method: 'nope' }, {}, '200 -32601'],
    [...modern('nope'), '404 -32601'],
    [unknownTool, {}, '200 -32602'],
    [...modern('tools/call', { name: 'nope' }), '200 -32602'],
    [{ ...list, method: 'resources/read', params: { uri: 'task://nope' } }, {}, '200 -32602'],
    [...modern('resources/read', { uri: 'task://nope' }), '200 -32602'],
    [...modern('tasks/get', { taskId: 'nope' }), '400 -32021'],
    [...modern('tasks/get', { taskId: 'nope' }, { extensions: { 'io.modelcontextprotocol/tasks': {} } }), '200 -32602'],
  ]
  for (const [body, headers, expected] of cases) {
    const answer = await endpoint.rpc(body, headers)
    t.equal(`${answer.status} ${(await messageOf(answer)).error?.code}`, expected)
  }
  t.same(new Set(rows), new Set(cases.map(([, , expected]) => expected)))

  const refusal = await messageOf(await endpoint.rpc(list, { 'mcp-protocol-version': '1999-01-01' }))
  const discovered = await messageOf(await endpoint.rpc(...modern('server/discover')))
  const { supportedVersions } = discovered.result as unknown as { supportedVersions: string[] }
  const [, revisions = ''] = /^The protocol revisions (.*) are served/m.exec(MANUAL) ?? []
  t.same(datesIn(revisions), [...supportedVersions, ...datesIn(/supported versions: (.*)\)/.exec(refusal.error?.message ?? '')?.[1] ?? '')])
})

const datesIn = (text: string): string[] => text.match(/\d{4}-\d\d-\d\d/g) ?? []

t.test('the key decides before anything of the protocol is read', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const coder = await endpoint.key(await endpoint.plan('coder', { product: 'Coding', coding: CODING }))
  const suspended = await endpoint.key(endpoint.subscription, { state: 'suspended' })
  const rows = [
    [{ authorization: '' }, 401, 'invalid_api_key'],
    [bearer(`${endpoint.raw.slice(0, -1)}!`), 401, 'invalid_api_key'],
    [bearer(coder.raw), 403, 'wrong_product'],
    [bearer(suspended.raw), 403, 'key_suspended'],
  ] as const
  for (const [headers, status, code] of rows) {
    const answer = await endpoint.rpc({ jsonrpc: '2.0', id: 1, method: 'tools/list' }, headers)
    t.same([answer.status, answer.headers.get('www-authenticate')], [status, status === 401 ? 'Bearer' : null])
    t.match(await answer.json(), { error: { code } })
  }
})

t.test('an inactive plan creates nothing, whatever the arguments; the other tools work', async (t) => {
  const endpoint = await openEndpoint(t)
  const client = await endpoint.connect()
  const { id } = (await endpoint.create()).json()
  await endpoint.until(id, isFinal)
  await endpoint.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  for (const args of [{ prompt: 'x' }, { prompt: '' }, { colour: 'red' }]) {
    t.match(await errorOf(client, 'generate_image', args), { error: { code: 'plan_inactive', message: /it is suspended/ } })
  }
  t.match((await client.callTool({ name: 'get_task', arguments: { task_id: id } })).structuredContent, { id, status: 'completed' })
  t.match((await client.callTool({ name: 'get_usage', arguments: {} })).structuredContent, { burned: '0.0400' })
})

t.test('what the REST API refuses is a tool error of the same code and message', async (t) => {
  const endpoint = await openEndpoint(t, { media: { allowance: '0.05' }, loops: false })
  const client = await endpoint.connect()
  const same = async (args: Record<string, unknown>, code: string): Promise<void> => {
    const { idempotency_key: key, ...body } = args
    const rest = (await endpoint.create(body, typeof key === 'string' ? { 'idempotency-key': key } : {})).json()
    t.equal(rest.error.code, code)
    const { error, errors } = (await errorOf(client, 'generate_image', { prompt: 'a lighthouse', ...args })) as typeof rest
    t.same([error, errors], [rest.error, rest.errors], code)
  }
  await same({ prompt: '', size: 'large' }, 'invalid_request')
  await same({ size: '16x16', aspect_ratio: '1:1' }, 'invalid_request')
  await same({ webhook_url: 'http://169.254.169.254/' }, 'url_not_allowed')
  await same({ max_cost: '0.01' }, 'max_cost_exceeded')
  await client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', idempotency_key: 'k' } })
  await same({ prompt: 'another', idempotency_key: 'k' }, 'idempotency_key_reused')
  await same({}, 'insufficient_balance')
  t.match(await errorOf(client, 'generate_image', { prompt: 'x' }), { required: '0.0400', available: '0.0100' })
  t.match(await errorOf(client, 'generate_image', { prompt: 'x', idempotency_key: 'has space' }), { errors: [{ path: '/idempotency_key' }] })
  t.match(await errorOf(client, 'get_task', { task_id: 'nope' }), { error: { code: 'not_found' } })
  t.match(await errorOf(client, 'get_task', { wait_seconds: 46 }), { errors: [{ path: '/task_id' }, { path: '/wait_seconds' }] })
  await endpoint.plan('studio', { product: 'Media', media: { ...MEDIA, maxQueuedTasks: 1 } }, 2)
  t.match(await errorOf(client, 'generate_image', { prompt: 'x' }), { error: { code: 'queue_full' }, retry_after_seconds: Number })
})

t.test("another tenant's task is not found", async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const { id } = (await endpoint.create()).json()
  const other = await endpoint.key(endpoint.subscription, { tenant: 'globex' })
  t.match(await errorOf(await endpoint.connect('auto', other.raw), 'get_task', { task_id: id }), { error: { code: 'not_found' } })
})

t.test('one idempotency key is one task, over MCP and REST alike', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  const call = async () => (await client.callTool({ name: 'generate_image', arguments: { prompt: 'a lighthouse', idempotency_key: 'k', wait_seconds: 0 } })).structuredContent as Record<string, unknown>
  const ids = (await Promise.all([call(), call(), call()])).map(({ id }) => id)
  const rest = await endpoint.create({}, { 'idempotency-key': 'k' })
  t.same([rest.headers['idempotency-replayed'], new Set([...ids, rest.json().id]).size], ['true', 1])
})

t.test('an internal error leaks nothing', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  endpoint.store.subscription = async () => {
    throw new Error('the secret of the store')
  }
  const result = await client.callTool({ name: 'get_usage', arguments: {} })
  t.match(textOf(result), { error: { code: 'internal', message: 'Something went wrong on our side.' } })
  t.notMatch(JSON.stringify(result), /secret/)
})

t.test('an accepted task is answered even when the store is unavailable right after', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  const { task, subscription } = endpoint.store
  const away = async () => {
    throw new Unavailable('store', new Error('away'))
  }
  endpoint.store.task = () => {
    endpoint.store.subscription = away
    return away()
  }
  const made = await client.callTool({ name: 'generate_image', arguments: { prompt: 'x', wait_seconds: 1 } })
  t.match(made.structuredContent, { status: 'queued', queue_position: null })
  const { id } = made.structuredContent as { id: string }
  t.match(await errorOf(client, 'get_task', { task_id: id }), { error: { code: 'unavailable' }, retry_after_seconds: Number })
  Object.assign(endpoint.store, { task, subscription })
  t.match((await client.callTool({ name: 'get_task', arguments: { task_id: id } })).structuredContent, { id, queue_position: 1 })
})

t.test('waiting ends with the time or with the program, and answers the record as it is', async (t) => {
  const endpoint = await openEndpoint(t)
  const client = await endpoint.connect()
  const id = await endpoint.hanging()
  const waiting = client.callTool({ name: 'get_task', arguments: { task_id: id, wait_seconds: 1 } })
  t.match((await waiting).structuredContent, { id, status: 'processing' })
  const stopped = client.callTool({ name: 'get_task', arguments: { task_id: id, wait_seconds: 45 } }, { onprogress: () => void endpoint.app.close() })
  t.match((await stopped).structuredContent, { id, status: /queued|processing/ })
})

t.test("only pages of the server's own origin may call, and on loopback only under a name of loopback", async (t) => {
  const endpoint = await openEndpoint(t, { loops: false, env: { PUBLIC_URL: 'https://media.example' } })
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  for (const origin of ['https://evil.example', 'null', 'http://media.example']) {
    const refused = await endpoint.rpc(list, { origin })
    t.equal(refused.status, 403, origin)
    t.match(await refused.json(), { error: { code: 'origin_not_allowed' } })
  }
  for (const origin of ['https://media.example', new URL(endpoint.url).origin]) t.equal((await endpoint.rpc(list, { origin })).status, 200, origin)
  const rebound = await endpoint.app.inject({ method: 'POST', url: '/mcp', headers: { ...bearer(endpoint.raw), host: 'evil.example:8080' }, payload: list })
  t.match(rebound.json(), { error: { code: 'origin_not_allowed' } })

  const place = { HOST: '127.0.0.1', PUBLIC_URL: null }
  const origins = ['http://127.0.0.1:8080', 'http://localhost:8080', 'http://[::1]:8080', 'http://localhost:8081', 'https://localhost:8080', 'http://localhost:8080/', 'http://localhost.evil.example:8080', '']
  t.same(origins.map((origin) => isOwnOrigin(origin, place, 8080)), [true, true, true, false, false, false, false, false])
  t.same(['10.0.0.7', '127.0.0.1'].map((name) => isOwnOrigin(`http://${name}:8080`, { ...place, HOST: '10.0.0.7' }, 8080)), [true, false])
  t.ok(isOwnOrigin('http://[fd00::7]', { ...place, HOST: 'fd00::7' }, 80))
  t.same(['localhost:1', '127.0.0.1', '[::1]:8080', 'evil.example', '', undefined].map((host) => isOwnHost(host, place)), [true, true, true, false, false, false])
  t.ok(isOwnHost('media.example:443', { ...place, PUBLIC_URL: 'https://media.example' }))
  t.ok(isOwnHost('whatever.example', { ...place, HOST: '10.0.0.7' }))
})

t.test('there are no sessions to open or to delete, no batches, and nothing but JSON of a bounded size', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  for (const method of ['GET', 'DELETE', 'OPTIONS', 'PUT']) {
    for (const headers of [{}, { 'content-type': 'application/json' }, { 'content-type': 'text/plain' }]) {
      const answer = await fetch(endpoint.url, { method, headers: { ...bearer(endpoint.raw), ...headers } })
      t.same([answer.status, answer.headers.get('allow')], [405, 'POST'], `${method} ${JSON.stringify(headers)}`)
      t.match(await answer.json(), { error: { code: 'method_not_allowed' } })
    }
  }
  const full = await fetch(endpoint.url, { method: 'DELETE', headers: { ...bearer(endpoint.raw), 'content-type': 'application/json' }, body: '{' })
  t.equal(full.status, 405)
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
  const rows: [unknown, Record<string, string>, number, string][] = [
    [[list, list], {}, 400, 'invalid_request'],
    ['{', {}, 400, 'invalid_json'],
    ['hello', { 'content-type': 'text/plain' }, 415, 'unsupported_media_type'],
    [{ ...list, params: { padding: 'x'.repeat(1024 * 1024) } }, {}, 413, 'payload_too_large'],
  ]
  for (const [body, headers, status, code] of rows) {
    const answer = await endpoint.rpc(body, headers)
    t.equal(answer.status, status)
    t.match(await answer.json(), { error: { code } })
  }
})

const backendsOf = (stored: Buffer | null) => ({ files: { get: async () => stored && { contentType: '', bytes: stored.length, range: null, stream: Readable.from([stored]) } }, link: () => 'https://media.example/f', log: { warn() {} } }) as unknown as Parameters<typeof openMediaContent>[0]

function madeOf(contentType: string, bytes: number): Task {
  const result = { file: 'f', contentType, bytes, width: 1, height: 1, durationMs: null, expiresAt: 0 }
  return { id: 'i', kind: 'image', state: 'completed', outcome: { outcome: 'completed', cost: 0, result } } as Task
}

const MOST_BYTES = 2 * 1024 * 1024
const ROOM = openBodyBudget(100 * MOST_BYTES).share('acme')

t.test('media that are large, missing or of no use to a model come as their link alone; small images and sounds as content', async (t) => {
  const typesOf = async (contentType: string, bytes: number, stored: Buffer | null) =>
    (await openMediaContent(backendsOf(stored))(madeOf(contentType, bytes), ROOM)).map((block) => block.type)
  const stored = Buffer.from('media')
  for (const [type, bytes, content] of [['image/png', MOST_BYTES + 1, stored], ['image/png', 1, null], ['image/svg+xml', 1, stored], ['video/mp4', 1, stored], ['audio/wav', MOST_BYTES + 1, stored]] as const) {
    t.same(await typesOf(type, bytes, content), ['resource_link'], `${type} of ${bytes} bytes`)
  }
  for (const type of ['image/png', 'image/webp', 'audio/wav', 'audio/mpeg']) t.same(await typesOf(type, MOST_BYTES, stored), [type.split('/')[0], 'resource_link'], type)
})

t.test('media count three times in the memory of their tenant: beyond its share they come as their link, until a response is closed', async (t) => {
  const mediaOf = openMediaContent(backendsOf(Buffer.from('media')))
  const budget = openBodyBudget(12 * MOST_BYTES)
  const blocksOf = async (share: BodyShare | null) => (await mediaOf(madeOf('image/png', MOST_BYTES), share)).length
  const open = Array.from({ length: 3 }, () => budget.share('acme'))
  t.same([await blocksOf(open[0] ?? null), await blocksOf(open[1] ?? null), await blocksOf(open[2] ?? null)], [2, 2, 1])
  t.equal(await blocksOf(budget.share('globex')), 2, 'another tenant has its own share')
  for (const share of open) share.free()
  t.equal(await blocksOf(budget.share('acme')), 2)
  t.equal(await blocksOf(null), 1, 'a client that has left gets nothing more')
})

t.test('a task is a resource, which reads as its record; a tenant sees its own, page by page', async (t) => {
  const endpoint = await openEndpoint(t, { loops: false })
  const client = await endpoint.connect()
  const ids: string[] = []
  for (let i = 0; i < 52; i++) ids.push((await endpoint.create()).json().id)
  t.match(await client.listResourceTemplates(), { resourceTemplates: [{ uriTemplate: 'task://{id}', mimeType: 'application/json' }] })
  const { resources } = await client.listResources()
  t.same(resources.map(({ uri }) => uri), ids.toReversed().map((id) => `task://${id}`), 'all pages, newest first')
  t.match(resources[0], { title: /^image, queued, 2026-/, mimeType: 'application/json' })
  const { contents } = await client.readResource({ uri: `task://${ids[0]}` })
  t.same(JSON.parse((contents[0] as { text: string }).text), (await endpoint.get(`/api/v1/generations/${ids[0]}`)).json())

  const other = await endpoint.connect('auto', (await endpoint.key(endpoint.subscription, { tenant: 'globex' })).raw)
  t.same((await other.listResources()).resources, [])
  for (const uri of [`task://${ids[0]}`, 'task://', 'file:///etc/passwd']) await t.rejects(other.readResource({ uri }), { code: -32602 }, uri)
  t.match(await messageOf(await endpoint.rpc(...modern('resources/list', { cursor: 'x' }))), { error: { code: -32602, data: { code: 'invalid_request' } } })
  endpoint.store.task = async () => {
    throw new Unavailable('store', new Error('the secret of the store'))
  }
  const away = await messageOf(await endpoint.rpc(...modern('resources/read', { uri: `task://${ids[0]}` })))
  t.match(away, { error: { code: -32603, data: { code: 'unavailable' } } })
  t.notMatch(JSON.stringify(away), /secret/)
})
