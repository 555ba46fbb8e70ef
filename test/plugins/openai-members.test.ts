/** What goes upstream: documented members, `allow`, `drop` and `force`, hosted tools, storage, identities, addresses. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { parseUpstreams } from '../../src/upstream/upstreams-file.ts'
import { respond, type Script } from '../fakes/upstream.ts'
import { completion, message, response } from '../fakes/upstream-wire.ts'
import { chat, MESSAGES, responses, type GatewayOptions, type Loose } from '../upstream/gateway.ts'
import { setUp } from './vendor.ts'
import { listening } from '../fakes/listening.ts'

const answers: Script = (answer, { path }) => respond(answer, 200, path.endsWith('responses') ? response('completed', [message('hi')]) : completion('hi'))

/** The bodies that the upstream got for these requests. */
async function sent(t: Test, declared: object, options: GatewayOptions = {}) {
  const { upstream, gateway } = await setUp(t, answers, options, declared)
  const last = () => upstream.requests.at(-1)!.body as Loose
  return {
    gateway,
    upstream,
    chat: async (more: object) => ((await chat(gateway, more)).status === 200 ? last() : null),
    responses: async (more: object) => ((await responses(gateway, more)).status === 200 ? last() : null),
  }
}

const FUNCTION = { type: 'function', function: { name: 'f', parameters: {} } }

t.test('members that choose a price, a model, a route or storage are not sent', async (t) => {
  const { chat, responses } = await sent(t, {})
  const vendor = { models: ['a', 'b'], provider: { order: ['x'] }, api_base: 'http://169.254.169.254', priority: -1, route: 'fallback', extra_body: {}, chat_template_kwargs: {}, n_ctx: 1 }
  t.same(await chat({ ...vendor, service_tier: 'priority', store: true, metadata: { a: 'b' }, web_search_options: {}, prompt_cache_retention: '24h', temperature: 1 }), {
    model: 'acmeai-large', max_completion_tokens: 4096, temperature: 1, messages: MESSAGES,
  })
  t.same(await responses({ ...vendor, service_tier: 'flex', store: true, metadata: { a: 'b' }, prompt_cache_retention: '24h' }), {
    model: 'acmeai-large', max_output_tokens: 4096, metadata: { a: 'b' }, store: false, input: 'Hello',
  })
  t.equal((await chat({ service_tier: 'default' }))?.service_tier, 'default')
})

t.test('allow, drop and force decide per upstream', async (t) => {
  const { chat, responses, gateway } = await sent(t, { allow: ['top_k', 'service_tier', 'store', 'tool:web_search'], drop: ['parallel_tool_calls', 'metadata'], force: { reasoning: { effort: 'low' }, temperature: 0.1 } })
  t.same(await chat({ top_k: 5, min_p: 1, service_tier: 'flex', store: true, metadata: {}, temperature: 1, tools: [FUNCTION], parallel_tool_calls: true }), {
    model: 'acmeai-large', max_completion_tokens: 4096, top_k: 5, service_tier: 'flex', store: true, tools: [FUNCTION], reasoning: { effort: 'low' }, temperature: 0.1, messages: MESSAGES,
  })
  t.match(await responses({ store: true, tools: [{ type: 'web_search' }, { type: 'code_interpreter' }] }), { store: true, tools: [{ type: 'web_search' }] })
  t.equal((await responses({ store: undefined }))?.store, undefined, 'the default of the server')
  t.equal(gateway.upstreams.allowed().has('top_k'), true)
})

