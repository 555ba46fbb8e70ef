/** Requests that are sent over the other wire: each member by its equivalent, and a clear failure for those without one. */
import t from 'tap'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { sealCallId, sealReasoning, sealedDetail } from '../../src/upstream/wires/sealed-members.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import type { Loose } from './gateway.ts'

const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
/** Allows everything that a request may name. */
const ALLOW = new Set(['prompt', 'item_reference', 'file_id'])
const TARGET = { origin: 'one', model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }

/** The body that an upstream of the other wire gets, without its model and limit. */
function sent(client: WireName, more: object): Loose {
  const request =
    client === 'chat'
      ? readChatRequest({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }], ...more }, ALLOW)
      : readResponsesRequest({ model: 'svc-code', input: 'Hi', ...more }, ALLOW)
  const call = request.call(100, ids, () => 1000, [client === 'chat' ? 'responses' : 'chat'])
  t.not(call.wire, client)
  const { model, max_completion_tokens: completion, max_output_tokens: output, ...body } = JSON.parse(call.body(TARGET))
  t.equal(model, 'm')
  t.equal(completion ?? output, 100)
  return body
}

const USER = [{ role: 'user', content: 'Hi' }]
const IMAGE = 'data:image/png;base64,AAAA'
const SCHEMA = { type: 'object', properties: { a: { type: 'string' } } }

t.test('members of a Responses request get their equivalents on the chat wire', async (t) => {
  const cases: [string, object, object][] = [
    ['text', {}, { messages: USER }],
    ['instructions', { instructions: 'Be brief' }, { messages: [{ role: 'system', content: 'Be brief' }, ...USER] }],
    [
      'developer messages',
      { instructions: 'A', input: [{ role: 'developer', content: [{ type: 'input_text', text: 'B' }] }, { role: 'user', content: 'Hi' }, { role: 'developer', content: 'C' }] },
      { messages: [{ role: 'system', content: 'A\n\nB' }, ...USER, { role: 'user', content: 'C' }] },
    ],
    [
      'images and files',
      { input: [{ role: 'user', content: [{ type: 'input_text', text: 'See' }, { type: 'input_image', image_url: IMAGE, detail: 'high' }, { type: 'input_file', file_data: 'data:text/plain;base64,QQ==', filename: 'a.txt' }] }] },
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'See' }, { type: 'image_url', image_url: { url: IMAGE, detail: 'high' } }, { type: 'file', file: { file_data: 'data:text/plain;base64,QQ==', filename: 'a.txt' } }] }] },
    ],
    ['reasoning and verbosity', { reasoning: { effort: 'high', summary: 'auto' }, text: { verbosity: 'low' } }, { messages: USER, reasoning_effort: 'high', verbosity: 'low' }],
    [
      'a JSON schema',
      { text: { format: { type: 'json_schema', name: 'a', schema: SCHEMA, strict: true } } },
      { messages: USER, response_format: { type: 'json_schema', json_schema: { name: 'a', schema: SCHEMA, strict: true } } },
    ],
    ['a JSON object', { text: { format: { type: 'json_object' } } }, { messages: USER, response_format: { type: 'json_object' } }],
    ['plain text', { text: { format: { type: 'text' } } }, { messages: USER }],
    ['logprobs', { include: ['message.output_text.logprobs'], top_logprobs: 3 }, { messages: USER, logprobs: true, top_logprobs: 3 }],
    ['sampling', { temperature: 0.5, top_p: 0.9, store: true, truncation: 'auto', max_tool_calls: 3 }, { messages: USER, temperature: 0.5, top_p: 0.9 }],
    ['a stream', { stream: true }, { messages: USER, stream: true, stream_options: { include_usage: true } }],
    [
      'functions',
      { tools: [{ type: 'function', name: 'f', description: 'D', parameters: SCHEMA, strict: true }], tool_choice: { type: 'function', name: 'f' }, parallel_tool_calls: false },
      { messages: USER, tools: [{ type: 'function', function: { name: 'f', description: 'D', parameters: SCHEMA, strict: true } }], tool_choice: { type: 'function', function: { name: 'f' } }, parallel_tool_calls: false },
    ],
    [
      'allowed tools',
      { tools: [{ type: 'function', name: 'f' }, { type: 'function', name: 'g' }], tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'g' }] } },
      { messages: USER, tools: [{ type: 'function', function: { name: 'g', parameters: { type: 'object', properties: {} } } }], tool_choice: 'required' },
    ],
    [
      'namespaced tools; hosted tools are left out',
      { tools: [{ type: 'namespace', name: 'files', description: 'D', tools: [{ type: 'function', name: 'read', parameters: SCHEMA }] }, { type: 'web_search' }], tool_choice: 'auto' },
      { messages: USER, tools: [{ type: 'function', function: { name: 'files__read', parameters: SCHEMA } }], tool_choice: 'auto' },
    ],
    ['hosted tools alone', { tools: [{ type: 'web_search' }], tool_choice: 'auto', parallel_tool_calls: true }, { messages: USER }],
  ]
  for (const [name, more, expected] of cases) t.same(sent('responses', more), expected, name)
})

