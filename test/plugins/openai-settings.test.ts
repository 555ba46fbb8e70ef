/** What an operator sets for clients of /v1: other names of the model, and web pages that may call it. What agents set for the model. */
import t from 'tap'
import { respond, type Script } from '../fakes/upstream.ts'
import { messageAnswer } from '../fakes/messages-wire.ts'
import { completion, message, response } from '../fakes/upstream-wire.ts'
import { chat, openGateway, post, responses, type Loose } from '../upstream/gateway.ts'
import { parseUpstreams } from '../../src/upstream/upstreams-file.ts'
import { readConfig } from '../../src/config/config.ts'
import { setUp } from './vendor.ts'

const answers: Script = (answer, { path }) =>
  respond(answer, 200, path.endsWith('messages') ? messageAnswer([{ type: 'text', text: 'hi' }]) : path.endsWith('responses') ? response('completed', [message('hi')]) : completion('hi'))

t.test('an alias of the model is taken on every wire, and answers name the model', async (t) => {
  const gateway = await openGateway(t, { modelAliases: ['claude-*', 'gpt-5'] })
  const messages = [{ role: 'user', content: 'Hi' }]
  const bodies: [string, object][] = [['/v1/chat/completions', { messages }], ['/v1/responses', { input: 'Hi' }], ['/v1/messages', { messages, max_tokens: 5 }]]
  for (const [path, body] of bodies) {
    for (const model of ['claude-sonnet-9', 'gpt-5', 'svc-code']) t.match(await post(gateway, path, { model, ...body }), { status: 200, body: { model: 'svc-code' } }, `${path} ${model}`)
    for (const model of ['gpt-5.1', 'my-claude-1', 'Claude-1']) t.equal((await post(gateway, path, { model, ...body })).status, 404, `${path} ${model}`)
  }
  t.equal((await post(gateway, '/v1/messages/count_tokens', { model: 'claude-x', messages })).status, 200)
  t.match(await (await fetch(`${gateway.url}/v1/models/claude-x`)).json(), { id: 'svc-code' })
  t.equal((await fetch(`${gateway.url}/v1/models/other`)).status, 404)
})

t.test('a page of a listed origin may call /v1 from a browser, with its preflight and its errors; others may not', async (t) => {
  const gateway = await openGateway(t, { corsOrigins: ['https://app.test'] })
  const preflight = (origin: string) =>
    fetch(`${gateway.url}/v1/messages/count_tokens`, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,x-stainless-os' } })
  const allowed = await preflight('https://app.test')
  t.equal(allowed.status, 204)
  t.match(Object.fromEntries(allowed.headers), { 'access-control-allow-origin': 'https://app.test', 'access-control-allow-methods': 'GET, POST', 'access-control-allow-headers': 'authorization,x-stainless-os', vary: 'Origin' })
  t.notOk((await preflight('https://other.test')).headers.has('access-control-allow-origin'))
  for (const [body, status] of [[{ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }] }, 200], [{ model: 'svc-code', stream: true, messages: [{ role: 'user', content: 'Hi' }] }, 200], [{}, 400]] as const) {
    const answer = await post(gateway, '/v1/chat/completions', body, { origin: 'https://app.test' })
    t.match(answer, { status, headers: { 'access-control-allow-origin': 'https://app.test', 'access-control-expose-headers': '*' } })
    t.notOk('access-control-allow-origin' in (await post(gateway, '/v1/chat/completions', body, { origin: 'https://app.test.evil' })).headers)
  }
})

t.test('only /v1 is open to pages of other origins, and a preflight has no body', async (t) => {
  const gateway = await openGateway(t, { corsOrigins: ['https://app.test'], decorate: (app) => void app.get('/other', { config: { api: 'coding' } }, async () => ({})) })
  const ofOrigin = async (path: string) => (await fetch(`${gateway.url}${path}`, { headers: { origin: 'https://app.test' } })).headers.has('access-control-allow-origin')
  t.same(await Promise.all(['/v1/models', '/v1/nothing', '/other'].map(ofOrigin)), [true, true, false])
  const preflight = (body: string | ReadableStream, type: string) => fetch(`${gateway.url}/v1/models`, { method: 'OPTIONS', headers: { origin: 'https://app.test', 'content-type': type }, body, duplex: 'half' } as RequestInit)
  for (const type of ['application/json', 'text/plain']) for (const body of ['{}', new Blob(['{}']).stream()]) t.match(await preflight(body, type), { status: 413 }, type)
})

