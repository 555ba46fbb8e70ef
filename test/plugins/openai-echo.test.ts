/** /v1 over the built-in echo: both wires, JSON and streams, tools, the model list, and usage. */
import t from 'tap'
import { usageBody } from '../../plugins/openai/usage-route.ts'
import type { KeyVersion } from '../../src/domain/api-keys.ts'
import type { CodingAccount, Subscription } from '../../src/domain/subscription/subscription.ts'
import { chat, dataOf, openGateway, post, responses, type Gateway, type Loose } from '../upstream/gateway.ts'

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'Tells the weather',
      parameters: { type: 'object', properties: { city: { type: 'string' } } },
    },
  },
]
const gateway: Gateway = await openGateway(t)

t.test('a chat completion has the members of the wire, and its usage is settled', async (t) => {
  const { status, body, headers } = await chat(gateway)
  t.equal(status, 200)
  t.match(body, {
    object: 'chat.completion',
    model: 'svc-code',
    id: /^chatcmpl-/,
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: /You said: Hello/ } }],
  })
  t.notOk('system_fingerprint' in body)
  t.equal(body.usage.total_tokens, body.usage.prompt_tokens + body.usage.completion_tokens)
  t.equal(headers['x-ratelimit-limit-tokens'], '1')
  const { prompt_tokens: input, completion_tokens: output, prompt_tokens_details: details } = body.usage
  t.same(await gateway.settled(), { usage: { input, cachedInput: details.cached_tokens, output }, estimated: false })
})

t.test('a chat stream has usage only if the client requested it, and is settled by it either way', async (t) => {
  const plain = dataOf((await chat(gateway, { stream: true })).text)
  const settled = await gateway.settled()
  t.equal(plain.at(-1), '[DONE]')
  t.notOk(
    plain.slice(0, -1).some((chunk) => 'usage' in chunk),
    'no usage member at all',
  )
  const withUsage = dataOf((await chat(gateway, { stream: true, stream_options: { include_usage: true } })).text)
  t.same(await gateway.settled(), settled)
  t.match(withUsage.at(-2), { choices: [], usage: { total_tokens: settled!.usage.input + settled!.usage.output } })
  t.ok(withUsage.slice(0, -2).every((chunk) => chunk.usage === null))
  t.equal(
    withUsage
      .slice(0, -2)
      .map((chunk) => chunk.choices[0].delta.content ?? '')
      .join(''),
    'This is the built-in echo, not a model. You said: Hello',
  )
})

t.test('chat calls a tool that the user names, and answers its result', async (t) => {
  for (const stream of [false, true]) {
    const messages = [{ role: 'user', content: 'Please call weather {"city": "Oslo {north}"} now' }]
    const first = await chat(gateway, { messages, tools: TOOLS, stream })
    const call = stream ? streamedCall(dataOf(first.text)) : first.body.choices[0].message.tool_calls[0]
    t.match(call, { id: /^call_/, type: 'function', function: { name: 'weather', arguments: '{"city": "Oslo {north}"}' } })
    const second = await chat(gateway, {
      messages: [
        ...messages,
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: call.id, content: 'rain' },
      ],
      tools: TOOLS,
    })
    t.equal(second.body.choices[0].message.content, 'The tool answered: rain')
    await gateway.settled()
    await gateway.settled()
  }
})

function streamedCall(chunks: Loose[]) {
  const deltas = chunks.slice(0, -1).flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? [])
  return { ...deltas[0], function: { name: deltas[0].function.name, arguments: deltas.map((one) => one.function.arguments).join('') } }
}

