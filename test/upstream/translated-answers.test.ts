/** Answers of an upstream of the other wire: complete, of the client's wire, equal for every split of the bytes, and without the vendor. */
import t, { type Test } from 'tap'
import { chunk, completion, delta, DONE, event, message, response, responsesStream, chatStream, USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { openCallId, openReasoning } from '../../src/upstream/wires/sealed-members.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import { dataOf, type Loose } from './gateway.ts'
import { openaiSchemas, openResponsesErrors } from './openai-schemas.ts'
import { assembled, callOf, ESTIMATE, ids, json, randomOf, rewrite, whole } from './translation.ts'

const SIGNATURE = { [VENDOR]: { thought_signature: 'c2ln' } }
const toolCall = (index: number, id: string, name: string, given: string, more: object = {}) => ({ index, id, type: 'function', function: { name, arguments: given }, ...more })
const more = (index: number, given: string) => ({ index, function: { arguments: given } })

/** A chat stream with everything that the wire has. */
const CHAT = [
  chunk([delta({ role: 'assistant', reasoning_content: 'Let me ' })]),
  chunk([delta({ reasoning_content: 'think.' })]),
  chunk([delta({ content: 'Wörld ' })]),
  chunk([{ ...delta({ content: '😀' }), logprobs: { content: [{ token: '😀', logprob: -0.5, bytes: null, top_logprobs: [] }] } }]),
  chunk([delta({ annotations: [{ type: 'url_citation', url_citation: { start_index: 0, end_index: 2, url: 'https://a.example', title: 'A' } }] })]),
  chunk([delta({ tool_calls: [toolCall(0, `${VENDOR}:0`, 'read', '', { extra_content: SIGNATURE })] })]),
  chunk([delta({ tool_calls: [more(0, '{"a"')] })]),
  chunk([delta({ tool_calls: [toolCall(1, `${VENDOR}:1`, 'files__list', '{')] })]),
  chunk([delta({ tool_calls: [more(0, ':1}'), more(1, '}')] })]),
  chunk([delta({ tool_calls: [toolCall(2, `${VENDOR}:2`, 'patch', '{"input":')] })]),
  chunk([delta({ tool_calls: [more(2, '"x \\"y\\""}')] })]),
  chunk([delta({}, 'tool_calls')]),
  chunk([], { usage: { ...USAGE, completion_tokens_details: { reasoning_tokens: 2 } } }),
  DONE,
].join('')

const CHAT_MESSAGE = {
  role: 'assistant',
  reasoning_content: 'Let me think.',
  content: 'Wörld 😀',
  annotations: [{ type: 'url_citation', url_citation: { start_index: 0, end_index: 2, url: 'https://a.example', title: 'A' } }],
  tool_calls: [
    toolCall(0, `${VENDOR}:0`, 'read', '{"a":1}', { extra_content: SIGNATURE }),
    toolCall(1, `${VENDOR}:1`, 'files__list', '{}'),
    toolCall(2, `${VENDOR}:2`, 'patch', '{"input":"x \\"y\\""}'),
  ],
}

const OUTPUT = [
  { type: 'reasoning', status: 'completed', summary: [], content: [{ type: 'reasoning_text', text: 'Let me think.' }], encrypted_content: /^seal[a-z]{4}_/ },
  { type: 'message', status: 'completed', role: 'assistant', content: [{ type: 'output_text', text: 'Wörld 😀', annotations: [{ type: 'url_citation', url: 'https://a.example' }] }] },
  { type: 'function_call', status: 'completed', call_id: /^call[a-z]{4}_/, name: 'read', arguments: '{"a":1}' },
  { type: 'function_call', status: 'completed', call_id: /^call_/, name: 'list', namespace: 'files', arguments: '{}' },
  { type: 'custom_tool_call', call_id: /^call_/, name: 'patch', input: 'x "y"' },
]

const place = (index: number, id = `${VENDOR}_${index}`) => ({ item_id: id, output_index: index })
const REASONING = { id: `${VENDOR}_0`, type: 'reasoning', summary: [{ type: 'summary_text', text: 'First' }, { type: 'summary_text', text: 'Second' }], encrypted_content: VENDOR }
const MESSAGE = { ...message('Wörld 😀'), id: `${VENDOR}_1` }
const CALL = { id: `${VENDOR}_2`, type: 'function_call', status: 'completed', call_id: `${VENDOR}|2`, name: 'read', arguments: '{"a":1}' }
const CUSTOM = { id: `${VENDOR}_3`, type: 'custom_tool_call', call_id: `${VENDOR}|3`, name: 'patch', input: 'x "y"' }

/** A responses stream with everything that chat can express. */
const RESPONSES = [
  event('response.created', { response: response('in_progress') }),
  event('response.output_item.added', { output_index: 0, item: { ...REASONING, summary: [], encrypted_content: '' } }),
  event('response.reasoning_summary_text.delta', { ...place(0), summary_index: 0, delta: 'First' }),
  event('response.reasoning_summary_text.delta', { ...place(0), summary_index: 1, delta: 'Second' }),
  event('response.output_item.done', { output_index: 0, item: REASONING }),
  event('response.output_item.added', { output_index: 1, item: { ...MESSAGE, content: [] } }),
  event('response.output_text.delta', { ...place(1), content_index: 0, delta: 'Wörld ', logprobs: [{ token: 'Wörld ', logprob: -1, top_logprobs: [] }], obfuscation: 'x' }),
  event('response.output_text.delta', { ...place(1), content_index: 0, delta: '😀' }),
  event('response.output_text.annotation.added', { ...place(1), annotation: { type: 'url_citation', start_index: 0, end_index: 2, url: 'https://a.example', title: 'A', [VENDOR]: 1 } }),
  event('response.output_item.done', { output_index: 1, item: MESSAGE }),
  event('response.output_item.added', { output_index: 2, item: { ...CALL, arguments: '' } }),
  event('response.output_item.added', { output_index: 3, item: { ...CUSTOM, input: '' } }),
  event('response.function_call_arguments.delta', { ...place(2), delta: '{"a"' }),
  event('response.custom_tool_call_input.delta', { ...place(3), delta: 'x "y"' }),
  event('response.function_call_arguments.delta', { ...place(2), delta: ':1}' }),
  event('response.output_item.done', { output_index: 2, item: CALL }),
  event('response.output_item.done', { output_index: 3, item: CUSTOM }),
  event('response.completed', { response: response('completed', [REASONING, MESSAGE, CALL, CUSTOM]) }),
].join('')

t.test('a chat completion is a complete response, whole or streamed', async (t) => {
  const streamed = dataOf(whole('responses', CHAT))
  const { usage, ...last } = streamed.at(-1).response
  const given = json('responses', completion('', { choices: [{ index: 0, message: CHAT_MESSAGE, finish_reason: 'tool_calls' }] }))
  for (const answer of [last, given]) {
    t.match(answer, { object: 'response', status: 'completed', completed_at: 1000, model: 'svc-code', store: false, error: null, incomplete_details: null })
    t.match(answer.output, OUTPUT)
    t.equal(answer.output.length, OUTPUT.length)
  }
  t.match(usage, { input_tokens: 20, input_tokens_details: { cached_tokens: 8 }, output_tokens: 5, output_tokens_details: { reasoning_tokens: 2 }, total_tokens: 25 })
  t.match(last.output[1].content[0].logprobs, [{ token: '😀', bytes: [240, 159, 152, 128] }])
  const [, , call] = last.output
  t.same(openCallId(call.call_id, ids), { id: `${VENDOR}:0`, extra: SIGNATURE })
  t.same(openReasoning(last.output[0].encrypted_content, ids), { text: { member: 'reasoning_content', text: 'Let me think.' } })
})

t.test('the events of a response come in the order of the wire', async (t) => {
  const events = dataOf(whole('responses', CHAT))
  t.same(events.map(({ sequence_number: number }) => number), events.map((_, index) => index))
  t.same(
    events.map(({ type, output_index: index }) => `${type.slice('response.'.length)}${index === undefined ? '' : ` ${index}`}`),
    [
      'created',
      'in_progress',
      'output_item.added 0',
      'content_part.added 0',
      'reasoning_text.delta 0',
      'reasoning_text.delta 0',
      'reasoning_text.done 0',
      'content_part.done 0',
      'output_item.done 0',
      'output_item.added 1',
      'content_part.added 1',
      'output_text.delta 1',
      'output_text.delta 1',
      'output_text.annotation.added 1',
      'output_text.done 1',
      'content_part.done 1',
      'output_item.done 1',
      'output_item.added 2',
      'function_call_arguments.delta 2',
      'output_item.added 3',
      'function_call_arguments.delta 3',
      'function_call_arguments.delta 2',
      'function_call_arguments.delta 3',
      'output_item.added 4',
      'function_call_arguments.done 2',
      'output_item.done 2',
      'function_call_arguments.done 3',
      'output_item.done 3',
      'custom_tool_call_input.delta 4',
      'custom_tool_call_input.done 4',
      'output_item.done 4',
      'completed',
    ],
  )
  t.same(events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item), events.at(-1).response.output)
})