t.test('a custom tool is a function with one text parameter', async (t) => {
  const [tool] = sent('responses', { tools: [{ type: 'custom', name: 'patch', description: 'Edits', format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } }] }).tools
  t.match(tool, { type: 'function', function: { name: 'patch', parameters: { properties: { input: { type: 'string' } }, required: ['input'] } } })
  t.match(tool.function.description, /^Edits\n\n.*lark.*start: "x"/s)
})

t.test('tools that an item of the input brings are offered like all others, each once', async (t) => {
  const late = [{ type: 'function', name: 'late' }, { type: 'function', name: 'early' }]
  const { tools } = sent('responses', { tools: [{ type: 'function', name: 'early' }], input: [{ role: 'user', content: 'Hi' }, { type: 'additional_tools', role: 'developer', tools: late }, { type: 'tool_search_output', tools: late }] })
  t.same(tools.map((tool: Loose) => tool.function.name), ['early', 'late'])
})

t.test('names of namespaced tools stay unique and within the limit of the wire', async (t) => {
  const namespace = 'n'.repeat(60)
  const { tools } = sent('responses', {
    tools: [
      { type: 'function', name: 'a__b' },
      { type: 'namespace', name: 'a', tools: [{ type: 'function', name: 'b' }] },
      { type: 'namespace', name: namespace, tools: [{ type: 'function', name: 'read.file' }, { type: 'function', name: 'read-file' }] },
    ],
  })
  const names: string[] = tools.map((tool: Loose) => tool.function.name)
  t.equal(new Set(names).size, 4)
  t.ok(names.every((name) => /^[A-Za-z0-9_-]{1,64}$/.test(name)), names.join(' '))
})

const call = (id: string, more: object = {}) => ({ type: 'function_call', id: 'fc_1', call_id: id, name: 'f', arguments: '{}', ...more })
const result = (id: string, output: unknown = 'done') => ({ type: 'function_call_output', call_id: id, output })
const chatCall = (id: string, name = 'f') => ({ id, type: 'function', function: { name, arguments: '{}' } })

