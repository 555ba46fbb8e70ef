/** /v1 over a scripted upstream: requests to it, answers to the client, error mapping, vendor names, settlement. */
import t from 'tap'
import { promptBytes } from '../../src/upstream/usage/prompt-size.ts'
import { respond, streams, type Script } from '../fakes/upstream.ts'
import { chunk, completion, delta, DONE, event, message, response, VENDOR, chatStream, responsesStream } from '../fakes/upstream-wire.ts'
import { chat, dataOf, MESSAGES, post, responses, startStream, type Gateway, type Loose } from '../upstream/gateway.ts'
import { KEY, setUp } from './vendor.ts'

/** All bytes that a client gets, as one text. */
const raw = (got: { text: string; headers: Record<string, string> }) => got.text + JSON.stringify(got.headers)

t.test('an upstream is sent its own model, its key, a token limit and accept-encoding identity', async (t) => {
  const { upstream, gateway } = await setUp(
    t,
    (answer, { path, body }) => {
      if (body['stream']) return streams(...chatStream('hi'))(answer, { path, body, headers: {}, text: '' })
      respond(answer, 200, completion('hi'))
    },
    { upstreams: { backOffMs: 0 } },
    { headers: { 'x-team': 'a' }, retry: { attempts: 1 } },
  )
  await chat(gateway, { max_tokens: 9000, temperature: 0.5, unknown: { member: [1] }, stream_options: { include_usage: true } })
  const [first] = upstream.requests
  t.equal(first!.path, '/v1/chat/completions')
  t.match(first!.headers, {
    authorization: `Bearer ${KEY}`,
    'accept-encoding': 'identity',
    'content-type': 'application/json',
    'x-team': 'a',
  })
  t.same(first!.body, { model: `${VENDOR}-large`, max_tokens: 4096, messages: MESSAGES, temperature: 0.5 })
  await chat(gateway, { stream: true, max_completion_tokens: 10, stream_options: { include_obfuscation: false } })
  t.match(upstream.requests[1]!.body, {
    max_completion_tokens: 10,
    stream: true,
    stream_options: { include_obfuscation: false, include_usage: true },
  })
  await chat(gateway)
  t.match(upstream.requests[2]!.body, { max_completion_tokens: 4096 })
  await responses(gateway, { store: true, include: ['x'], tools: [{ type: 'namespace', name: 'n', tools: [] }], max_output_tokens: 50 })
  t.same(upstream.requests[3]!.body, {
    model: `${VENDOR}-large`,
    max_output_tokens: 50,
    input: 'Hello',
    store: false,
    include: ['x'],
    tools: [{ type: 'namespace', name: 'n', tools: [] }],
  })
})

t.test('maxTokensField names the member of the token limit', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('hi')), {}, { maxTokensField: 'max_tokens' })
  await chat(gateway, { max_completion_tokens: 10, n: 2 })
  t.match(upstream.requests[0]!.body, { max_tokens: 10, n: 2 })
  t.notOk('max_completion_tokens' in upstream.requests[0]!.body)
  await chat(gateway, { n: 3 })
  t.equal(upstream.requests[1]!.body['max_tokens'], Math.floor(4096 / 3), 'the limit of the plan covers all choices together')
})

