/** An upstream of the Messages wire for clients of OpenAI's wires: requests, answers for every split of the bytes, and nothing of the vendor. */
import t from 'tap'
import { CALL, MESSAGE_USAGE, messageAnswer, messageEvent, messagesStream, SIGNATURE, THINKING } from '../fakes/messages-wire.ts'
import { openUpstream, respond, streams } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import type { UpstreamCall, WireName } from '../../src/upstream/wires/wire.ts'
import { dataOf, openGateway, type Loose } from './gateway.ts'
import { openaiSchemas } from './openai-schemas.ts'
import { assembled, ESTIMATE, ids, rewrite, TOOLS } from './translation.ts'

const CLIENTS = ['chat', 'responses'] as const
type Client = (typeof CLIENTS)[number]
const CHAT_TOOLS = [{ type: 'function', function: { name: 'read', parameters: { type: 'object' } } }]
const TARGET = { origin: 'one', model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }

function callOf(client: Client, more: object = {}, wires: WireName[] = ['messages'], limit = 40_000): UpstreamCall {
  const request =
    client === 'chat'
      ? readChatRequest({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }], tools: CHAT_TOOLS, stream_options: { include_usage: true }, ...more }, new Set())
      : readResponsesRequest({ model: 'svc-code', input: 'Hi', tools: TOOLS, ...more }, new Set())
  return request.call(limit, ids, () => 1000, wires)
}

const sent = (client: Client, more: object = {}, limit?: number): Loose => JSON.parse(callOf(client, more, ['messages'], limit).body(TARGET))
const json = (client: Client, answer: object): Loose => JSON.parse(callOf(client).rewriteJson(answer).body(ESTIMATE))
const whole = (client: Client, text: string) => rewrite(callOf(client, { stream: true }).openRewriter(), [Buffer.from(text)])

const BLOCKS = [THINKING, { type: 'redacted_thinking', data: `${VENDOR}==` }, { type: 'text', text: 'Grüße an 😀.' }, CALL, { type: 'tool_use', id: 'toolu_2', name: 'patch', input: { input: 'x "y"' } }]
const TERMINAL: Record<Client, (text: string) => Loose> = { chat: assembled, responses: (text) => dataOf(text).at(-1) }

