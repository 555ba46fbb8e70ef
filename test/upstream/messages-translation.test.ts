/** The Messages wire over upstreams of the Responses and the chat wire: requests, answers and streams, without a server. */
import t from 'tap'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import type { UpstreamCall, WireName } from '../../src/upstream/wires/wire.ts'
import { chunk, delta, DONE, message, response, responsesStream, USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import type { Loose } from './gateway.ts'
import { assembledMessage as assembled, eventsOf } from './message-events.ts'
import { checkMessagesJson, checkMessagesStream, valid } from './messages-schemas.ts'
import { ESTIMATE, openRequestIds, randomOf, rewrite } from './translation.ts'

const ids = openRequestIds()

const TARGET = { origin: 'one', model: 'big', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const HI = [{ role: 'user', content: 'Hi' }]

function callOf(wire: WireName, more: object = {}): UpstreamCall {
  return readMessagesRequest({ model: 'svc-code', max_tokens: 100, messages: HI, ...more }, new Set(), { betas: [], promptTokens: () => 9 }).call(4096, ids, () => 1000, [wire])
}
const sent = (wire: WireName, more: object): Loose => JSON.parse(callOf(wire, more).body(TARGET))
const stream = (wire: WireName, text: string, more: object = {}) => valid(checkMessagesStream, rewrite(callOf(wire, more).openRewriter(), [Buffer.from(text)]))
const whole = (wire: WireName, answer: object, more: object = {}): Loose => valid(checkMessagesJson, JSON.parse(callOf(wire, more).rewriteJson(answer).body(ESTIMATE)))
const chat = (...deltas: object[]) => [...deltas.map((one) => chunk([delta(one)])), chunk([delta({}, 'stop')]), chunk([], { usage: USAGE }), DONE].join('')
const call = (index: number, id: string, name: string, text: string) => ({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: text } }] })
const more = (index: number, text: string) => ({ tool_calls: [{ index, function: { arguments: text } }] })

t.test('a request becomes a request of the Responses wire', async (t) => {
  const body = sent('responses', {
    system: [{ type: 'text', text: 'x-anthropic-billing-header: cch=1;' }, { type: 'text', text: 'Be short.', cache_control: { type: 'ephemeral' } }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Look' }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }] },
      { role: 'assistant', content: [{ type: 'text', text: 'I read.' }, { type: 'tool_use', id: 'toolu_1', name: 'read', input: { a: 1 } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: true, content: 'gone' }, { type: 'text', text: 'Go on' }] },
      { role: 'system', content: 'Hurry.' },
    ],
    tools: [{ name: 'read', description: 'Reads', input_schema: { type: 'object' } }, { type: 'bash_20250124', name: 'bash' }, { type: 'code_execution_20250825', name: 'code' }],
    tool_choice: { type: 'any', disable_parallel_tool_use: true },
    thinking: { type: 'enabled', budget_tokens: 10_000 },
    output_config: { format: { type: 'json_schema', schema: { type: 'object' } } },
    metadata: { user_id: 'person' },
    context_management: { edits: [] },
    unknown: 1,
  })
  t.match(body, {
    model: 'big',
    instructions: /^Be short\.$/,
    max_output_tokens: 100,
    store: false,
    tool_choice: 'required',
    parallel_tool_calls: false,
    reasoning: { effort: 'medium', summary: 'auto' },
    include: ['reasoning.encrypted_content'],
    text: { format: { type: 'json_schema', schema: { type: 'object' } } },
  })
  t.same(body.input, [
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Look' }, { type: 'input_image', image_url: 'data:image/png;base64,AAAA', detail: 'auto' }] },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I read.' }] },
    { type: 'function_call', call_id: 'toolu_1', name: 'read', arguments: '{"a":1}' },
    { type: 'function_call_output', call_id: 'toolu_1', output: 'Error: gone' },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Go on' }] },
    { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'Hurry.' }] },
  ])
  t.match(body.tools, [{ type: 'function', name: 'read', strict: false }, { type: 'function', name: 'bash', strict: false }])
  t.equal(body.tools.length, 2, 'a hosted tool without an equivalent is left out')
  t.not(body.user, 'person')
  for (const name of ['unknown', 'context_management', 'metadata']) t.notOk(name in body, name)
})

t.test('a request becomes a request of the chat wire, through the Responses wire', async (t) => {
  const body = sent('chat', { system: 'Be short.', tools: [{ name: 'read', input_schema: { type: 'object' } }], tool_choice: { type: 'tool', name: 'read' } })
  t.match(body, { model: 'big', max_completion_tokens: 100, tool_choice: { type: 'function', function: { name: 'read' } } })
  t.same(body.messages, [{ role: 'system', content: 'Be short.' }, { role: 'user', content: 'Hi' }])
})