t.test('ids are encrypted for clients and decrypted for the upstream', async (t) => {
  const calls = [{ id: 'functions.read:0', type: 'function', function: { name: 'read', arguments: '{}' } }]
  const { upstream, gateway } = await setUp(t, (answer) =>
    respond(
      answer,
      200,
      completion('', {
        choices: [{ index: 0, message: { role: 'assistant', content: null, tool_calls: calls }, finish_reason: 'tool_calls' }],
      }),
    ),
  )
  const first = await chat(gateway)
  const [call] = first.body.choices[0].message.tool_calls
  t.not(call.id, calls[0]!.id)
  await chat(gateway, { messages: [...MESSAGES, first.body.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'x' }] })
  const [, replayed, result] = upstream.requests[1]!.body['messages'] as Record<string, unknown>[]
  t.same((replayed!['tool_calls'] as object[])[0], calls[0])
  t.equal(result!['tool_call_id'], 'functions.read:0')

  const items = [
    { id: 'rs_1', type: 'reasoning', summary: [], encrypted_content: `${VENDOR}=${'a+/'.repeat(1000)}==` },
    { id: 'fc_1', type: 'function_call', status: 'completed', call_id: 'abc|1', name: 'read', namespace: 'files', arguments: '{}' },
  ]
  upstream.respondWith((answer) => respond(answer, 200, response('completed', items)))
  const { output } = (await responses(gateway)).body
  t.match(output[1], { namespace: 'files', name: 'read', call_id: /^call_/ })
  t.match(output[0].encrypted_content, /^enc[a-z]{4}_[A-Za-z0-9_-]+$/, 'its form can name a vendor')
  t.notOk(JSON.stringify(output).includes(VENDOR))
  await responses(gateway, {
    input: [{ role: 'user', content: 'x' }, ...output, { type: 'function_call_output', call_id: output[1].call_id, output: 'y' }],
  })
  t.same((upstream.requests[3]!.body['input'] as object[]).slice(1), [
    ...items,
    { type: 'function_call_output', call_id: 'abc|1', output: 'y' },
  ])
})

t.test('a prompt is estimated by its bytes, and an invalid usage is not charged', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('one two three four', { usage: undefined })))
  const bytes = promptBytes('chat', { messages: MESSAGES }, new Set())
  await chat(gateway)
  t.same(await gateway.settled(), { usage: { input: Math.ceil((bytes * 300) / 1000), cachedInput: 0, output: 4 }, estimated: true })
  upstream.respondWith((answer) => respond(answer, 200, completion('hi', { usage: { prompt_tokens: -5, completion_tokens: 1e300 } })))
  await chat(gateway)
  t.match(await gateway.settled(), { estimated: true })
})

t.test('a metric compares the estimates with the usage that upstreams report', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('hi')))
  const counted = async (kind: string) => {
    const text = await gateway.app.metrics.registry.metrics()
    return Number(new RegExp(`tollgate_coding_estimate_ratio_count\\{kind="${kind}"\\} (\\d+)`).exec(text)?.[1] ?? 0)
  }
  await chat(gateway)
  upstream.respondWith(streams(...chatStream('a')))
  await chat(gateway, { stream: true })
  upstream.respondWith((answer) => respond(answer, 200, completion('hi', { usage: undefined })))
  await chat(gateway)
  for (let n = 0; n < 3; n++) await gateway.settled()
  t.same([await counted('input'), await counted('output')], [2, 2])
})

t.test('a 400 about the request is mapped to our code and sentence, not retried and not charged', async (t) => {
  const { upstream, gateway } = await setUp(t, () => {})
  const cases: [number, object, number, string, string | null][] = [
    [400, { code: 'context_length_exceeded', message: VENDOR }, 400, 'context_length_exceeded', null],
    [400, { message: `This model's maximum context length is 8192 tokens (${VENDOR})`, code: 400 }, 400, 'context_length_exceeded', null],
    ...[
      'input length and `max_tokens` exceed context limit: 142251 + 64000 > 200000, decrease input length or `max_tokens` and try again',
      'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
      "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
      'Invalid request: Your request exceeded model token limit: 262144',
      'Range of input length should be [1, 129024]',
      'Prompt exceeds max length',
      'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192.',
    ].map((message): [number, object, number, string, null] => [400, { message }, 400, 'context_length_exceeded', null]),
    [400, { message: "Invalid schema for function 'read': context_window is not a string" }, 400, 'invalid_request', null],
    [400, { message: `Bad request. ${'It was: '.repeat(50)} context window` }, 400, 'invalid_request', null],
    [400, { code: 'content_policy_violation' }, 400, 'content_filter', null],
    [400, { code: 'invalid_image_format' }, 400, 'invalid_image', null],
    [400, { message: 'bad', param: 'messages[0].content' }, 400, 'invalid_request', 'messages[0].content'],
    [400, { message: 'Invalid schema: api_key and credential are not strings' }, 400, 'invalid_request', null],
    [422, { message: 'bad', param: `messages.${VENDOR}` }, 400, 'invalid_request', null],
    [413, {}, 413, 'payload_too_large', null],
  ]
  for (const [status, error, expected, code, param] of cases) {
    upstream.respondWith((answer) => respond(answer, status, { error }))
    for (const streamed of [false, true]) {
      const before = upstream.requests.length
      const got = await chat(gateway, { stream: streamed })
      t.match({ status: got.status, ...got.body.error }, { status: expected, code, param }, JSON.stringify(error))
      t.equal(upstream.requests.length, before + 1, 'no retry')
      t.notOk(raw(got).includes(VENDOR))
      t.equal(await gateway.settled(), null)
    }
  }
  const refused = gateway.logged.map((line) => JSON.parse(line)).filter(({ event }) => event === 'upstream_request_refused')
  t.equal(refused.length, 2 * cases.length)
  t.match(refused[0], { upstream: String, wire: 'chat', code: 'context_length_exceeded', err: { message: 'status 400, code context_length_exceeded' } })
  t.notOk(JSON.stringify(refused.map(({ err }) => err)).includes(VENDOR), 'the words of an upstream may quote the request')
})