t.test('a request reaches a Messages upstream with its turns, tools and limits', async (t) => {
  const input = [
    { role: 'developer', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'input_text', text: 'See' }, { type: 'input_image', image_url: 'data:image/png;base64,AAAA' }, { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,BBBB' }] },
    { type: 'function_call', call_id: 'call_1', name: 'read', arguments: '{"a":1}' },
    { role: 'user', content: 'And this?' },
    { type: 'custom_tool_call', call_id: 'a|b', name: 'patch', input: 'x' },
    { type: 'function_call_output', call_id: 'call_1', output: 'one' },
    { type: 'custom_tool_call_output', call_id: 'a|b', output: '' },
  ]
  const body = sent('responses', { instructions: 'You help.', input, user: 'u', max_output_tokens: 99, temperature: 1.5, top_p: 0.5, parallel_tool_calls: false, tool_choice: { type: 'function', name: 'read' } })
  t.match(body, {
    model: 'm',
    max_tokens: 99,
    temperature: 1,
    metadata: { user_id: String },
    system: [{ type: 'text', text: 'You help.' }, { type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
    tool_choice: { type: 'tool', name: 'read', disable_parallel_tool_use: true },
    tools: [{ name: 'read', input_schema: { type: 'object' } }, { name: 'patch' }, { name: 'files__list' }],
  })
  t.notOk('top_p' in body)
  t.strictSame(body.messages, [
    { role: 'user', content: [{ type: 'text', text: 'See' }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }, { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'BBBB' }, title: 'a.pdf' }] },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'call_1', name: 'read', input: { a: 1 } }, { type: 'tool_use', id: 'call_YXxi', name: 'patch', input: { input: 'x' } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'one' }] }, { type: 'tool_result', tool_use_id: 'call_YXxi', content: [] }, { type: 'text', text: 'And this?', cache_control: { type: 'ephemeral' } }] },
  ], 'results follow their calls, before what was said between them')
  t.match(sent('chat', { stop: ['END', '\n'], response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object' } } } }), { stop_sequences: ['END'], output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } })
})

t.test('a conversation of instructions alone is one of the user, because the wire takes none without messages', async (t) => {
  const text = (value: string) => [{ type: 'text', text: value, cache_control: { type: 'ephemeral' } }]
  const haiku = { messages: [{ role: 'user', content: text('Write a haiku.') }] }
  const alone = sent('chat', { messages: [{ role: 'system', content: 'Write a haiku.' }] })
  t.match(alone, haiku)
  t.notOk('system' in alone)
  t.match(sent('responses', { instructions: 'Write a haiku.', input: '' }), haiku)
  t.match(sent('chat', { messages: [{ role: 'system', content: 'Be brief.' }, { role: 'developer', content: 'Write a haiku.' }] }), { system: text('Be brief.'), ...haiku })
})

t.test('effort becomes a budget of thinking, where the wire takes it', async (t) => {
  for (const [effort, budget] of [['minimal', 1024], ['low', 2048], ['medium', 8192], ['high', 16_384], ['xhigh', 20_000]] as const) {
    const body = sent('responses', { reasoning: { effort }, temperature: 0 })
    t.match(body, { thinking: { type: 'enabled', budget_tokens: budget } }, effort)
    t.notOk('temperature' in body, 'no temperature beside thinking')
  }
  t.strictSame(sent('chat', { reasoning_effort: 'none' }).thinking, { type: 'disabled' })
  t.equal(sent('chat').thinking, undefined, "the upstream's default")
  t.equal(sent('chat', { reasoning_effort: 'high' }, 1500).thinking, undefined, 'no room for a budget')
  t.equal(sent('chat', { reasoning_effort: 'high', tool_choice: 'required' }).thinking, undefined, 'the wire refuses it with a forced call')
  const call = { role: 'assistant', tool_calls: [{ id: 'c', type: 'function', function: { name: 'read', arguments: '' } }] }
  t.equal(sent('chat', { reasoning_effort: 'high', messages: [call, { role: 'tool', tool_call_id: 'c', content: 'x' }] }).thinking, undefined, 'calls whose thinking is lost')
})

t.test('what the wire cannot carry is refused by its name, and only when no other wire is there', async (t) => {
  const cases: [Client, object, string][] = [
    ['responses', { tools: [{ type: 'local_shell' }] }, 'tools[0]'],
    ['responses', { tools: [...TOOLS, { type: 'apply_patch' }] }, 'tools[3]'],
    ['responses', { input: [{ role: 'user', content: 'Hi' }, { type: 'additional_tools', role: 'developer', tools: [{ type: 'local_shell' }] }] }, 'tools[3]'],
    ['responses', { input: [{ type: 'compaction', encrypted_content: 'x' }] }, 'input[0]'],
    ['responses', { input: [{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }] }, 'input[0].content[0]'],
    ['responses', { input: [{ role: 'user', content: [{ type: 'input_file', file_data: 'data:image/png;base64,AA' }] }] }, 'input[0].content[0].file_data'],
    ['responses', { top_logprobs: 2 }, 'top_logprobs'],
    ['responses', { text: { format: { type: 'json_object' } } }, 'text.format'],
    ['chat', { response_format: { type: 'json_object' } }, 'response_format'],
    ['chat', { logprobs: true }, 'logprobs'],
    ['chat', { presence_penalty: 1 }, 'presence_penalty'],
    ['chat', { n: 2 }, 'n'],
  ]
  for (const [client, more, param] of cases) {
    t.throws(() => callOf(client, more), { code: 'unsupported_parameter', facts: { param } }, param)
    t.match(callOf(client, more, [client, 'messages']), { wire: client, translated: null })
  }
  t.throws(() => callOf('responses', { tools: [{ type: 'shell', environment: { type: 'local' } }] }, ['chat']), { code: 'unsupported_parameter', facts: { param: 'tools[0]' } }, 'nor over chat')
  t.match(callOf('responses', {}, ['responses', 'chat', 'messages']), { wire: 'responses', translated: { wire: 'chat', translated: { wire: 'messages', translated: null } } })
})

t.test('answers in JSON and in events are whole and say the same', async (t) => {
  const expected = [
    { type: 'reasoning', content: [{ type: 'reasoning_text', text: 'I look.' }], encrypted_content: /^enc[a-z]{4}_/ },
    { type: 'reasoning', encrypted_content: /^enc[a-z]{4}_/ },
    { type: 'message', content: [{ type: 'output_text', text: 'Grüße an 😀.' }] },
    { type: 'function_call', status: 'completed', call_id: /^call_/, name: 'read', arguments: '{"path":"a.txt"}' },
    { type: 'custom_tool_call', name: 'patch', input: 'x "y"' },
  ]
  const usage = { input_tokens: 20, input_tokens_details: { cached_tokens: 8 }, output_tokens: 5, total_tokens: 25 }
  const answer = json('responses', messageAnswer(BLOCKS, 'tool_use'))
  const last = TERMINAL.responses(whole('responses', messagesStream(BLOCKS, 'tool_use')))
  t.match(answer, { status: 'completed', model: 'svc-code', output: expected, usage })
  t.match(last, { type: 'response.completed', response: { output: expected, usage } })
  t.strictSame(last.response.output.map((item: Loose) => item.encrypted_content), answer.output.map((item: Loose) => item.encrypted_content))
  const chat = json('chat', messageAnswer([THINKING, { type: 'text', text: 'Hi' }, CALL], 'tool_use'))
  t.match(chat, { choices: [{ finish_reason: 'tool_calls', message: { content: 'Hi', reasoning_content: 'I look.', tool_calls: [{ function: { name: 'read', arguments: '{"path":"a.txt"}' } }] } }], usage: { prompt_tokens: 20, completion_tokens: 5 } })
  t.match(assembled(whole('chat', messagesStream([THINKING, CALL], 'tool_use'))), { reasoning_content: 'I look.', calls: [{ text: '{"path":"a.txt"}' }], reasons: ['tool_calls'], usage: { prompt_tokens: 20 } })
})

t.test('every answer matches the published schemas', async (t) => {
  const validate = openaiSchemas(t)
  if (!validate) return
  validate('Response', json('responses', messageAnswer(BLOCKS, 'tool_use')))
  validate('CreateChatCompletionResponse', json('chat', messageAnswer(BLOCKS, 'tool_use')))
  for (const event of dataOf(whole('responses', messagesStream(BLOCKS)))) validate('ResponseStreamEvent', event)
  for (const chunk of dataOf(whole('chat', messagesStream(BLOCKS))).slice(0, -1)) validate('CreateChatCompletionStreamResponse', chunk)
})

t.test('each stop reason is told, an unknown one never as success', async (t) => {
  const cases = [['end_turn', 'completed', null, 'stop'], ['stop_sequence', 'completed', null, 'stop'], ['max_tokens', 'incomplete', 'max_output_tokens', 'length'], ['model_context_window_exceeded', 'incomplete', 'max_output_tokens', 'length'], ['refusal', 'incomplete', 'content_filter', 'content_filter'], ['other', 'incomplete', 'max_output_tokens', 'length']] as const
  for (const [reason, status, details, finish] of cases) {
    const text = messagesStream([{ type: 'text', text: 'Hi' }], reason)
    t.match(TERMINAL.responses(whole('responses', text)).response, { status, incomplete_details: details && { reason: details } }, reason)
    t.match(assembled(whole('chat', text)).reasons, [finish])
  }
})

t.test('thinking comes back to its upstream as it was, and goes to no other one', async (t) => {
  const answer = json('responses', messageAnswer(BLOCKS, 'tool_use'))
  const replay = { reasoning: { effort: 'low' }, input: [{ role: 'user', content: 'Hi' }, ...answer.output, { type: 'function_call_output', call_id: answer.output[3].call_id, output: 'x' }] }
  const body = sent('responses', replay)
  t.strictSame(body.messages[1].content.slice(0, 3), BLOCKS.slice(0, 3))
  t.match(body.messages[1].content[3], { id: `toolu_${VENDOR}_1`, input: { path: 'a.txt' } })
  t.match(body.messages[2].content[0], { tool_use_id: `toolu_${VENDOR}_1` })
  t.match(body.thinking, { type: 'enabled' })
  for (const wire of ['responses', 'chat'] as const) t.notOk(callOf('responses', structuredClone(replay), [wire]).body(TARGET).includes(SIGNATURE), wire)
  const { message } = json('chat', messageAnswer([THINKING, CALL], 'tool_use')).choices[0]
  const chat = { reasoning_effort: 'low', messages: [{ role: 'user', content: 'Hi' }, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'x' }] }
  t.strictSame(sent('chat', structuredClone(chat)).messages[1].content, [THINKING, CALL])
  t.notOk(callOf('chat', structuredClone(chat), ['responses']).body(TARGET).includes(SIGNATURE))
})