t.test('a response is a complete chat completion, whole or streamed', async (t) => {
  const streamed = assembled(whole('chat', RESPONSES))
  t.equal(dataOf(whole('chat', RESPONSES.replaceAll('"status":"completed"', '"service_tier":"flex","status":"completed"'))).at(-3).service_tier, 'flex')
  t.match(streamed, {
    content: 'Wörld 😀',
    reasoning_content: 'First\n\nSecond',
    reasons: ['tool_calls'],
    annotations: [{ type: 'url_citation', url_citation: { start_index: 0, end_index: 2, url: 'https://a.example', title: 'A' } }],
    calls: [
      { id: /^call_/, type: 'function', function: { name: 'read' }, text: '{"a":1}' },
      { id: /^call_/, type: 'custom', custom: { name: 'patch' }, text: 'x "y"' },
    ],
    usage: { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25, prompt_tokens_details: { cached_tokens: 8 }, completion_tokens_details: { reasoning_tokens: 2 } },
  })
  const { choices: [choice], usage, ...rest } = json('chat', response('completed', [REASONING, MESSAGE, CALL, CUSTOM]))
  t.match(rest, { id: /^chatcmpl-/, object: 'chat.completion', created: 1000, model: 'svc-code' })
  t.match(choice, {
    index: 0,
    finish_reason: 'tool_calls',
    message: {
      role: 'assistant',
      content: 'Wörld 😀',
      refusal: null,
      reasoning_content: 'First\n\nSecond',
      tool_calls: [
        { id: /^call_/, type: 'function', function: { name: 'read', arguments: '{"a":1}' } },
        { id: /^call_/, type: 'custom', custom: { name: 'patch', input: 'x "y"' } },
      ],
    },
  })
  t.same(usage, streamed.usage)
  for (const [detail] of [streamed.details, choice.message.reasoning_details])
    t.same(openReasoning(detail.data, ids), { item: { ...REASONING } })
})