t.test('a response stream has every event in order, numbered from 0, and ends with the whole response', async (t) => {
  const { text } = await responses(gateway, { stream: true, tools: [{ type: 'web_search' }, { type: 'namespace', name: 'x', tools: [] }] })
  const events = dataOf(text)
  t.same(
    events.map(({ sequence_number: number }) => number),
    events.map((_, index) => index),
  )
  t.same(
    text.match(/^event: .*$/gm),
    events.map(({ type }) => `event: ${type}`),
  )
  t.same(
    [...new Set(events.map(({ type }) => type))],
    [
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.delta',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ],
  )
  const { response } = events.at(-1)
  t.match(response, {
    id: /^resp_/,
    model: 'svc-code',
    status: 'completed',
    output: [{ type: 'message', content: [{ text: /You said: Hello/, annotations: [], logprobs: [] }] }],
  })
  const members = `completed_at previous_response_id instructions error incomplete_details tools tool_choice truncation parallel_tool_calls
    text top_p presence_penalty frequency_penalty top_logprobs temperature reasoning usage max_output_tokens max_tool_calls
    store background service_tier metadata safety_identifier prompt_cache_key`
  for (const name of members.split(/\s+/)) {
    t.ok(name in response, name)
    t.ok(name in events[0].response, `${name} at the start`)
  }
  t.match(response.usage, {
    input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
    output_tokens_details: { reasoning_tokens: 0 },
  })
  t.match(await gateway.settled(), {
    usage: { input: response.usage.input_tokens, output: response.usage.output_tokens },
    estimated: false,
  })
})

t.test('responses calls a tool as chat does', async (t) => {
  const input = [{ role: 'user', content: [{ type: 'input_text', text: 'call exec_command {"cmd": "ls"}' }] }]
  const tools = [
    { type: 'function', name: 'exec_command', parameters: {} },
    { type: 'custom', name: 'patch' },
  ]
  const first = await responses(gateway, { input, tools })
  const [item] = first.body.output
  t.match(item, { type: 'function_call', id: /^fc_/, call_id: /^call_/, name: 'exec_command', arguments: '{"cmd": "ls"}' })
  const streamed = dataOf((await responses(gateway, { input, tools, stream: true })).text)
  t.equal(streamed.find(({ type }) => type === 'response.function_call_arguments.done').arguments, '{"cmd": "ls"}')
  const second = await responses(gateway, {
    input: [...input, item, { type: 'function_call_output', call_id: item.call_id, output: 'a.txt' }],
    tools,
  })
  t.equal(second.body.output[0].content[0].text, 'The tool answered: a.txt')
  for (let n = 0; n < 3; n++) await gateway.settled()
})

t.test('a function in a namespace is called by both names, and the call has them apart', async (t) => {
  const input = 'call mcp__media__generate_image {"prompt": "x"}'
  const tools = [{ type: 'namespace', name: 'mcp__media', tools: [{ type: 'function', name: 'generate_image', parameters: {} }] }]
  const call = { type: 'function_call', namespace: 'mcp__media', name: 'generate_image', arguments: '{"prompt": "x"}' }
  t.match((await responses(gateway, { input, tools })).body.output, [call])
  const streamed = dataOf((await responses(gateway, { input, tools, stream: true })).text)
  t.match(streamed.find(({ type }) => type === 'response.output_item.done').item, call)
  for (let n = 0; n < 2; n++) await gateway.settled()
})

t.test('a token limit truncates the answer with finish_reason length or status incomplete', async (t) => {
  const messages = [{ role: 'user', content: '[[tokens:500]]' }]
  t.match((await chat(gateway, { messages, max_tokens: 7 })).body, {
    choices: [{ finish_reason: 'length' }],
    usage: { completion_tokens: 7 },
  })
  t.match((await responses(gateway, { input: '[[tokens:500]]', max_output_tokens: 7 })).body, {
    status: 'incomplete',
    incomplete_details: { reason: 'max_output_tokens' },
    usage: { output_tokens: 7 },
    max_output_tokens: 7,
  })
  t.equal(
    dataOf((await responses(gateway, { input: '[[tokens:500]]', max_output_tokens: 7, stream: true })).text).at(-1).type,
    'response.incomplete',
  )
  for (let n = 0; n < 3; n++) await gateway.settled()
})

t.test('several choices are each answered in full and reserved', async (t) => {
  const { body } = await chat(gateway, { n: 3, max_tokens: 100 })
  t.same(
    body.choices.map(({ index }: { index: number }) => index),
    [0, 1, 2],
  )
  t.equal(gateway.admissions.at(-1)!.maxOutputTokens, 300)
  await chat(gateway, { n: 2 })
  t.equal(gateway.admissions.at(-1)!.maxOutputTokens, null)
  t.equal(gateway.ensured.at(-1), 2000, 'twice the reservation of one choice')
  for (let n = 0; n < 2; n++) await gateway.settled()
})

t.test('the models are a list for OpenAI clients and a catalogue for Codex', async (t) => {
  const { body } = await fetch(`${gateway.url}/v1/models?client_version=0.169.0`).then(async (answer) => ({
    body: (await answer.json()) as Loose,
  }))
  t.match(body, {
    object: 'list',
    data: [{ id: 'svc-code', object: 'model', created: Number, owned_by: String }],
    models: [{ slug: 'svc-code', base_instructions: String, context_window: 128_000 }],
  })
  t.match(await (await fetch(`${gateway.url}/v1/models/svc-code`)).json(), { id: 'svc-code', object: 'model' })
  const other = await fetch(`${gateway.url}/v1/models/other`)
  t.match({ status: other.status, body: await other.json() }, { status: 404, body: { error: { code: 'model_not_found', param: 'model' } } })
  const nameless = await fetch(`${gateway.url}/v1/models/`)
  t.match({ status: nameless.status, body: await nameless.json() }, { status: 400, body: { error: { code: 'invalid_request', param: 'model', message: /names no model/ } } })
})

t.test('a WebSocket is refused with 426, any other GET of responses with 405', async (t) => {
  const { request } = await import('node:http')
  const status = await new Promise((resolve) => {
    const sent = request(
      `${gateway.url}/v1/responses`,
      {
        headers: {
          connection: 'Upgrade',
          upgrade: 'websocket',
          'sec-websocket-version': '13',
          'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
        },
      },
      (answer) => resolve(answer.resume().statusCode),
    )
    sent.end()
  })
  t.equal(status, 426)
  t.equal((await fetch(`${gateway.url}/v1/responses`)).status, 405)
})

t.test('an invalid request is refused with its parameter', async (t) => {
  const cases: [string, unknown, number, string, string | null][] = [
    ['/v1/chat/completions', {}, 400, 'invalid_request', 'model'],
    ['/v1/chat/completions', { model: 'gpt' }, 404, 'model_not_found', 'model'],
    ['/v1/chat/completions', { model: 'svc-code' }, 400, 'invalid_request', 'messages'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [] }, 400, 'invalid_request', 'messages'],
    ['/v1/chat/completions', { model: 'svc-code', messages: ['x'] }, 400, 'invalid_request', 'messages[0]'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [{}] }, 400, 'invalid_request', 'messages[0].role'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user' }], stream: 'yes' }, 400, 'invalid_request', 'stream'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user' }], n: 0 }, 400, 'invalid_request', 'n'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user' }], max_tokens: 1.5 }, 400, 'invalid_request', 'max_tokens'],
    ['/v1/chat/completions', '[]', 400, 'invalid_request', null],
    ['/v1/chat/completions', '{"model":', 400, 'invalid_json', null],
    ['/v1/chat/completions', '', 400, 'invalid_json', null],
    ['/v1/chat/completions', '{"model":"svc-code","messages":[{"role":"user","content":"a","content":"b"}]}', 400, 'invalid_json', 'messages[0].content'],
    ['/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user', content: 5 }] }, 400, 'invalid_request', 'messages[0].content'],
    ['/v1/responses', '{"model":"svc-code","input":[{"role":"user","content":[{"type":"input_text","text":"\\ud83d"}]}]}', 400, 'invalid_json', 'input[0].content[0].text'],
    ['/v1/responses', { model: 'svc-code', input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }, 5] }] }, 400, 'invalid_request', 'input[0].content[1]'],
    ['/v1/responses', { model: 'svc-code' }, 400, 'invalid_request', 'input'],
    ['/v1/responses', { model: 'svc-code', input: 5 }, 400, 'invalid_request', 'input'],
    [
      '/v1/responses',
      { model: 'svc-code', input: 'x', previous_response_id: 'resp_1' },
      400,
      'previous_response_not_found',
      'previous_response_id',
    ],
    ['/v1/responses', { model: 'svc-code', input: 'x', background: true }, 400, 'invalid_request', 'background'],
  ]
  for (const [path, body, status, code, param] of cases) {
    const answer = await post(gateway, path, body)
    t.match({ status: answer.status, ...answer.body.error }, { status, code, param }, JSON.stringify(body))
  }
})