t.test('both settings are read, and nonsense stops the start', async (t) => {
  t.match(readConfig({ MODEL_ALIASES: 'claude-*, gpt-5', CORS_ORIGINS: 'https://a.test,*' }).config, { MODEL_ALIASES: ['claude-*', 'gpt-5'], CORS_ORIGINS: ['https://a.test', '*'] })
  for (const env of [{ MODEL_ALIASES: '(a' }, { MODEL_ALIASES: '*a*b*c*' }, { CORS_ORIGINS: 'a.test' }, { CORS_ORIGINS: 'https://a.test/' }]) t.throws(() => readConfig(env), { name: 'ConfigError' })
})

t.test("agents' settings reach a chat upstream, but not OpenAI's own servers, which refuse them", async (t) => {
  const { upstream, gateway } = await setUp(t, answers)
  const settings = { reasoning: { effort: 'low' }, thinking: { type: 'enabled' }, enable_thinking: true }
  const content = [{ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }]
  const messages = [{ role: 'assistant', content: 'y', reasoning_content: 'z' }, { role: 'user', content }]
  t.equal((await chat(gateway, { ...settings, messages })).status, 200)
  t.match(upstream.requests.at(-1)?.body, { ...settings, messages })
  const file = (baseUrl: string) => `upstreams: [{name: a, model: m, wire: chat, baseUrl: "${baseUrl}"}]`
  const dropped = (baseUrl: string) => parseUpstreams('f', file(baseUrl), { env: () => undefined, readFile: () => '' })[0]?.drop
  const refused = ['chat:reasoning', 'chat:thinking', 'chat:enable_thinking', 'chat:cache_control']
  for (const host of ['api.openai.com', 'a.openai.azure.com', 'a.cognitiveservices.azure.com', 'a.services.ai.azure.com']) t.same(dropped(`https://${host}/v1`), refused, host)
  for (const host of ['myopenai.com', 'services.ai.azure.com.test']) t.same(dropped(`https://${host}/v1`), [], host)
  const mark = { cache_control: { type: 'ephemeral' } }
  const plain = { type: 'function', function: { name: 'f', parameters: { type: 'object', properties: { cache_control: { type: 'string' } } } } }
  const tools = [{ ...plain, ...mark }, { ...plain, function: { ...plain.function, ...mark } }, plain]
  await chat(gateway, { tools })
  t.same(upstream.requests.at(-1)?.body['tools'], tools)
  const openai = await setUp(t, answers, {}, { drop: refused })
  await chat(openai.gateway, { tools })
  t.same(openai.upstream.requests.at(-1)?.body['tools'], [plain, plain, plain])
  await chat(openai.gateway, { ...settings, messages })
  t.same(openai.upstream.requests.at(-1)?.body['messages'], [messages[0], { role: 'user', content: [{ type: 'text', text: 'x' }] }])
  for (const name of Object.keys(settings)) t.notOk(name in openai.upstream.requests.at(-1)!.body, name)
})

t.test('how a chat client asks for thinking becomes an effort, or a budget', async (t) => {
  const [overResponses, overMessages] = [await setUp(t, answers, {}, { wire: 'responses' }), await setUp(t, answers, {}, { wire: 'messages' })]
  const cases: [object, string | undefined, number | undefined][] = [
    [{ thinking: { type: 'enabled', budget_tokens: 2000 } }, 'low', 2048],
    [{ thinking: { type: 'enabled', budget_tokens: 10_000 } }, 'medium', 2048],
    [{ reasoning: { max_tokens: 20_000 } }, 'high', 2048],
    [{ thinking: { type: 'enabled' } }, 'medium', 2048],
    [{ thinking: { type: 'adaptive' } }, 'medium', 2048],
    [{ enable_thinking: true }, 'medium', 2048],
    [{ reasoning: { enabled: true } }, 'medium', 2048],
    [{ reasoning_effort: 'low', thinking: { type: 'enabled', budget_tokens: 60_000 } }, 'low', 2048],
    [{ thinking: { type: 'disabled' } }, undefined, undefined],
    [{ enable_thinking: false }, undefined, undefined],
    [{ reasoning: { enabled: false } }, undefined, undefined],
  ]
  for (const [settings, effort, budget] of cases) {
    const named = JSON.stringify(settings)
    await chat(overResponses.gateway, settings)
    t.equal((overResponses.upstream.requests.at(-1)!.body as Loose).reasoning?.effort, effort, named)
    await chat(overMessages.gateway, settings)
    // At most half of the limit of 4,096 tokens.
    t.equal((overMessages.upstream.requests.at(-1)!.body as Loose).thinking?.budget_tokens, budget, named)
  }
})