t.test('a turn with tool calls is one assistant message, directly followed by its results', async (t) => {
  const cases: [string, object[], object[]][] = [
    [
      'parallel calls',
      [{ role: 'user', content: 'Hi' }, { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I look' }] }, call('a'), call('b'), result('a'), result('b', [{ type: 'input_text', text: 'two' }])],
      [...USER, { role: 'assistant', content: 'I look', tool_calls: [chatCall('a'), chatCall('b')] }, { role: 'tool', tool_call_id: 'a', content: 'done' }, { role: 'tool', tool_call_id: 'b', content: 'two' }],
    ],
    [
      'calls one after the other',
      [call('a'), result('a'), call('b'), result('b')],
      [{ role: 'assistant', content: null, tool_calls: [chatCall('a')] }, { role: 'tool', tool_call_id: 'a', content: 'done' }, { role: 'assistant', content: null, tool_calls: [chatCall('b')] }, { role: 'tool', tool_call_id: 'b', content: 'done' }],
    ],
    [
      'a message between call and result',
      [call('a'), { role: 'user', content: 'Wait' }, result('a')],
      [{ role: 'assistant', content: null, tool_calls: [chatCall('a')] }, { role: 'tool', tool_call_id: 'a', content: 'done' }, { role: 'user', content: 'Wait' }],
    ],
    [
      'an image in a result',
      [call('a'), result('a', [{ type: 'input_text', text: 'See' }, { type: 'input_image', image_url: IMAGE }])],
      [{ role: 'assistant', content: null, tool_calls: [chatCall('a')] }, { role: 'tool', tool_call_id: 'a', content: 'See' }, { role: 'user', content: [{ type: 'image_url', image_url: { url: IMAGE } }] }],
    ],
    [
      'namespaces and custom tools',
      [call('a', { namespace: 'files' }), { type: 'custom_tool_call', call_id: 'b', name: 'patch', input: 'x "y"' }, result('a'), { type: 'custom_tool_call_output', call_id: 'b', output: 'ok' }],
      [
        { role: 'assistant', content: null, tool_calls: [chatCall('a', 'files__f'), { id: 'b', type: 'function', function: { name: 'patch', arguments: '{"input":"x \\"y\\""}' } }] },
        { role: 'tool', tool_call_id: 'a', content: 'done' },
        { role: 'tool', tool_call_id: 'b', content: 'ok' },
      ],
    ],
    ['items of hosted tools', [{ role: 'user', content: 'Hi' }, { type: 'web_search_call', id: 'ws_1', status: 'completed' }], USER],
  ]
  for (const [name, input, messages] of cases) t.same(sent('responses', { input }).messages, messages, name)
})

t.test('sealed reasoning and signatures are restored for the upstream that gave them', async (t) => {
  const signature = { google: { thought_signature: 'abc' } }
  const text = sealReasoning({ text: { member: 'reasoning_content', text: 'Hm' } }, ids)
  const details = sealReasoning({ details: [{ type: 'reasoning.text', index: 0, text: 'H' }, { type: 'reasoning.text', index: 0, text: 'm', signature: 's' }] }, ids)
  const input = (encrypted: string) => [
    { role: 'user', content: 'Hi' },
    { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: encrypted },
    call(sealCallId('a', signature, ids)),
    result(sealCallId('a', signature, ids)),
  ]
  const turn = { role: 'assistant', content: null, tool_calls: [{ ...chatCall('a'), extra_content: signature }] }
  const tool = { role: 'tool', tool_call_id: 'a', content: 'done' }
  t.same(sent('responses', { input: input(text) }).messages, [...USER, { ...turn, reasoning_content: 'Hm' }, tool])
  t.same(sent('responses', { input: input(details) }).messages, [...USER, { ...turn, reasoning_details: [{ type: 'reasoning.text', index: 0, text: 'Hm', signature: 's' }] }, tool])
  t.same(sent('responses', { input: input('gAAAA') }).messages, [...USER, turn, tool], 'reasoning of another service is left out')
  const native = readResponsesRequest({ model: 'svc-code', input: input(text) }, ALLOW).call(1, ids, () => 0, ['responses'])
  t.same(JSON.parse(native.body(TARGET)).input, [...USER, call('a'), result('a')], 'and is not sent to an upstream that cannot read it')
})

t.test('members of a chat request get their equivalents on the Responses wire', async (t) => {
  const input = [{ type: 'message', role: 'user', content: 'Hi' }]
  const tool = { type: 'function', name: 'f', parameters: SCHEMA, strict: false }
  const declared = { type: 'function', function: { name: 'f', parameters: SCHEMA } }
  const cases: [string, object, object][] = [
    ['text', {}, { input }],
    ['system and developer', { messages: [{ role: 'system', content: 'A' }, { role: 'developer', content: 'B' }] }, { input: [{ type: 'message', role: 'system', content: 'A' }, { type: 'message', role: 'developer', content: 'B' }] }],
    ['an image by its address alone', { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: IMAGE }] }] }, { input: [{ type: 'message', role: 'user', content: [{ type: 'input_image', image_url: IMAGE, detail: 'auto' }] }] }],
    [
      'images and files',
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'See' }, { type: 'image_url', image_url: { url: IMAGE, detail: 'low' } }, { type: 'file', file: { file_data: 'x', filename: 'a' } }] }] },
      { input: [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'See' }, { type: 'input_image', image_url: IMAGE, detail: 'low' }, { type: 'input_file', file_data: 'x', filename: 'a' }] }] },
    ],
    ['reasoning', { reasoning_effort: 'low', verbosity: 'high' }, { input, reasoning: { effort: 'low' }, text: { verbosity: 'high' }, include: ['reasoning.encrypted_content'] }],
    ['a JSON schema', { response_format: { type: 'json_schema', json_schema: { name: 'a', schema: SCHEMA } } }, { input, text: { format: { type: 'json_schema', name: 'a', schema: SCHEMA } } }],
    ['logprobs', { logprobs: true, top_logprobs: 2 }, { input, include: ['message.output_text.logprobs'], top_logprobs: 2 }],
    ['tools', { tools: [declared], tool_choice: { type: 'function', function: { name: 'f' } } }, { input, tools: [tool], tool_choice: { type: 'function', name: 'f' } }],
    ['the older functions', { functions: [declared.function], function_call: { name: 'f' } }, { input, tools: [tool], tool_choice: { type: 'function', name: 'f' } }],
    [
      'custom and allowed tools',
      { tools: [{ type: 'custom', custom: { name: 'p', format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'x' } } } }], tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [{ type: 'custom', custom: { name: 'p' } }] } } },
      { input, tools: [{ type: 'custom', name: 'p', format: { type: 'grammar', syntax: 'lark', definition: 'x' } }], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'custom', name: 'p' }] } },
    ],
    ['a stream; hints are left out', { stream: true, stream_options: { include_usage: true }, seed: 1, prediction: { type: 'content', content: 'x' }, n: 1, stop: null }, { input, stream: true }],
  ]
  for (const [name, more, expected] of cases) t.same(sent('chat', more), { store: false, ...expected }, name)
})