t.test('GET /v1/usage has both windows with reset times in seconds, the overshoot, and the share of a capped key', async (t) => {
  const now = Date.now()
  const account: CodingAccount = {
    session: { start: now - 1000, end: now + 3_600_000, used: 40 },
    weekly: { n: 3, start: now - 5000, used: 1020 },
    usage: {},
    reservations: { a: { instance: 'i', session: now - 1000, week: 3, keyId: 'key-1', tokens: 7, bytes: 1, at: now } },
    keys: { 'key-1': { week: 3, used: 30 } },
    outputs: [],
    ratio: 300,
  }
  const terms = {
    coding: {
      sessionTokens: 100,
      sessionMs: 18_000_000,
      weeklyTokens: 1000,
      weights: { input: 1000, cachedInput: 1000, output: 1000 },
      onAbort: 'Cancel',
      maxConcurrentRequests: 1,
      maxOutputTokens: 1,
    },
  }
  const record = { id: 'acme/first', terms, coding: account } as unknown as Subscription
  const shown = usageBody(record, { keyId: 'key-1', cap: 50 } as KeyVersion, now)
  t.same(shown, {
    object: 'usage',
    plan: 'first',
    session: { limit: 100, used: 40, reserved: 7, remaining: 53, resets_at: Math.ceil((now + 3_600_000) / 1000) },
    weekly: { limit: 1000, used: 1020, reserved: 7, remaining: 0, resets_at: Math.ceil((now - 5000) / 1000) + 604_800 },
    overshoot: 20,
    key: { limit: 50, used: 30, reserved: 7, remaining: 13 },
  })
  const idle = usageBody(
    { ...record, coding: { ...account, session: null } } as Subscription,
    { keyId: 'other', cap: null } as KeyVersion,
    now,
  )
  t.match(idle.session, { used: 0, remaining: 100, resets_at: null })
  t.notOk('key' in idle)
  t.throws(() => usageBody(null, null, now), { code: 'plan_inactive' })
})