t.test('a refusal, log probabilities and the older function_call are translated', async (t) => {
  const refused = chunk([delta({ refusal: 'No' })]) + chunk([delta({ refusal: '.' }, 'stop')]) + DONE
  t.match(dataOf(whole('responses', refused)).at(-1).response.output, [{ content: [{ type: 'refusal', refusal: 'No.' }] }])
  const refusal = { ...MESSAGE, content: [{ type: 'refusal', refusal: 'No.' }] }
  t.match(json('chat', response('completed', [refusal])).choices[0].message, { content: null, refusal: 'No.' })
  const scored = { ...MESSAGE, content: [{ type: 'output_text', text: 'a', annotations: [], logprobs: [{ token: 'a', logprob: -1, bytes: [97], top_logprobs: [] }] }] }
  t.match(json('chat', response('completed', [scored])).choices[0].logprobs, { content: [{ token: 'a', logprob: -1 }], refusal: null })
  const legacy = { functions: [{ name: 'read', parameters: {} }] }
  t.match(json('chat', response('completed', [CALL]), legacy).choices[0], { finish_reason: 'function_call', message: { function_call: { name: 'read', arguments: '{"a":1}' } } })
  const chunks = dataOf(whole('chat', RESPONSES, legacy)).slice(0, -2)
  t.equal(chunks.map(({ choices }) => choices[0].delta.function_call?.arguments ?? '').join(''), '{"a":1}')
  t.equal(chunks.at(-1).choices[0].finish_reason, 'function_call')
  t.match(json('responses', completion('', { choices: [{ message: { function_call: { name: 'read', arguments: '{}' } }, finish_reason: 'function_call' }] })).output, [{ type: 'function_call', name: 'read' }])
})

