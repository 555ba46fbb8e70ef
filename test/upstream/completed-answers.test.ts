/** Native answers of servers that leave out what the wire requires: completed, and valid against the published schemas. */
import t from 'tap'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { chatStream, chunk, completion, delta, DONE, event, message, response, responsesStream, VENDOR } from '../fakes/upstream-wire.ts'
import { dataOf, type Loose } from './gateway.ts'
import { openaiSchemas } from './openai-schemas.ts'
import { requiredMembersOf, sdkTypes } from './sdk-types.ts'
import { ESTIMATE, rewrite } from './translation.ts'

const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
const NONE: ReadonlySet<string> = new Set()
const chatCall = (stream = false) => readChatRequest({ model: 'svc-code', stream, messages: [{ role: 'user', content: 'Hi' }] }, NONE).call(100, ids, () => 1000, ['chat'])
const responsesCall = (stream = false) => readResponsesRequest({ model: 'svc-code', stream, input: 'Hi' }, NONE).call(100, ids, () => 1000, ['responses'])
const chatAnswer = (message: object, more: object = {}): Loose =>
  JSON.parse(chatCall().rewriteJson(completion('', { created: 1.5, choices: [{ message, ...more }] })).body(ESTIMATE))
const responseAnswer = (output: object[]): Loose => JSON.parse(responsesCall().rewriteJson(response('completed', output, { created_at: 1.5, completed_at: 2.5 })).body(ESTIMATE))

const CITATION = { type: 'url_citation', url: 'http://a.test' }

t.test('chat completions are completed', async (t) => {
  const validate = openaiSchemas(t)
  const call = { function: { name: 'f' } }
  const cases: [string, Loose, object][] = [
    ['the time of the gateway, not of the upstream', chatAnswer({ content: 'a' }), { created: 1000 }],
    ['tokens without bytes and alternatives', chatAnswer({ content: 'a' }, { logprobs: { content: [{ token: 'a', logprob: -1 }] } }), { choices: [{ logprobs: { content: [{ bytes: null, top_logprobs: [] }], refusal: null } }] }],
    ['a citation without title and place', chatAnswer({ content: 'a', annotations: [{ type: 'url_citation', url_citation: { url: 'http://a.test' } }] }), { choices: [{ message: { annotations: [{ url_citation: { title: '', start_index: 0, end_index: 0 } }] } }] }],
    ['a call without id, type and arguments', chatAnswer({ tool_calls: [call] }), { choices: [{ message: { tool_calls: [{ id: /^call_/, type: 'function', function: { name: 'f', arguments: '' } }] } }] }],
    ['a custom call without input', chatAnswer({ tool_calls: [{ id: 'a', custom: { name: 'f' } }] }), { choices: [{ message: { tool_calls: [{ type: 'custom', custom: { input: '' } }] } }] }],
    ['a call of nothing', chatAnswer({ content: 'a', tool_calls: [{ id: 'a', type: 'function' }, { id: 'b', ...call }] }), { choices: [{ message: { tool_calls: { length: 1 } } }] }],
  ]
  for (const [name, answer, expected] of cases) {
    t.match(answer, expected, name)
    validate?.('CreateChatCompletionResponse', answer)
  }
  const text = chunk([delta({ content: 'a' })], { created: 1.5 }) + chunk([{ ...delta({ content: 'b' }), logprobs: { content: [{ token: 'b', logprob: -1 }] } }]) + chunk([delta({}, 'stop')]) + DONE
  for (const one of dataOf(rewrite(chatCall(true).openRewriter(), [Buffer.from(text)])).slice(0, -1)) validate?.('CreateChatCompletionStreamResponse', one)
})

t.test('responses are completed', async (t) => {
  const validate = openaiSchemas(t)
  const part = (more: object) => ({ type: 'message', content: [{ type: 'output_text', text: 'a', ...more }] })
  const cases: [string, object, object][] = [
    ['an item without id, role and status', part({}), { id: /^msg_/, role: 'assistant', status: 'completed' }],
    ['a citation without title and place', part({ annotations: [CITATION] }), { content: [{ annotations: [{ title: '', start_index: 0, end_index: 0 }] }] }],
    ['tokens without bytes', part({ logprobs: [{ token: 'é', logprob: -1 }] }), { content: [{ logprobs: [{ bytes: [0xc3, 0xa9], top_logprobs: [] }] }] }],
    ['a call without ids', { type: 'function_call', name: 'f' }, { id: /^fc_/, call_id: /^fc_/, arguments: '' }],
    ['reasoning without id and summary', { type: 'reasoning' }, { id: /^rs_/, summary: [] }],
  ]
  for (const [name, item, expected] of cases) {
    const answer = responseAnswer([item])
    t.match(answer, { created_at: 1000, completed_at: 1000, output: [expected] }, name)
    validate?.('Response', answer)
  }
})