t.test('a limit of tokens below the least of the Responses wire is raised to that', async (t) => {
  const limitOf = (more: object, cap: number) => JSON.parse(readChatRequest({ model: 'svc-code', messages: USER, ...more }, ALLOW).call(cap, ids, () => 0, ['responses']).body(TARGET)).max_output_tokens
  t.same([limitOf({ max_tokens: 1 }, 1), limitOf({ max_tokens: 17 }, 17), limitOf({}, 100)], [16, 17, 100])
})

t.test('a turn of a chat becomes items', async (t) => {
  const reasoning = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'gAAAA' }
  const messages = [
    ...USER,
    {
      role: 'assistant',
      content: 'I look',
      reasoning_details: [sealedDetail({ item: reasoning }, ids), { type: 'reasoning.text', text: 'not ours' }],
      tool_calls: [chatCall(sealCallId('a', null, ids)), { id: 'b', type: 'custom', custom: { name: 'p', input: 'x' } }],
    },
    { role: 'tool', tool_call_id: sealCallId('a', null, ids), content: [{ type: 'text', text: 'one' }] },
    { role: 'tool', tool_call_id: 'b', content: 'two' },
    { role: 'assistant', content: null, function_call: { name: 'f', arguments: '{}' } },
    { role: 'function', name: 'f', content: 'three' },
  ]
  const { input, include } = sent('chat', { messages })
  t.same(input, [
    { type: 'message', role: 'user', content: 'Hi' },
    reasoning,
    { type: 'message', role: 'assistant', content: 'I look' },
    { type: 'function_call', call_id: 'a', name: 'f', arguments: '{}' },
    { type: 'custom_tool_call', call_id: 'b', name: 'p', input: 'x' },
    { type: 'function_call_output', call_id: 'a', output: [{ type: 'input_text', text: 'one' }] },
    { type: 'custom_tool_call_output', call_id: 'b', output: 'two' },
    { type: 'function_call', call_id: 'call_function_1', name: 'f', arguments: '{}' },
    { type: 'function_call_output', call_id: 'call_function_1', output: 'three' },
  ])
  t.same(include, ['reasoning.encrypted_content'])
})

type Refused = [client: WireName, more: object, param: string]