t.test('a truncated answer has the finish reason of one on both wires', async (t) => {
  for (const [reason, cut] of [['length', 'max_output_tokens'], ['content_filter', 'content_filter']] as const) {
    const text = chunk([delta({ content: 'a' })]) + chunk([delta({}, reason)]) + DONE
    t.match(dataOf(whole('responses', text)).at(-1), { type: 'response.incomplete', response: { status: 'incomplete', incomplete_details: { reason: cut }, output: [{ status: 'incomplete' }] } })
    t.match(json('responses', completion('', { choices: [{ message: { content: 'a' }, finish_reason: reason }] })), { status: 'incomplete', incomplete_details: { reason: cut } })
    const incomplete = response('incomplete', [MESSAGE], { incomplete_details: { reason: cut } })
    t.equal(json('chat', incomplete).choices[0].finish_reason, reason)
    for (const type of ['response.incomplete', 'response.completed'])
      t.match(dataOf(whole('chat', event(type, { response: incomplete }))).at(-3).choices[0], { finish_reason: reason })
  }
})

t.test('a stream that breaks ends with the failure event of the client\'s wire', async (t) => {
  const chat = chunk([delta({ reasoning: 'Hm.' })]) + chunk([delta({ content: 'one two' })])
  const failed = { 'cut off': chat, 'an error': `${chat}data: {"error":{"message":"${VENDOR}"}}\n\n${DONE}`, 'not JSON': `${chat}data: {\n\n` }
  for (const [name, text] of Object.entries(failed)) {
    const rewritten = whole('responses', text)
    const last = dataOf(rewritten).at(-1)
    t.match(last, { type: 'response.failed', response: { status: 'failed', error: { code: 'server_error' }, output: [{ type: 'reasoning', status: 'completed' }] } }, name)
    t.equal(last.response.output.length, 1, 'without the item that was cut off')
    t.notOk(rewritten.includes(VENDOR))
  }
  const start = responsesStream('one two').slice(0, 6).join('')
  for (const text of [start, start + event('response.failed', { response: { error: { message: VENDOR } } }), start + event('error', { message: VENDOR }), start + event('response.completed', { response: response('failed') })]) {
    const rewritten = whole('chat', text)
    t.match(dataOf(rewritten).at(-1), { error: { code: 'server_overloaded' } })
    t.notOk(rewritten.includes('[DONE]'))
    t.notOk(rewritten.includes(VENDOR))
  }
  t.match(dataOf(whole('chat', start + event('response.failed', { response: { error: { code: 'context_length_exceeded' } } }))).at(-1), { error: { code: 'context_length_exceeded' } })
})