t.test('a 400 about a translated request names a member only if it is one of both wires', async (t) => {
  for (const wire of ['chat', 'responses']) {
    const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 400, { error: { message: 'bad', param: wire === 'chat' ? 'messages[0].content' : 'input[0].content' } }), {}, { wire })
    const translated = await (wire === 'chat' ? responses : chat)(gateway)
    t.match({ status: translated.status, ...translated.body.error }, { status: 400, code: 'invalid_request', param: null, message: 'The model does not accept this request.' })
    const native = await (wire === 'chat' ? chat : responses)(gateway)
    t.match(native.body.error, { code: 'invalid_request', param: wire === 'chat' ? 'messages[0].content' : 'input[0].content' })
    upstream.respondWith((answer) => respond(answer, 400, { error: { message: 'bad', param: 'temperature' } }))
    for (const call of [chat, responses]) t.match((await call(gateway)).body.error, { code: 'invalid_request', param: 'temperature' })
  }
})

t.test('a whole answer has its calls as the wire defines them, whatever servers do beside it', async (t) => {
  const { upstream, gateway } = await setUp(t, () => {})
  const answered = async (members: object, reason: string | null = null) => {
    upstream.respondWith((answer) => respond(answer, 200, completion('', { choices: [{ index: 0, message: { role: 'assistant', content: null, ...members }, finish_reason: reason }] })))
    const { choices } = (await chat(gateway)).body
    return choices[0]
  }
  t.match(await answered({ tool_calls: [{ id: 'x', function: { name: 'f', arguments: { a: 1 } } }] }), {
    finish_reason: 'tool_calls',
    message: { tool_calls: [{ id: /^call_/, type: 'function', function: { name: 'f', arguments: '{"a":1}' } }] },
  })
  t.match(await answered({ tool_calls: [{ function: { name: 'f', arguments: null } }] }, 'tool_calls'), { message: { tool_calls: [{ id: /^call_/, function: { name: 'f', arguments: '' } }] } })
  t.match(await answered({ function_call: { name: 'f' } }, 'function_call'), { message: { function_call: { name: 'f', arguments: '' } } })
  const plain = await answered({ content: 'a', tool_calls: [] })
  t.equal(plain.finish_reason, 'stop')
  t.notOk('tool_calls' in plain.message)
  const nothing = await answered({ content: 'a', tool_calls: [{ id: 'x', type: 'retrieval' }, null] })
  t.equal(nothing.finish_reason, 'stop', 'entries that call nothing')
  t.notOk('tool_calls' in nothing.message)
})