t.test('a faulty request is refused with the place of its fault', async (t) => {
  const cases: [object, string][] = [
    [{ max_tokens: undefined }, 'max_tokens'],
    [{ max_tokens: -2 }, 'max_tokens'],
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'tool', content: 'a' }] }, 'messages[0].role'],
    [{ messages: [{ role: 'user' }] }, 'messages[0].content'],
    [{ messages: [{ role: 'user', content: [{ type: 'tool_result', content: 'a' }] }] }, 'messages[0].content[0].tool_use_id'],
    [{ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: 'f' } }] }] }, 'messages[0].content[0].source.file_id'],
    [{ messages: [{ role: 'user', content: [{ type: 'container_upload', file_id: 'f' }] }] }, 'messages[0].content[0].type'],
    [{ tools: [{ name: 'a' }] }, 'tools[0].input_schema'],
    [{ stop_sequences: ['x'.repeat(257)] }, 'stop_sequences'],
    [{ stream: 1 }, 'stream'],
  ]
  for (const [fault, param] of cases) t.throws(() => callOf('chat', fault), { code: 'invalid_request', facts: { param } }, param)
  t.throws(() => callOf('chat', { tools: [{ type: 'browser_toolset_20260801' }] }), { code: 'unsupported_parameter', facts: { param: 'tools[0]' } }, 'a tool of the client without an equivalent')
})

t.test('a limit of tokens is one that the upstream takes; none at all is refused', async (t) => {
  t.match(sent('responses', { max_tokens: 1 }), { max_output_tokens: 16 })
  t.match(sent('responses', { max_tokens: 17 }), { max_output_tokens: 17 })
  t.match(sent('chat', { max_tokens: 1 }), { max_completion_tokens: 1 })
  for (const wire of ['chat', 'responses'] as const) t.throws(() => callOf(wire, { max_tokens: 0 }), { code: 'unsupported_parameter', facts: { param: 'max_tokens' } })
})

t.test('addresses of images and documents keep their place in the request', async (t) => {
  const content = [{ type: 'text', text: 'a' }, { type: 'image', source: { type: 'url', url: 'http://a.test/b.png' } }, { type: 'document', source: { type: 'url', url: 'http://a.test/c.pdf' } }]
  const { addresses } = readMessagesRequest({ model: 'svc-code', max_tokens: 1, messages: [{ role: 'user', content }] }, new Set(), { betas: [], promptTokens: () => 1 })
  t.match(addresses, [
    { url: 'http://a.test/b.png', kind: 'image', param: 'messages[0].content[1].source.url' },
    { url: 'http://a.test/c.pdf', kind: 'file', param: 'messages[0].content[2].source.url' },
  ])
})

const INTERLEAVED = chat({ role: 'assistant', content: '' }, { content: 'One ' }, { content: 'é日😀' }, call(0, 'a', 'read', '{"x":'), call(1, 'b', 'list', '{"y"'), more(0, '1}'), more(1, ':2}'))

t.test('a stream has its blocks in order, one open at a time, and the usage of the upstream at its end', async (t) => {
  const events = eventsOf(stream('chat', INTERLEAVED))
  t.equal(events[0]?.message.usage.input_tokens, 9, 'the estimate of the prompt')
  t.match(assembled(events), {
    model: 'svc-code',
    stop_reason: 'tool_use',
    content: [{ type: 'text', text: 'One é日😀' }, { type: 'tool_use', name: 'read', input: { x: 1 } }, { type: 'tool_use', name: 'list', input: { y: 2 } }],
    usage: { output_tokens: USAGE.completion_tokens },
  })
  const { usage } = assembled(events)
  t.equal(usage.input_tokens + usage.cache_read_input_tokens, USAGE.prompt_tokens, 'cached tokens are counted apart')
})

t.test('a stream is the same for every way in which the bytes of the upstream are split', async (t) => {
  for (const [wire, text] of [['chat', INTERLEAVED], ['responses', responsesStream('One ', 'é日😀', ' two').join('')]] as const) {
    const bytes = Buffer.from(text)
    const expected = stream(wire, text)
    t.notOk(expected.includes(VENDOR))
    for (let at = 1; at < bytes.length; at += 3)
      if (rewrite(callOf(wire).openRewriter(), [bytes.subarray(0, at), bytes.subarray(at)]) !== expected) t.fail(`${wire}, split at ${at}`)
    const random = randomOf(7)
    const pieces: Buffer[] = []
    for (let at = 0; at < bytes.length; ) pieces.push(bytes.subarray(at, (at += 1 + Math.floor(random() * 5))))
    t.equal(rewrite(callOf(wire).openRewriter(), pieces), expected)
  }
})