t.test('what servers do beside the wire is understood', async (t) => {
  const calls = [toolCall(0, 'a', 'read', '{"a":1}'), toolCall(0, 'b', 'read', '{"b":2}')].map(({ index: _index, ...call }) => chunk([delta({ tool_calls: [call] })]))
  t.match(dataOf(whole('responses', calls.join('') + DONE)).at(-1).response.output, [{ arguments: '{"a":1}' }, { arguments: '{"b":2}' }], 'calls without indices')
  const late = chunk([delta({ tool_calls: [{ index: 0, id: 'a', function: { arguments: '{' } }] })]) + chunk([delta({ tool_calls: [{ index: 0, function: { name: 'read', arguments: '}' } }] })])
  t.match(dataOf(whole('responses', late + DONE)).at(-1).response.output, [{ name: 'read', arguments: '{}' }], 'a name after its arguments')
  const both = chunk([delta({ reasoning: 'a', reasoning_content: 'a' })])
  t.match(dataOf(whole('responses', both + DONE)).at(-1).response.output, [{ content: [{ text: 'a' }] }], 'reasoning in two members')
  t.match(assembled(whole('chat', event('response.completed', { response: response('completed', [MESSAGE, CALL]) }))), { content: 'Wörld 😀', calls: [{ text: '{"a":1}' }] }, 'the output in the last event only')
  const noDeltas = [event('response.output_item.done', { output_index: 0, item: MESSAGE }), event('response.output_item.done', { output_index: 1, item: CALL })]
  t.match(assembled(whole('chat', [...noDeltas, event('response.completed', { response: response('completed', []) })].join(''))), { content: 'Wörld 😀', calls: [{ text: '{"a":1}' }] }, 'items without deltas')
  t.throws(() => json('responses', { choices: [] }))
  t.throws(() => json('responses', { choices: [{ message: { content: 'a' }, finish_reason: 'error' }] }), 'a failure told as a finish reason')
  t.match(dataOf(whole('responses', chunk([delta({ content: 'a' }, 'abort')]) + DONE)).at(-1), { type: 'response.failed' })
  t.throws(() => json('chat', { output: {} }))
  t.equal(callOf('responses').openRewriter().push(Buffer.from(DONE)), '')
})

const STREAMS: [string, WireName, string][] = [
  ['chat for a responses client', 'responses', CHAT],
  ['responses for a chat client', 'chat', RESPONSES],
  ['plain chat', 'responses', chatStream('a', ' wö😀', ' "q" \\ \n').join('')],
  ['plain responses', 'chat', responsesStream('a', ' wö😀', ' "q" \\ \n').join('')],
  ['chat with CR LF', 'responses', CHAT.replaceAll('\n', '\r\n')],
  ['responses with CR', 'chat', RESPONSES.replaceAll('\n', '\r')],
  ['chat that breaks off', 'responses', CHAT.slice(0, -200)],
  ['responses that break off', 'chat', RESPONSES.slice(0, -200)],
]

t.test('a translated stream is equal wherever its bytes are split', async (t) => {
  for (const [name, client, text] of STREAMS) {
    const bytes = Buffer.from(text)
    const expected = whole(client, text)
    let different = 0
    const check = (pieces: Buffer[]) => {
      if (rewrite(callOf(client).openRewriter(), pieces) !== expected) different++
    }
    for (let at = 0; at <= bytes.length; at += 11) check([bytes.subarray(0, at), bytes.subarray(at)])
    for (const size of [1, 2, 7, 61]) check(Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.subarray(n * size, (n + 1) * size)))
    for (let seed = 1; seed <= 50; seed++) {
      const random = randomOf(seed)
      const cuts = Array.from({ length: 1 + Math.floor(random() * 12) }, () => Math.floor(random() * bytes.length)).sort((a, b) => a - b)
      check([0, ...cuts].map((from, n) => bytes.subarray(from, cuts[n] ?? bytes.length)))
    }
    t.equal(different, 0, name)
  }
})