t.test("agents' settings of another type are left out, and refuse no request", async (t) => {
  const { upstream, gateway } = await setUp(t, answers)
  for (const settings of [{ reasoning: 'high' }, { thinking: true }, { enable_thinking: 'false' }, { reasoning: null }]) {
    t.equal((await chat(gateway, settings)).status, 200, JSON.stringify(settings))
    for (const name of Object.keys(settings)) t.notOk(name in upstream.requests.at(-1)!.body, name)
  }
})

t.test('a limit of -1 or null is none, on every wire', async (t) => {
  const { upstream, gateway } = await setUp(t, answers, {}, { wire: ['chat', 'responses', 'messages'] })
  const cap = 4096
  for (const limit of [-1, null]) {
    await chat(gateway, { max_tokens: limit })
    const { max_tokens: legacy, max_completion_tokens: completion } = upstream.requests.at(-1)!.body
    t.equal(legacy ?? completion, cap)
    await responses(gateway, { max_output_tokens: limit })
    t.equal(upstream.requests.at(-1)?.body['max_output_tokens'], cap)
    await post(gateway, '/v1/messages', { model: 'svc-code', max_tokens: limit, messages: [{ role: 'user', content: 'Hi' }] })
    t.equal(upstream.requests.at(-1)?.body['max_tokens'], cap)
  }
  t.same(gateway.admissions.map(({ maxOutputTokens }) => maxOutputTokens), Array.from({ length: 6 }, () => null))
  t.equal((await chat(gateway, { max_tokens: -2 })).status, 400)
})

t.test('the effort and the cache marks of a chat client reach a Messages upstream, and no other wire', async (t) => {
  const mark = { cache_control: { type: 'ephemeral' } }
  const messages = [{ role: 'system', content: [{ type: 'text', text: 's', ...mark }] }, { role: 'user', content: [{ type: 'text', text: 'a', ...mark }, { type: 'text', text: 'b' }] }]
  const { upstream, gateway } = await setUp(t, answers, {}, { wire: 'messages' })
  await chat(gateway, { messages, reasoning: { effort: 'low' } })
  t.match(upstream.requests.at(-1)?.body, { system: [{ text: 's', ...mark }], messages: [{ content: [{ text: 'a', ...mark }, { text: 'b', cache_control: undefined }] }], thinking: { budget_tokens: 2048 } })
  const other = await setUp(t, answers, {}, { wire: 'responses' })
  await chat(other.gateway, { messages, reasoning: { effort: 'low' } })
  t.match(other.upstream.requests.at(-1)?.body, { reasoning: { effort: 'low' } })
  t.notOk(other.upstream.requests.at(-1)?.text.includes('cache_control'))
  const marked = { type: 'function', function: { name: 'f', parameters: {} }, ...mark }
  await chat(gateway, { tools: [marked] })
  t.match(upstream.requests.at(-1)?.body['tools'], [{ name: 'f', ...mark }])
  t.equal(upstream.requests.at(-1)!.text.split('cache_control').length - 1, 1)
  await chat(other.gateway, { tools: [marked] })
  t.notOk(other.upstream.requests.at(-1)?.text.includes('cache_control'))
  const tool = { type: 'function', function: { name: 'f', parameters: {} } }
  const called = { role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }] }
  const result = { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'a', ...mark }, { type: 'text', text: 'b', ...mark }] }
  await chat(gateway, { messages: [{ role: 'user', content: 'Hi' }, called, result, { role: 'user', content: 'Go on' }], tools: [tool] })
  const { body, text } = upstream.requests.at(-1)!
  t.match((body as Loose).messages[2].content[0], { type: 'tool_result', ...mark, content: [{ text: 'a' }, { text: 'b' }] })
  t.equal(text.split('cache_control').length - 1, 1, 'a mark in a result is that of its block, and no other is made')
})