t.test('any other upstream error is a 503 server_overloaded for the client', async (t) => {
  const { upstream, gateway } = await setUp(t, () => {}, {}, { breaker: { failures: 1000 } })
  const scripts: Script[] = [
    ...[401, 402, 403, 404, 429, 500, 503, 302].map(
      (status): Script =>
        (answer) =>
          respond(answer, status, { error: { message: VENDOR } }),
    ),
    (answer) => respond(answer, 400, { error: { message: 'Incorrect API key provided' } }),
    (answer) => respond(answer, 400, { error: { code: 400, message: 'API key not valid. Please pass a valid API key.' } }),
    ...[
      { type: 'invalid_request_error', message: 'Your credit balance is too low to access the Anthropic API.' },
      { message: 'You have reached your specified API usage limits. You will regain access on 2026-12-01.' },
      { code: 'Arrearage', message: 'Access denied, please make sure your account is in good standing.' },
      { code: 400, message: 'User location is not supported for the API use.' },
    ].map(
      (error): Script =>
        (answer) =>
          respond(answer, 400, { error }),
    ),
    (answer) => respond(answer, 400, { error: { message: 'no such model', param: 'model' } }),
    (answer) => void answer.destroy(),
    (answer) => void answer.end('<html>'),
    (answer) => respond(answer, 200, { error: { message: VENDOR } }),
    (answer) => respond(answer, 200, { choices: [] }),
    (answer) => respond(answer, 200, completion('hi'), { 'content-encoding': 'gzip' }),
    streams(DONE),
    streams('data: {"error":{"message":"x"}}\n\n'),
    streams('data: nonsense\n\n'),
    streams(': nothing\n\n'),
  ]
  for (const script of scripts) {
    upstream.respondWith(script)
    for (const call of [chat, responses]) {
      for (const streamed of [false, true]) {
        const got = await call(gateway, { stream: streamed })
        t.match(
          { status: got.status, retry: got.headers['retry-after'], ...got.body.error },
          { status: 503, retry: /^\d+$/, code: 'server_overloaded' },
          String(script),
        )
        t.equal(await gateway.settled(), null)
      }
    }
  }
})

t.test('a hostile body is refused or passed unchanged, and never crashes the process', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('hi')))
  const body = (more: string) => `{"model":"svc-code","messages":[{"role":"user","content":"x"}]${more}}`
  const refused: [string, string][] = [
    [body(`,"deep":${'['.repeat(10_000)}${']'.repeat(10_000)}`), 'invalid_json'],
    [body(`,"deep":${'{"a":'.repeat(201)}1${'}'.repeat(201)}`), 'invalid_json'],
    ['['.repeat(1_000_000), 'invalid_json'],
    [`"${'\\'.repeat(100_001)}`, 'invalid_json'],
    [body(',"x":1,"x":2'), 'invalid_json'],
    [body(',"x":"\\ud800"'), 'invalid_json'],
    [body(',"max_tokens":1e999'), 'invalid_request'],
    [body(',"max_tokens":99999999999999999999'), 'invalid_request'],
    ['null', 'invalid_request'],
    ['"svc-code"', 'invalid_request'],
    ['{"model":["svc-code"],"messages":[]}', 'invalid_request'],
    ['{"__proto__":{"model":"svc-code"},"messages":[{"role":"user"}]}', 'invalid_request'],
  ]
  for (const [text, code] of refused)
    t.match((await post(gateway, '/v1/chat/completions', text)).body, { error: { code } }, text.slice(0, 60))
  t.equal(upstream.requests.length, 0)

  const schema = (members: string) => `,"tools":[{"type":"function","function":{"name":"f","parameters":{${members}}}}]`
  const passed: [string, RegExp][] = [
    [',"seed":123456789012345678901234567890', /"seed":123456789012345678901234567890[,}]/],
    [schema('"x":1e999,"y":0.1234567890123456789'), /"x":1e999,"y":0\.1234567890123456789/],
    [schema('"__proto__":{"a":1},"constructor":{"prototype":{"a":1}}'), /"__proto__":\{"a":1\},"constructor":\{"prototype":\{"a":1\}\}/],
    [schema(`"deep":${'['.repeat(190)}${']'.repeat(190)}`), /\[{190}\]{190}/],
  ]
  for (const [more, expected] of passed) {
    t.equal((await post(gateway, '/v1/chat/completions', body(more))).status, 200)
    t.match(upstream.requests.at(-1)!.text, expected, more.slice(0, 60))
  }
  t.notOk('a' in {}, 'no prototype was touched')
  const got = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: Buffer.from('{"model":"svc-code","x":"\xff"}', 'latin1'),
  })
  t.match(await got.json(), { error: { code: 'invalid_json' } })
  t.equal(
    (await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'text/plain' }, body: '{}' })).status,
    415,
  )
})