t.test('a stream is equal wherever its bytes are split, and nothing of the vendor passes', async (t) => {
  for (const client of CLIENTS) {
    for (const [text, step] of [[messagesStream(BLOCKS), 11], [messagesStream(BLOCKS).replaceAll('\n', '\r\n'), 19], [messagesStream(BLOCKS).slice(0, -200), 19]] as const) {
      const bytes = Buffer.from(text)
      const expected = whole(client, text)
      let different = 0
      for (let at = 0; at <= bytes.length; at += step)
        if (rewrite(callOf(client, { stream: true }).openRewriter(), [bytes.subarray(0, at), bytes.subarray(at)]) !== expected) different++
      t.equal(rewrite(callOf(client, { stream: true }).openRewriter(), [...bytes].map((byte) => Buffer.of(byte))), expected, 'byte by byte')
      t.equal(different, 0, client)
      t.notOk(expected.toLowerCase().includes(VENDOR))
    }
    t.notOk(JSON.stringify(json(client, messageAnswer(BLOCKS))).includes(VENDOR))
  }
})

t.test('failures and streams of careless servers', async (t) => {
  const error = { type: 'error', error: { type: 'overloaded_error', message: VENDOR } }
  const started = messagesStream([{ type: 'text', text: 'Hi' }]).split('event: content_block_stop')[0] ?? ''
  for (const client of CLIENTS) {
    t.throws(() => json(client, error))
    t.throws(() => json(client, { id: 'x' }))
    for (const text of [started, started + messageEvent('error', error), messageEvent('error', error)]) {
      const last = dataOf(whole(client, text)).at(-1)
      t.match(last, client === 'chat' ? { error: { code: 'server_overloaded' } } : { type: 'response.failed' })
    }
  }
  const unstarted = messageEvent('message_start', { message: messageAnswer([]) }) + messageEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Hi' } })
  t.match(assembled(whole('chat', unstarted + messageEvent('message_delta', { delta: { stop_reason: 'end_turn' } }) + messageEvent('message_stop'))), { content: 'Hi', usage: { prompt_tokens: ESTIMATE.input, completion_tokens: ESTIMATE.output } }, 'the output that a stream begins with is no report')
})