t.test('a tool call without text before it has no empty text block', async (t) => {
  const { content } = assembled(eventsOf(stream('chat', chat({ role: 'assistant', content: '' }, call(0, 'a', 'now', '')))))
  t.match(content, [{ type: 'tool_use', name: 'now', input: {} }])
  t.equal(content.length, 1)
})

t.test('thinking is signed, and its replay reaches the upstream as it was', async (t) => {
  const text = chat({ role: 'assistant', reasoning_content: 'Let me ' }, { reasoning_content: 'see.' }, call(0, 'a', 'read', '{}'))
  const events = eventsOf(stream('chat', text, { thinking: { type: 'adaptive' } }))
  const { content } = assembled(events)
  t.match(content, [{ type: 'thinking', thinking: 'Let me see.', signature: /./ }, { type: 'tool_use' }])
  const signed = events.findIndex((event) => event.delta?.type === 'signature_delta')
  t.equal(events[signed + 1]?.type, 'content_block_stop', 'the signature is the last delta')
  const result = { type: 'tool_result', tool_use_id: content[1].id, content: 'ok' }
  const replayed = sent('chat', { messages: [...HI, { role: 'assistant', content }, { role: 'user', content: [result] }] })
  t.match(replayed.messages[1], { role: 'assistant', reasoning_content: 'Let me see.', tool_calls: [{ id: 'a' }] })
  t.match(replayed.messages[2], { role: 'tool', tool_call_id: 'a' })
  const foreign = sent('responses', { messages: [...HI, { role: 'assistant', content: [{ type: 'thinking', thinking: 'x', signature: 'EqQBCgIYAhIM' }, { type: 'text', text: 'y' }] }, ...HI] })
  t.notOk(foreign.input.some(({ type }: Loose) => type === 'reasoning'), 'that of another service is left out')
})

t.test('omitted thinking has its signature alone, and comes back to the model', async (t) => {
  const omitted = { thinking: { type: 'adaptive', display: 'omitted' } }
  t.same(sent('responses', omitted).reasoning, {}, 'no summary is asked for')
  const text = chat({ role: 'assistant', reasoning_content: 'Let me ' }, { reasoning_content: 'see.' }, call(0, 'a', 'read', '{}'))
  const events = eventsOf(stream('chat', text, omitted))
  t.strictSame(events.flatMap(({ delta: one }) => one?.type ?? []), ['signature_delta', 'input_json_delta'])
  const answer = { id: 'x', created: 5, usage: USAGE, choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: null, reasoning_content: 'Let me see.', tool_calls: [{ id: 'a', type: 'function', function: { name: 'read', arguments: '{}' } }] } }] }
  for (const { content } of [assembled(events), whole('chat', answer, omitted)]) {
    t.match(content, [{ type: 'thinking', thinking: '', signature: /./ }, { type: 'tool_use' }])
    const messages = [...HI, { role: 'assistant', content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: content[1].id, content: 'ok' }] }]
    t.match(sent('chat', { messages }).messages[1], { reasoning_content: 'Let me see.', tool_calls: [{ id: 'a' }] })
  }
})

t.test('an effort in a system message holds from the message of the user that it follows or, elsewhere, from the next one', async (t) => {
  const low = { role: 'system', content: [], output_config: { effort: 'low' } }
  const answer = { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'read', input: {} }] }
  const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'ok' }] }
  const cases: [object[], string][] = [
    [[...HI], 'high'],
    [[...HI, low], 'low'],
    [[...HI, low, answer, result], 'low'],
    [[...HI, answer, low, result], 'high'],
    [[...HI, answer, result, low], 'high'],
    [[...HI, answer, result, low, ...HI], 'low'],
    [[...HI, low, { role: 'system', content: 'Hurry.' }, answer, { role: 'system', output_config: { effort: 'medium' } }, ...HI], 'medium'],
    [[...HI, { role: 'system', content: 'Hurry.', output_config: { effort: null } }], 'high'],
  ]
  for (const [messages, effort] of cases) {
    const asked = { messages, output_config: { effort: 'high' }, thinking: { type: 'adaptive' } }
    t.equal(sent('responses', structuredClone(asked)).reasoning.effort, effort, JSON.stringify(messages))
    t.equal(sent('chat', asked).reasoning_effort, effort)
  }
})