t.test('a body of 32 MiB is accepted, a larger one is refused, and an inline image counts at a flat rate', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('hi')))
  const image = (bytes: number) => ({
    messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(bytes)}` } }] }],
  })
  t.equal((await chat(gateway, image(31 * 1024 * 1024))).status, 200)
  t.ok(upstream.requests[0]!.text.length > 31 * 1024 * 1024)
  t.ok(gateway.admissions[0]!.promptBytes < 5000)
  t.match(await chat(gateway, image(33 * 1024 * 1024)), { status: 413, body: { error: { code: 'payload_too_large' } } })
})

t.test('a whole answer that the model did not finish for a failure is tried again, never passed on', async (t) => {
  const { upstream, gateway } = await setUp(t, () => {}, { upstreams: { backOffMs: 0 } })
  for (const reason of ['error', 'abort', 'insufficient_system_resource']) {
    const failed = { index: 0, message: { role: 'assistant', content: 'a' }, finish_reason: reason }
    upstream.respondWith((answer) => respond(answer, 200, completion('', upstream.requests.length % 2 === 1 ? { choices: [failed] } : {})))
    t.match((await chat(gateway)).body.choices[0].finish_reason, 'stop', reason)
  }
  t.equal(upstream.requests.length, 6)
})

t.test('without usage of the upstream the client gets the estimate that is charged, marked by our header', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, completion('one two three four', { usage: undefined })))
  const charged = async () => {
    const settled = await gateway.settled()
    t.equal(settled?.estimated, true)
    return settled!.usage
  }
  const whole = await chat(gateway)
  t.equal(whole.headers['x-svc-usage'], 'estimated')
  const usage = await charged()
  t.equal(usage.output, 4)
  t.match(whole.body.usage, { prompt_tokens: usage.input, completion_tokens: 4, total_tokens: usage.input + 4, prompt_tokens_details: { cached_tokens: 0 } })

  upstream.respondWith((answer) => respond(answer, 200, response('completed', [message('one two')], { usage: null })))
  const responded = await responses(gateway)
  t.equal(responded.headers['x-svc-usage'], 'estimated')
  const second = await charged()
  t.match(responded.body.usage, { input_tokens: second.input, output_tokens: second.output, total_tokens: second.input + second.output, output_tokens_details: { reasoning_tokens: 0 } })

  for (const [call, script, read] of [
    [
      () => streamed(gateway, '/v1/chat/completions', { messages: MESSAGES, stream_options: { include_usage: true } }),
      streams(chunk([delta({ content: 'one two' })]), chunk([delta({ content: ' three four' })]), chunk([delta({}, 'stop')]), DONE),
      (events: Loose[]) => ({ at: events.at(-1), usage: events.at(-2).usage, choices: events.at(-2).choices }),
    ],
    [
      () => streamed(gateway, '/v1/responses', { input: 'x' }),
      streams(...responsesStream('one two', ' three four').slice(0, -2), event('response.completed', { response: response('completed', [message('one two three four')], { usage: undefined }) })),
      (events: Loose[]) => ({ at: events.at(-1).type, usage: events.at(-1).response.usage, choices: [] }),
    ],
  ] as const) {
    upstream.respondWith(script)
    const { text, trailers } = await call()
    const seen = read(dataOf(text))
    const { input, output } = await charged()
    t.equal(output, 4)
    t.equal((seen.usage.prompt_tokens ?? seen.usage.input_tokens), input)
    t.equal(seen.usage.total_tokens, input + output)
    t.same(seen.choices, [])
    t.match(seen.at, /DONE|response.completed/)
    t.equal(trailers['x-svc-usage'], 'estimated')
  }

  upstream.respondWith(streams(...chatStream('a')))
  const reported = await streamed(gateway, '/v1/chat/completions', { messages: MESSAGES, stream_options: { include_usage: true } })
  t.notOk(reported.trailers['x-svc-usage'], 'reported usage is not marked')
  t.equal((await gateway.settled())?.estimated, false)
})

/** A streamed answer to its end, with its trailers. */
async function streamed(gateway: Gateway, path: string, more: object): Promise<{ text: string; trailers: NodeJS.Dict<string> }> {
  const answer = await startStream(gateway, path, { model: 'svc-code', stream: true, ...more })
  let text = ''
  for await (const part of answer) text += String(part)
  return { text, trailers: answer.trailers }
}
