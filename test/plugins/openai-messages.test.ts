/** The Messages wire at the gateway: endpoints, keys, errors and window headers. */
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { dataOf, openGateway as openCoding, post, type Loose } from '../upstream/gateway.ts'
import { CODING, openGateway } from './gateway.ts'

const HELLO = { model: 'svc-code', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] }
const VERSION = { 'anthropic-version': '2023-06-01' }

t.test('a message is answered as JSON and as a stream, with ids of the request and its usage charged', async (t) => {
  const gateway = await openCoding(t)
  const { status, headers, body } = await post(gateway, '/v1/messages?beta=true', HELLO)
  t.equal(status, 200)
  t.ok(headers['request-id'])
  t.match(body, { type: 'message', role: 'assistant', model: 'svc-code', content: [{ type: 'text', text: /You said: Hello$/ }], stop_reason: 'end_turn' })
  const settled = await gateway.settled()
  const { input_tokens: fresh, cache_read_input_tokens: cached, output_tokens: output } = body.usage
  t.match(settled, { estimated: false, usage: { input: fresh + cached, output } })
  const stream = await post(gateway, '/v1/messages', { ...HELLO, stream: true })
  t.match(stream.headers['content-type'], /^text\/event-stream/)
  t.match(stream.text, /^event: message_start\n[^]*event: message_stop\ndata: \{"type":"message_stop"\}\n\n$/)
  t.same((await gateway.settled())?.usage, settled?.usage)
})

t.test('the echo speaks this wire alone, too: it calls a tool that the user names, answers its result, and is cut off by max_tokens', async (t) => {
  const gateway = await openCoding(t, { declared: [{ name: 'echo', baseUrl: 'echo:', wire: 'messages' }] })
  const tools = [{ name: 'weather', input_schema: { type: 'object' } }]
  const asked = { role: 'user', content: [{ type: 'text', text: 'A reminder.' }, { type: 'text', text: 'call weather {"city": "Oslo"}' }] }
  const { body: call } = await post(gateway, '/v1/messages', { ...HELLO, messages: [asked], tools })
  t.match(call, { stop_reason: 'tool_use', content: [{ type: 'tool_use', name: 'weather', input: { city: 'Oslo' } }] })
  const streamed = await post(gateway, '/v1/messages', { ...HELLO, messages: [asked], tools, stream: true })
  const pieces = dataOf(streamed.text).flatMap(({ delta }) => delta?.partial_json ?? [])
  t.ok(pieces.length > 1)
  t.equal(pieces.join(''), '{"city": "Oslo"}')
  const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.content[0].id, content: [{ type: 'text', text: 'rain' }] }] }
  const { body: told } = await post(gateway, '/v1/messages', { ...HELLO, messages: [asked, { role: 'assistant', content: call.content }, result], tools })
  t.match(told, { stop_reason: 'end_turn', content: [{ type: 'text', text: 'The tool answered: rain' }] })
  const { body: cut } = await post(gateway, '/v1/messages', { ...HELLO, max_tokens: 3 })
  t.match(cut, { stop_reason: 'max_tokens', content: [{ text: 'This is the ' }], usage: { output_tokens: 3 } })
})

t.test('a silent stream has pings', async (t) => {
  const gateway = await openCoding(t, { keepAliveMs: 5 })
  const { text } = await post(gateway, '/v1/messages', { ...HELLO, stream: true, messages: [{ role: 'user', content: '[[wait:100]]' }] })
  t.match(text, /event: ping\ndata: \{"type": "ping"\}\n\n/)
  t.notMatch(text, /keep-alive/)
})

t.test('tokens of a prompt are counted without a reservation, on both wires', async (t) => {
  const gateway = await openCoding(t)
  const count = async (content: unknown) => (await post(gateway, '/v1/messages/count_tokens', { model: 'svc-code', messages: [{ role: 'user', content }] })).body.input_tokens
  t.ok((await count('Hello there, how are you?')) > (await count('Hello')))
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(1_000_000) } }
  t.ok((await count([image])) < 2000, 'an image is not counted as text')
  const data = 'A'.repeat(1_000_000)
  const pdf = await count([{ type: 'document', source: { type: 'base64', media_type: 'application/pdf', data } }])
  t.ok(pdf > 16_000 && pdf < 17_000, `a file counts by its size, as it does in a window: ${pdf}`)
  t.ok((await count([{ type: 'text', text: data }])) > 50_000, 'text is text, also without white space')
  const deferred = async (...content: object[]) =>
    (await post(gateway, '/v1/messages/count_tokens', { model: 'svc-code', tools: [{ name: 'read', description: 'word '.repeat(5000), input_schema: {}, defer_loading: true }], messages: [{ role: 'user', content }] })).body.input_tokens
  t.ok((await deferred()) < 50, 'a tool that is not loaded is not read')
  t.ok((await deferred({ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'tool_reference', tool_name: 'read' }] })) > 4000)
  t.match((await post(gateway, '/v1/responses/input_tokens', { model: 'svc-code', input: 'Hello' })).body, { object: 'response.input_tokens', input_tokens: Number })
  for (const model of [{}, { model: null }]) t.equal((await post(gateway, '/v1/responses/input_tokens', { ...model, input: 'Hello' })).status, 200, 'the SDK need not name the model')
  t.match(await post(gateway, '/v1/responses/input_tokens', { model: 'gpt-9', input: 'Hello' }), { status: 404, body: { error: { code: 'model_not_found' } } })
  t.same(gateway.admissions, [])
})