t.test('an answer was created when its request was sent, on every wire and in every form', (t) => {
  const body = { model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }], input: 'Hi' }
  const messageStart = event('message_start', { message: { id: 'msg_1', content: [] } }) + event('content_block_start', { index: 0, content_block: { type: 'text', text: 'a' } })
  const answers = [
    ['chat', completion('a'), chatStream('a').join('')],
    ['responses', response('completed', [message('a')]), responsesStream('a').join('')],
    ['messages', { id: 'msg_1', content: [{ type: 'text', text: 'a' }] }, messageStart],
  ] as const
  for (const client of ['chat', 'responses'] as const) {
    for (const [wire, answer, stream] of answers) {
      let now = 1000
      const read = client === 'chat' ? readChatRequest : readResponsesRequest
      const call = read(structuredClone(body), NONE).call(100, ids, () => now, [wire])
      now = 1060
      const [first] = dataOf(call.openRewriter().push(Buffer.from(stream)))
      t.match(JSON.parse(call.rewriteJson(answer).body(ESTIMATE)), client === 'chat' ? { created: 1000 } : { created_at: 1000, completed_at: 1060 }, `${client} over ${wire}`)
      t.match(first, client === 'chat' ? { created: 1000 } : { response: { created_at: 1000 } }, `${client} streamed over ${wire}`)
    }
  }
  t.end()
})

t.test('answers have every member that the SDKs of OpenAI require', async (t) => {
  const answers: [file: string, name: string, answer: Loose][] = [
    // Added by the SDK itself.
    ['responses/responses.d.ts', 'Response', { ...responseAnswer([]), output_text: '' }],
    ['chat/completions/completions.d.ts', 'ChatCompletion', chatAnswer({ content: 'a' })],
  ]
  for (const [file, name, answer] of answers) {
    const types = sdkTypes(t, 'openai-node', file)
    if (types !== null) t.same(requiredMembersOf(types, name).filter((member) => !(member in answer)), [], name)
  }
})

t.test('the events of an item without an id have one, the same to the end', async (t) => {
  const validate = openaiSchemas(t)
  const item = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'ab' }] }
  const at = { output_index: 0, content_index: 0 }
  const text = [
    event('response.created', { response: response('in_progress') }),
    event('response.output_item.added', { output_index: 0, item: { ...item, content: [] } }),
    event('response.content_part.added', { ...at, part: { type: 'output_text', text: '' } }),
    ...['a', 'b'].map((words) => event('response.output_text.delta', { ...at, delta: words })),
    event('response.output_text.done', { ...at, text: 'ab' }),
    event('response.output_item.done', { output_index: 0, item }),
    event('response.completed', { response: response('completed', [item]) }),
  ].join('')
  const events = dataOf(rewrite(responsesCall(true).openRewriter(), [Buffer.from(text)]))
  const given = events.flatMap((one) => one.item_id ?? one.item?.id ?? one.response?.output?.[0]?.id ?? [])
  t.equal(given.length, 7)
  t.equal(new Set(given).size, 1)
  for (const one of events) validate?.('ResponseStreamEvent', one)
})

t.test('what the calls of tools ask for is known to the leaves, and errors say no more than that', async (t) => {
  const more = { [VENDOR]: VENDOR }
  const items = [
    { type: 'web_search_call', action: { type: 'search', query: 'q', sources: [{ type: 'url', url: 'http://a.test', ...more }], ...more } },
    { type: 'apply_patch_call', call_id: 'a', operation: { type: 'update_file', path: 'p', diff: 'd', ...more } },
    { type: 'shell_call', call_id: 'b', action: { commands: ['ls'], ...more } },
    { type: 'local_shell_call', call_id: 'c', action: { type: 'exec', command: ['ls'], env: { A: 'b' }, ...more } },
    { type: 'computer_call', call_id: 'd', action: { type: 'click', x: 1, y: 2, button: 'left', ...more }, actions: [{ type: 'drag', path: [{ x: 1, y: 2, ...more }] }, { type: VENDOR }] },
    { type: 'mcp_call', server_label: 's', name: 'n', arguments: '{}', error: `${VENDOR} is down` },
    { type: 'mcp_call', server_label: 's', name: 'n', arguments: '{}', error: { type: 'http_error', code: 500, message: VENDOR } },
    { type: 'mcp_list_tools', server_label: 's', tools: [{ name: 'n', input_schema: { type: 'object' }, ...more }], error: null },
  ]
  const { output } = responseAnswer(items)
  t.notOk(JSON.stringify(output).includes(VENDOR))
  t.match(output, [
    { action: { query: 'q', sources: [{ url: 'http://a.test' }] } },
    { operation: { type: 'update_file', path: 'p', diff: 'd' } },
    { action: { commands: ['ls'], timeout_ms: null } },
    { action: { command: ['ls'], env: { A: 'b' } } },
    { action: { x: 1, y: 2 }, actions: [{ path: [{ x: 1, y: 2 }] }] },
    { error: 'The tool failed.' },
    { error: { type: 'http_error', code: 500, message: 'The tool failed.' } },
    { tools: [{ name: 'n' }], error: null },
  ])
})

t.test('the length of an id does not tell whose it is; older ids are still read', async (t) => {
  const lengths = (from: number, to: number) => new Set(Array.from({ length: to - from + 1 }, (_, n) => ids.encrypt('call_', 'x'.repeat(from + n)).length))
  t.equal(lengths(1, 32).size, 1)
  t.equal(lengths(33, 64).size, 1)
  for (const id of ['a', 'é'.repeat(16), 'x'.repeat(33), 'id\0{"a":1}']) t.equal(ids.decrypt(ids.encrypt('call_', id)), id)
  t.equal(ids.decrypt('call_uWC9hLlm5ArBpAFvIq5M'), 'toolu_1', 'made before ids were padded')
})