t.test('metrics count attempts at upstreams and the time to the first token', async (t) => {
  const text = await gateway.app.metrics.registry.metrics()
  t.match(text, /tollgate_upstream_requests_total\{upstream="echo",outcome="answered"\} [1-9]/)
  t.match(text, /tollgate_upstream_breaker_state\{upstream="echo"\} 0/)
  t.match(text, /tollgate_coding_time_to_first_token_seconds_count\{wire="responses"\} [1-9]/)
})

t.test('a response repeats the tools that its upstream got, and no choice of others', async (t) => {
  const tool = { type: 'function', name: 'weather', parameters: null, strict: true, description: null }
  const { body } = await responses(gateway, { tools: [{ type: 'web_search' }, tool, { type: 'mcp', server_label: 'a', server_url: 'https://a.test' }], tool_choice: { type: 'web_search' } })
  t.match(body, { tools: [tool], tool_choice: 'auto' })
  t.equal(body.tools.length, 1)
  t.match((await responses(gateway, { tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } })).body, { tools: { length: 0 }, tool_choice: 'auto' })
  t.same((await responses(gateway, { tools: [tool], tool_choice: { type: 'function', name: 'weather' } })).body.tool_choice, { type: 'function', name: 'weather' })
})

t.test('the echo ends at a stop sequence, and counts its thought', async (t) => {
  const asked = { stop: ['echo', 'never'] }
  t.match((await chat(gateway, asked)).body.choices[0], { finish_reason: 'stop', message: { content: 'This is the built-in ' } })
  const message = { model: 'svc-code', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }], stop_sequences: asked.stop, thinking: { type: 'adaptive' } }
  const { body } = await post(gateway, '/v1/messages', message)
  t.match(body, { stop_reason: 'stop_sequence', stop_sequence: 'echo', content: [{ type: 'thinking' }, { text: 'This is the built-in ' }], usage: { output_tokens_details: { thinking_tokens: 5 } } })
  t.equal((await post(gateway, '/v1/messages', { ...message, max_tokens: 1 })).body.stop_reason, 'max_tokens')
  const streamed = await post(gateway, '/v1/messages', { ...message, stream: true })
  t.match(streamed.text, /"stop_reason":"stop_sequence","stop_sequence":"echo"/)
})