t.test('what the other wire cannot express is refused by name, and goes to the upstreams of its own wire if there are any', async (t) => {
  const part = (one: object) => ({ input: [{ role: 'user', content: [one] }] })
  const cases: Refused[] = [
    ['chat', { n: 2 }, 'n'],
    ['chat', { stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
    ['chat', { stop: 'x'.repeat(257) }, 'stop'],
    ['chat', { stop: 'x', logprobs: true }, 'stop'],
    ['chat', { logit_bias: { 5: 1 } }, 'logit_bias'],
    ['chat', { modalities: ['text', 'audio'] }, 'modalities'],
    ['chat', { messages: [{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }] }, 'messages[0].content[0]'],
    ['responses', { prompt: { id: 'p' } }, 'prompt'],
    ['responses', { input: [{ type: 'item_reference', id: 'x' }] }, 'input[0]'],
    ['responses', { input: [{ type: 'compaction', encrypted_content: 'x' }] }, 'input[0]'],
    ['responses', part({ type: 'input_image', file_id: 'x' }), 'input[0].content[0].file_id'],
    ['responses', part({ type: 'input_file', file_url: 'https://a' }), 'input[0].content[0].file_url'],
    ['chat', { tools: [{ type: 'function', name: 'f', parameters: {} }] }, 'tools[0]'],
    ['chat', { tools: [{ type: 'custom', name: 'f' }] }, 'tools[0]'],
    ['chat', { messages: [{ role: 'assistant', audio: { id: 'a' } }] }, 'messages[0].audio'],
    ['chat', { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 'messages[0].content[0]'],
    ['responses', { tools: [{ type: 'function', function: { name: 'f' } }] }, 'tools[0]'],
    ['responses', { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'function', function: { name: 'f' } }] }] }, 'tools[0]'],
    ...['local_shell', 'shell', 'apply_patch'].map((type): Refused => ['responses', { tools: [{ type }] }, 'tools[0]']),
    ['responses', { input: [...USER, { type: 'additional_tools', role: 'developer', tools: [{ type: 'function', name: 'f' }, { type: 'apply_patch' }] }] }, 'tools[1]'],
    ...['local_shell_call', 'shell_call_output', 'apply_patch_call', 'computer_call'].map((type): Refused => ['responses', { input: [{ type, call_id: 'a' }] }, 'input[0]']),
    ['responses', { text: { format: { type: 'grammar' } } }, 'text.format'],
    ['responses', { input: [{ role: 'developer', content: [{ type: 'input_image', image_url: IMAGE }] }] }, 'input[0].content[0]'],
  ]
  for (const [client, more, param] of cases) {
    t.throws(() => sent(client, more), { code: 'unsupported_parameter', facts: { param } }, param)
    const read = client === 'chat' ? readChatRequest({ model: 'svc-code', messages: USER, ...more }, ALLOW) : readResponsesRequest({ model: 'svc-code', input: 'Hi', ...more }, ALLOW)
    const call = read.call(1, ids, () => 0, ['chat', 'responses'])
    t.match({ wire: call.wire, translated: call.translated }, { wire: client, translated: null })
  }
})

t.test('a message of one agent of Codex to another becomes one of a user', async (t) => {
  const input = [
    { role: 'user', content: 'Hi' },
    { type: 'agent_message', author: '/root', recipient: '/root/reader', content: [{ type: 'input_text', text: 'Count the files.' }] },
  ]
  const text = 'Message from /root to /root/reader:'
  t.same(sent('responses', { input }).messages, [...USER, { role: 'user', content: `${text}\nCount the files.` }])
  const request = readResponsesRequest({ model: 'svc-code', input }, ALLOW).call(100, ids, () => 1000, ['messages'])
  t.match(JSON.parse(request.body(TARGET)).messages.at(-1).content.slice(-2), [{ type: 'text', text }, { type: 'text', text: 'Count the files.' }])
  const compacted = readResponsesRequest({ model: 'svc-code', input: [...input, { type: 'compaction_trigger' }] }, ALLOW).call(100, ids, () => 1000, ['chat'])
  t.match(JSON.parse(compacted.body(TARGET)).messages[1], { role: 'user', content: `${text}\nCount the files.` }, 'and so a summary shows it')
  const sealed = [{ type: 'agent_message', author: '/root', recipient: '/root/reader', content: [{ type: 'encrypted_content', encrypted_content: 'AAAA' }] }]
  t.throws(() => sent('responses', { input: sealed }), { code: 'unsupported_parameter' }, 'one that only its service can read')
  t.match(sent('responses', { input: [...sealed, { type: 'compaction_trigger' }] }).messages[0], { content: /^Call of a tool: .*agent_message/ }, 'but it can be compacted')
})