t.test('an entry of allow that names a wire holds for that wire', async (t) => {
  const { chat, responses } = await sent(t, { allow: ['chat:top_k', 'responses:store', 'responses:item_reference', 'responses:prompt', 'chat:file_id'] })
  t.equal((await chat({ top_k: 5 }))?.top_k, 5)
  t.notOk('top_k' in (await responses({ top_k: 5 })))
  t.equal((await responses({ store: true }))?.store, true)
  t.notOk('store' in (await chat({ store: true })))
  t.ok(await responses({ input: [{ type: 'item_reference', id: 'rs_1' }] }))
  t.ok(await responses({ prompt: { id: 'pmpt_1' } }))
  t.ok(await chat({ messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-1' } }] }] }))
  t.notOk(await responses({ input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file-1' }] }] }))
})

t.test('hosted tools are left out, tools of the client pass', async (t) => {
  const { responses, chat } = await sent(t, {})
  const own = [
    { type: 'function', name: 'f', parameters: { type: 'object', properties: { Url: { type: 'string' } } } },
    { type: 'custom', name: 'c' },
    { type: 'local_shell' },
    { type: 'shell', environment: { type: 'local' } },
    { type: 'apply_patch' },
  ]
  const hosted = [
    { type: 'web_search' }, { type: 'web_search_preview_2025_03_11' }, { type: 'file_search', vector_store_ids: ['vs_1'] }, { type: 'code_interpreter', container: { type: 'auto' } },
    { type: 'mcp', server_label: 'x', server_url: 'http://169.254.169.254' }, { type: 'image_generation' }, { type: 'shell', environment: { type: 'container_auto' } }, { type: 'openrouter:web_search' },
  ]
  const namespaced = (tools: object[]) => ({ type: 'namespace', name: 'n', tools })
  const got = await responses({ tools: [...hosted, ...own, namespaced([...hosted, own[0]!])], tool_choice: { type: 'web_search' } })
  t.same(got.tools, [...own, namespaced([own[0]!])])
  t.equal(got.tool_choice, undefined, 'a tool that is not there cannot be chosen')
  const none = await responses({ tools: hosted, tool_choice: 'required', parallel_tool_calls: true })
  t.notOk('tools' in none || 'tool_choice' in none || 'parallel_tool_calls' in none)
  t.same((await responses({ tools: own, tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'mcp' }, { type: 'function', name: 'f' }] } })).tool_choice.tools, [{ type: 'function', name: 'f' }])
  t.same((await chat({ tools: [FUNCTION, { type: 'mcp', server_url: 'x' }, { ...FUNCTION, Type: 'mcp', server_Url: 'y' }] })).tools, [FUNCTION, FUNCTION])
  t.same((await responses({ input: [{ type: 'tool_search_output', tools: [hosted[4]!, own[0]!] }] })).input[0].tools, [own[0]])
})

t.test('a reference to something stored at the upstream is refused with its place, before a reservation', async (t) => {
  const { gateway } = await sent(t, {})
  const cases: [typeof chat, object, string][] = [
    [chat, { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-1' } }] }] }, 'messages[0].content[0].file.file_id'],
    [chat, { messages: [{ role: 'user', content: [{ type: 'video_url', video_url: { url: 'http://a.test' } }] }] }, 'messages[0].content[0].type'],
    [responses, { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file-1' }] }] }, 'input[0].content[0].file_id'],
    [responses, { input: [{ type: 'function_call_output', call_id: 'a', output: [{ type: 'input_file', file_id: 'file-1' }] }] }, 'input[0].output[0].file_id'],
    [responses, { input: [{ type: 'item_reference', id: 'rs_1' }] }, 'input[0].type'],
    [responses, { prompt: { id: 'pmpt_1' } }, 'prompt'],
  ]
  for (const [call, more, param] of cases) t.match(await call(gateway, more), { status: 400, body: { error: { code: 'invalid_request', param } } }, param)
  t.equal(gateway.admissions.length, 0)
  const { gateway: open } = await sent(t, { allow: ['file_id', 'item_reference', 'prompt', 'part:video_url'] }, { imageUrls: 'vet', lookup: async () => ['93.184.216.34'] })
  for (const [call, more, param] of cases) t.equal((await call(open, more)).status, 200, `${param} is allowed`)
})

t.test('a reasoning item without its content, which the server would have to store, is left out', async (t) => {
  const { responses } = await sent(t, {})
  const items = [
    { type: 'reasoning', id: 'rs_1', summary: [] },
    { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'x' },
    { type: 'reasoning', id: 'rs_3', summary: [], content: [{ type: 'reasoning_text', text: 'why' }] },
  ]
  t.same((await responses({ input: [{ role: 'user', content: 'x' }, ...items] })).input.map((item: Loose) => item.id), [undefined, 'rs_2', 'rs_3'])
})

t.test('messages, items and parts keep their documented members and the reasoning that agents replay', async (t) => {
  const { chat, responses } = await sent(t, {})
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }
  const kept = { role: 'assistant', content: null, refusal: null, tool_calls: [call], reasoning_content: 'r', reasoning: 'r' }
  t.same((await chat({ messages: [{ ...kept, cache_control: {}, Content: 'x', annotations: [] }, { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'x', Text: 'y', cache_control: {} }] }] })).messages, [
    kept, { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'x', cache_control: {} }] },
  ])
  const item = { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'x' }] }
  t.same((await responses({ input: [{ ...item, Content: [{ type: 'input_image', image_url: 'http://169.254.169.254' }] }] })).input, [item])
})