t.test('a gateway over a Messages upstream answers both clients and settles the usage with the cached tokens', async (t) => {
  const upstream = await openUpstream()
  t.teardown(() => upstream.close())
  const gateway = await openGateway(t, { declared: [{ name: 'one', baseUrl: upstream.url, model: `${VENDOR}-large`, wire: ['messages'], apiKey: 'secret' }] })
  const bodies = { chat: ['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }], responses: ['/v1/responses', { input: 'Hi' }] } as const
  for (const client of CLIENTS) {
    for (const stream of [false, true]) {
      upstream.respondWith(stream ? streams(messagesStream([{ type: 'text', text: 'Hi' }])) : (response) => respond(response, 200, messageAnswer([{ type: 'text', text: 'Hi' }])))
      const [path, body] = bodies[client]
      const answer = await fetch(gateway.url + path, { method: 'POST', headers: { 'content-type': 'application/json', authorization: 'Bearer k' }, body: JSON.stringify({ model: 'svc-code', stream, ...body }) })
      t.equal(answer.status, 200)
      const text = await answer.text()
      t.ok(text.includes('Hi') && !text.includes(VENDOR))
      t.match(await gateway.settled(), { usage: { input: 12 + 8, cachedInput: 8, output: MESSAGE_USAGE.output_tokens }, estimated: false })
      const request = upstream.requests.at(-1)
      t.match(request, { path: '/v1/messages', headers: { 'x-api-key': 'secret', 'anthropic-version': '2023-06-01' } })
    }
  }
  upstream.respondWith((response) => respond(response, 400, { type: 'error', error: { type: 'invalid_request_error', message: 'prompt is too long: 9 tokens' } }))
  const refused = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }] }) })
  t.match([refused.status, await refused.json()], [400, { error: { code: 'context_length_exceeded' } }])
})