t.test('nothing of the vendor passes a translation', async (t) => {
  for (const [name, client, text] of STREAMS) {
    const rewritten = whole(client, text)
    t.notOk(rewritten.toLowerCase().includes(VENDOR), name)
    t.ok(rewritten.length > 500, 'not empty')
  }
  t.notOk(JSON.stringify(json('responses', completion('hi', { choices: [{ message: CHAT_MESSAGE, [VENDOR]: 1 }] }))).includes(VENDOR))
  t.notOk(JSON.stringify(json('chat', response('completed', [REASONING, MESSAGE, CALL, { type: VENDOR }]))).includes(VENDOR))
})

t.test('escapes in the text of a model survive, also halves of a pair in two events', async (t) => {
  const raw = (text: string) => String.raw`data: {"id":"1","choices":[{"index":0,"delta":{"content":"${text}"}}]}` + '\n\n'
  const text = [String.raw`\ud83d`, String.raw`\ude00`, String.raw`\u00e9\n\/\u0000`].map(raw).join('') + DONE
  t.equal(dataOf(whole('responses', text)).at(-1).response.output[0].content[0].text, '😀é\n/\0')
})

t.test('output is metered for upstreams that report no usage', async (t) => {
  const words = Array.from({ length: 50 }, (_, n) => ` word${n}`)
  for (const [client, text] of [['responses', [...words.map((content) => chunk([delta({ content })])), DONE].join('')], ['chat', responsesStream(...words).join('').replaceAll('"usage"', '"other"')]] as const) {
    const stream = callOf(client).openRewriter()
    stream.push(Buffer.from(text))
    t.equal(stream.usage(), null)
    t.equal(stream.phase().name, 'done')
    const last = dataOf(Buffer.from(stream.terminalEvents(ESTIMATE), 'latin1').toString('utf8'))
    t.match(last[0], client === 'chat' ? { choices: [], usage: { completion_tokens: 3 } } : { response: { usage: { output_tokens: 3 } } }, 'the estimate is told')
    const tokens = await stream.meter.countTokens()
    t.ok(tokens >= 90 && tokens <= 160, `${client}: ${tokens}`)
  }
})

t.test('an endless answer breaks the stream rather than the process', async (t) => {
  const stream = callOf('responses').openRewriter()
  const many = Buffer.from(chunk([delta({ content: 'x'.repeat(1024 * 1024) })]))
  for (let n = 0; n < 20; n++) stream.push(many)
  t.equal(stream.phase().name, 'broken')
})

t.test('translated answers are valid against OpenAI\'s OpenAPI document and the Open Responses models', async (t: Test) => {
  const validate = openaiSchemas(t)
  if (!validate) return
  const responses: object[] = []
  // Open Responses has no custom and no namespaced tools.
  const functions = { tools: [{ type: 'function', name: 'read' }] }
  for (const [, client, text] of STREAMS) {
    for (const value of dataOf(whole(client, text))) {
      if (value === '[DONE]' || value.error) continue
      validate(client === 'chat' ? 'CreateChatCompletionStreamResponse' : 'ResponseStreamEvent', withoutExtensions(value))
    }
    if (client === 'responses') responses.push(...dataOf(whole(client, text, functions)))
  }
  const given = json('responses', completion('', { choices: [{ message: CHAT_MESSAGE }] }))
  validate('Response', given)
  validate('CreateChatCompletionResponse', json('chat', response('completed', [REASONING, MESSAGE, CALL, CUSTOM])))
  t.ok(responses.length > 50)
  t.same((await openResponsesErrors(t, [...responses, json('responses', completion('hi'), functions)])) ?? [], [])
})

/** Members that servers of open models add to OpenAI's wire, and clients know. The document has custom tools in whole answers only. */
function withoutExtensions(value: Loose): Loose {
  for (const { delta: one } of value.choices ?? []) {
    delete one.reasoning_content
    delete one.reasoning_details
    delete one.annotations
    if (one.tool_calls) one.tool_calls = one.tool_calls.filter((call: Loose) => call.type !== 'custom')
  }
  return value
}