t.test('a developer message of a chat is a system message for the upstream', async (t) => {
  const { chat, responses } = await sent(t, {})
  const messages = [{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: 'Hi' }]
  t.same((await chat({ messages })).messages, [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hi' }])
  t.same((await responses({ input: messages })).input, messages)
})

t.test('end users and cache keys are pseudonyms of the subscription, and the response repeats the client\'s', async (t) => {
  const { chat, responses, gateway } = await sent(t, {})
  const names = { user: 'ann', safety_identifier: 'ann', prompt_cache_key: 'project' }
  const first = await chat(names)
  t.match(first, { user: /^[\w-]{43}$/, safety_identifier: first.user, prompt_cache_key: /^[\w-]{43}$/ })
  t.not(first.user, first.prompt_cache_key)
  t.match(await responses(names), { user: first.user, prompt_cache_key: first.prompt_cache_key }, 'the same for every request')
  t.match((await responsesOf(gateway, names)).body, { safety_identifier: 'ann', prompt_cache_key: 'project', store: false })
})
const responsesOf = responses

const image = (url: string) => ({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url, detail: 'low' } }] }] })

t.test('http addresses of images are vetted before an upstream may fetch them', async (t) => {
  const { gateway, upstream, chat: send } = await sent(t, {}, { lookup: async (name) => (name === 'inside.test' ? ['93.184.216.34', '10.0.0.1'] : name === 'gone.test' ? [] : ['93.184.216.34']) })
  for (const url of ['http://169.254.169.254/latest', 'http://2852039166/', 'http://[::1]/', 'http://localhost/', 'https://inside.test/a.png', 'https://gone.test/a.png', 'file:///etc/passwd', 'ftp://a.test/b', 'gs://bucket/x', 'nonsense']) {
    t.match(await chat(gateway, image(url)), { status: 400, body: { error: { code: 'invalid_request', param: 'messages[0].content[0].image_url.url' } } }, url)
    t.equal(await gateway.settled(), null)
  }
  t.equal(upstream.requests.length, 0)
  for (const url of ['https://images.test/a.png', 'data:image/png;base64,AAAA']) t.same((await send(image(url))).messages, image(url).messages, url)
  const file = (url: string) => responses(gateway, { input: [{ role: 'user', content: [{ type: 'input_file', file_url: url }, { type: 'input_image', image_url: 'https://images.test/a.png' }] }] })
  t.equal((await file('https://inside.test/a.pdf')).body.error.param, 'input[0].content[0].file_url')
  t.equal((await file('https://images.test/a.pdf')).status, 200)
})

t.test('http addresses of images are refused, or fetched by the gateway, where the setting says so', async (t) => {
  const refusing = await sent(t, {}, { imageUrls: 'refuse' })
  t.match((await chat(refusing.gateway, image('https://images.test/a.png'))).body.error.message, /data: address/)
  t.ok(await refusing.chat(image('data:image/png;base64,AAAA')))

  const server = createServer((request, answer) => {
    if (request.url === '/away') return answer.writeHead(302, { location: 'http://169.254.169.254/' }).end()
    answer.writeHead(request.url === '/gone' ? 404 : 200, { 'content-type': request.url === '/page' ? 'text/html' : request.url === '/doc.pdf' ? 'application/pdf' : 'image/png' }).end('bytes')
  })
  const port = await listening(t, server)
  const at = (path: string) => `http://127.0.0.1:${port}${path}`
  const fetching = await sent(t, {}, { imageUrls: 'fetch', egressAllow: ['127.0.0.1'] })
  t.same((await fetching.chat(image(at('/a.png')))).messages, image(`data:image/png;base64,${Buffer.from('bytes').toString('base64')}`).messages)
  const [file] = (await fetching.responses({ input: [{ role: 'user', content: [{ type: 'input_file', file_url: at('/doc.pdf') }] }] })).input[0].content
  t.same(file, { type: 'input_file', file_data: `data:application/pdf;base64,${Buffer.from('bytes').toString('base64')}`, filename: 'doc.pdf' })
  for (const path of ['/away', '/gone', '/page']) t.match(await chat(fetching.gateway, image(at(path))), { status: 400, body: { error: { param: 'messages[0].content[0].image_url.url' } } }, path)
})

t.test('the UPSTREAMS file cannot allow, drop or force what the gateway decides', async (t) => {
  const parse = (more: string) => parseUpstreams('u.yaml', `upstreams:\n  - name: a\n    baseUrl: https://models.test/v1\n    model: m\n    wire: chat\n    ${more}\n`, { env: () => undefined, readFile: () => '' })
  for (const more of ['allow: [model]', 'allow: [n_predict]', 'drop: [max_tokens]', 'force: {stream: false}', 'force: {MAX_TOKENS: 5}', 'drop: ["chat:stream"]', 'allow: ["messages:max_tokens"]', 'allow: ["chat:Model"]']) t.throws(() => parse(more), /line 6: upstreams\[0\]\.\w+ must not name/, more)
  t.throws(() => parse('allow: ["*"]'), /allow/)
  t.match(parse('allow: [top_k, "tool:web_search"]'), [{ allow: ['top_k', 'tool:web_search'], drop: [], force: {} }])
})