t.test('what a model thought before its calls comes back to it, sealed, from a client that asked for no thinking', async (t) => {
  const called = { id: 'a', type: 'function', function: { name: 'read', arguments: '{}' } }
  const answer = (message: object) => ({ id: 'x', created: 5, usage: USAGE, choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: null, ...message } }] })
  const thought = { reasoning_content: 'Let me see.' }
  const streamed = (...deltas: object[]) => assembled(eventsOf(stream('chat', chat({ role: 'assistant', reasoning_content: 'Let me ' }, { reasoning_content: 'see.' }, ...deltas)))).content
  for (const content of [whole('chat', answer({ ...thought, tool_calls: [called] })).content, streamed(call(0, 'a', 'read', '{}'))]) {
    t.strictSame(content.map(({ type }: Loose) => type), ['redacted_thinking', 'tool_use'])
    t.notOk(JSON.stringify(content).includes('Let me'))
    const messages = [...HI, { role: 'assistant', content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: content[1].id, content: 'ok' }] }]
    t.match(sent('chat', { messages: structuredClone(messages) }).messages[1], { role: 'assistant', reasoning_content: 'Let me see.', tool_calls: [{ id: 'a' }] })
    for (const wire of ['responses', 'messages'] as const) t.notMatch(JSON.stringify(sent(wire, { messages: structuredClone(messages) })), /sealed_|redacted/, `not to an upstream of ${wire}`)
  }
  for (const content of [whole('chat', answer({ ...thought, content: 'I look.', tool_calls: [called] })).content, streamed({ content: 'I look.' }, call(0, 'a', 'read', '{}'))])
    t.strictSame(content.map(({ type }: Loose) => type), ['text', 'redacted_thinking', 'tool_use'], 'text comes first')
  for (const content of [whole('chat', answer({ ...thought, content: 'Hi' })).content, streamed({ content: 'Hi' })]) t.match(content, { length: 1, 0: { type: 'text' } }, 'an answer without calls has its text alone')
})

t.test('a stop sequence ends the answer, is named, and nothing follows it', async (t) => {
  const text = chat({ content: 'one ST' }, { content: 'OP two' })
  const events = eventsOf(stream('chat', text, { stop_sequences: ['never', 'STOP'] }))
  t.match(assembled(events), { content: [{ text: 'one ' }], stop_reason: 'stop_sequence', stop_sequence: 'STOP', usage: { output_tokens: USAGE.completion_tokens } })
  const held = assembled(eventsOf(stream('chat', chat({ content: 'one ST' }), { stop_sequences: ['STOP'] })))
  t.match(held, { content: [{ text: 'one ST' }], stop_reason: 'end_turn' })
})

t.test('an answer as JSON is the message of its stream', async (t) => {
  const answer = {
    id: 'chatcmpl-1', created: 5, usage: USAGE,
    choices: [{ index: 0, finish_reason: 'tool_calls', message: { role: 'assistant', content: 'Hi', tool_calls: [{ id: 'a', type: 'function', function: { name: 'read', arguments: '{"x":1}' } }] } }],
  }
  const streamed = assembled(eventsOf(stream('chat', chat({ content: 'Hi' }, call(0, 'a', 'read', '{"x":1}')))))
  t.same({ ...whole('chat', answer), id: '' }, { ...streamed, id: '' })
})