t.test('models have the form of the client', async (t) => {
  const gateway = await openCoding(t)
  const get = async (path: string, headers = {}): Promise<Loose> => (await fetch(gateway.url + path, { headers })).json()
  t.match(await get('/v1/models', VERSION), { data: [{ type: 'model', id: 'svc-code', display_name: 'svc-code', created_at: String }], has_more: false, first_id: 'svc-code', last_id: 'svc-code' })
  t.match(await get('/v1/models/svc-code', VERSION), { type: 'model', id: 'svc-code' })
  t.match(await get('/v1/models/other', VERSION), { type: 'error', error: { type: 'not_found_error' } })
  t.match(await get('/v1/models'), { object: 'list', data: [{ object: 'model' }] })
})

t.test('every failure has the error body and headers of the wire', async (t) => {
  const gateway = await openCoding(t)
  const send = async (method: string, path: string, body?: string, headers = {}) => {
    const answer = await fetch(gateway.url + path, { method, ...(body === undefined ? {} : { body }), headers: { 'content-type': 'application/json', ...headers } })
    return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Loose }
  }
  const cases: [string, string, string | undefined, number, string][] = [
    ['POST', '/v1/messages', '{', 400, 'invalid_request_error'],
    ['POST', '/v1/messages', '{}', 400, 'invalid_request_error'],
    ['POST', '/v1/messages', JSON.stringify({ ...HELLO, model: 'other' }), 404, 'not_found_error'],
    ['PUT', '/v1/messages', '{}', 405, 'invalid_request_error'],
    ['POST', '/v1/messages/other', '{}', 404, 'not_found_error'],
    ['POST', '/v1/messages', 'x'.repeat(33 * 1024 * 1024), 413, 'request_too_large'],
  ]
  for (const [method, path, body, status, type] of cases) {
    const answer = await send(method, path, body, VERSION)
    t.equal(answer.status, status, `${method} ${path}`)
    t.match(answer.body, { type: 'error', error: { type, message: String }, request_id: answer.headers.get('request-id') })
    t.equal(answer.headers.get('x-should-retry'), 'false')
  }
})

/** A metered route of the wire that charges `output`, and one of another wire. */
function routes(app: FastifyInstance): void {
  const admits = () => ({ promptBytes: 0, maxOutputTokens: 100 })
  app.post('/v1/messages', { config: { api: 'coding', creates: true, admits, messages: 'always' } }, async (request) => {
    request.reservation?.settleWith(Promise.resolve({ usage: { input: 0, cachedInput: 0, output: CODING.sessionWindow.tokens }, estimated: false }))
    return {}
  })
  app.get('/v1/models', { config: { api: 'coding', messages: 'by version' } }, async () => ({}))
  app.get('/v1/read', { config: { api: 'coding' } }, async () => ({}))
}

t.test('the key is a Bearer token or x-api-key, on this wire alone; two keys must be the same', async (t) => {
  const { app, plan, key } = await openGateway(t, routes)
  const subscription = await plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await key(subscription)
  const status = async (url: string, headers: Record<string, string>) => (await app.inject({ url, headers })).statusCode
  const authorization = `Bearer ${raw}`
  t.equal(await status('/v1/models', { ...VERSION, 'x-api-key': raw }), 200)
  t.equal(await status('/v1/models', { ...VERSION, authorization }), 200)
  t.equal(await status('/v1/models', { ...VERSION, authorization, 'x-api-key': raw }), 200)
  const two = await app.inject({ url: '/v1/models', headers: { ...VERSION, authorization, 'x-api-key': `${raw}x` } })
  t.equal(two.statusCode, 401)
  t.match(two.json().error.message, /^Authorization and x-api-key hold different keys\./)
  t.equal(await status('/v1/models', { ...VERSION, authorization: 'Bearer other', 'x-api-key': raw }), 401)
  t.equal(await status('/v1/models', { 'x-api-key': raw }), 401, 'without the version it is a request of the other wire')
  t.equal(await status('/v1/read', { ...VERSION, 'x-api-key': raw }), 401)
})

t.test('a full window is a 429 with the time, which clients do not retry', async (t) => {
  const { app, plan, key, settled } = await openGateway(t, routes)
  const subscription = await plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await key(subscription)
  const send = () => app.inject({ method: 'POST', url: '/v1/messages', headers: { 'x-api-key': raw }, payload: {} })
  const first = await send()
  t.equal(first.statusCode, 200)
  t.match(first.headers['anthropic-ratelimit-tokens-reset'], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  await settled(subscription)
  const { statusCode, headers, body } = await send()
  t.equal(statusCode, 429)
  t.match(JSON.parse(body), { type: 'error', error: { type: 'rate_limit_error', message: /token window is used up\. It resets at \d{4}-/ } })
  t.match(headers, { 'x-should-retry': 'false', 'retry-after': /^\d+$/, 'anthropic-ratelimit-tokens-remaining': '0', 'x-ratelimit-remaining-tokens': '0' })
})