t.test('tools that a conversation adds and takes away, and system messages that are over or only change settings', async (t) => {
  const define = (name: string) => ({ type: 'tool_addition', tool: { type: 'tool_definition', definition: { name, input_schema: { type: 'object' } } } })
  const refer = (type: string, name: string) => ({ type, tool: { type: 'tool_reference', name } })
  const request = {
    tools: ['first', 'second', 'third'].map((name) => ({ name, input_schema: { type: 'object' } })),
    messages: [
      ...HI,
      { role: 'system', content: [{ type: 'text', text: 'For now.' }], clear_at: 'next_user_message' },
      { role: 'system', content: [define('fourth'), define('fifth'), refer('tool_removal', 'first'), refer('tool_removal', 'second')] },
      ...HI,
      { role: 'system', content: [{ type: 'text', text: 'Stay brief.' }, refer('tool_addition', 'second'), refer('tool_removal', 'fourth')], clear_at: 'next_user_message' },
      { role: 'system', output_config: { effort: 'low' } },
      { role: 'system', content: [], output_config: { effort: 'high' } },
    ],
  }
  for (const wire of ['responses', 'chat'] as const) {
    const body = sent(wire, request)
    t.same(body.tools.map((tool: Loose) => (tool.function ?? tool).name), ['second', 'third', 'fifth'], wire)
    const text = JSON.stringify(body.input ?? body.messages)
    t.notOk(text.includes('For now.') || text.includes('tool_addition'))
    t.ok(text.includes('Stay brief.'))
  }
  t.same(sent('messages', request).messages, request.messages, 'natively as they are')
  const hosted = { role: 'system', content: [{ type: 'tool_addition', tool: { type: 'tool_definition', definition: { type: 'web_search_20250305', name: 'web_search' } } }] }
  t.throws(() => callOf('messages', { messages: [...HI, hosted] }), { message: /must be a tool that the client runs/ })
  const adding = (tool: object) => ({ messages: [...HI, { role: 'system', content: [{ type: 'tool_addition', tool }] }] })
  const search = { type: 'web_search_20250305', name: 'web_search' }
  for (const tool of [search, { type: 'tool_definition', Definition: search }]) t.throws(() => callOf('messages', adding(tool)), { code: 'invalid_request', message: /\.tool must be a tool_reference/ })
  const plain = { type: 'tool_definition', definition: { name: 'read', input_schema: { type: 'object' } } }
  const disguised = { ...plain, Definition: search, definition: { ...plain.definition, Type: search.type } }
  t.same(sent('messages', adding(disguised)).messages, adding(plain).messages, 'names in another case are left out')
})

t.test('tools that are loaded later go along once a search of the client has found them, and all where the server was to search', async (t) => {
  const tool = (name: string, more: object = {}) => ({ name, input_schema: { type: 'object' }, ...more })
  const tools = [tool('search'), ...['first', 'second', 'third'].map((name) => tool(name, { defer_loading: true }))]
  const named = (more: object): string[] => (sent('responses', { tools, ...more }).tools ?? []).map(({ name }: Loose) => name)
  const call = { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'search', input: {} }] }
  const result = (...content: object[]) => ({ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content }] })
  t.same(named({}), ['search'])
  const searched = [...HI, call, result({ type: 'tool_reference', tool_name: 'second' }, { type: 'tool_reference', tool_name: 'third' })]
  t.match(sent('chat', { tools, messages: searched }).messages.at(-1), { role: 'tool', content: 'Tool available: second\nTool available: third' })
  t.same(named({ messages: [...HI, call, result({ type: 'tool_reference', tool_name: 'second' })] }), ['search', 'second'])
  t.same(named({ messages: [...HI, { role: 'system', content: [{ type: 'tool_addition', tool: { type: 'tool_reference', name: 'third' } }] }] }), ['search', 'third'])
  t.same(named({ tool_choice: { type: 'tool', name: 'first' } }), ['search', 'first'])
  t.same(named({ tools: [...tools.slice(1), { type: 'tool_search_tool_bm25_20251119', name: 'tool_search_tool_bm25' }] }), ['first', 'second', 'third'])
})

t.test('each answer has an id of its own, also where the upstream repeats its id', async (t) => {
  const answer = response('completed', [message('Hi')])
  const fresh = () => ({ ...ids, fresh: (prefix: string) => `${prefix}${++given}` })
  let given = 0
  const call = () => readMessagesRequest({ model: 'svc-code', max_tokens: 9, messages: HI }, new Set(), { betas: [], promptTokens: () => 9 }).call(99, fresh(), () => 1, ['responses'])
  const idOf = () => JSON.parse(call().rewriteJson(answer).body(ESTIMATE)).id
  const streamedId = () => eventsOf(rewrite(call().openRewriter(), [Buffer.from(responsesStream('Hi').join(''))]))[0]?.message.id
  t.equal(new Set([idOf(), idOf(), streamedId(), streamedId()]).size, 4)
})

t.test('each end of an answer has its reason', async (t) => {
  const reasonOf = (finish: string, message: object = { content: 'a' }) =>
    whole('chat', { id: 'a', usage: USAGE, choices: [{ index: 0, finish_reason: finish, message: { role: 'assistant', ...message } }] }).stop_reason
  t.equal(reasonOf('stop'), 'end_turn')
  t.equal(reasonOf('length'), 'max_tokens')
  t.equal(reasonOf('content_filter'), 'refusal')
  t.equal(reasonOf('stop', { content: null, refusal: 'No.' }), 'refusal')
})

t.test('a stream that the upstream breaks off ends with an error event', async (t) => {
  const text = stream('chat', chunk([delta({ content: 'a' })]))
  t.match(text, /event: error\ndata: \{"type":"error","error":\{"type":"overloaded_error"/)
  t.notMatch(text, /message_stop/)
})
