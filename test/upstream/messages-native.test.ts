/** A Messages client at an upstream of its own wire: the request arrives as it was sent, and the answer is rebuilt from what is known. */
import t from 'tap'
import { CALL, MESSAGE_USAGE, messageAnswer, messageEvent, messagesStream, SIGNATURE, THINKING } from '../fakes/messages-wire.ts'
import { openUpstream, respond, streams } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import type { UpstreamCall, WireName } from '../../src/upstream/wires/wire.ts'
import { openGateway, post, type Loose } from './gateway.ts'
import { assembledMessage, eventsOf } from './message-events.ts'
import { checkMessagesJson, checkMessagesStream, valid } from './messages-schemas.ts'
import { ESTIMATE, openRequestIds, randomOf, rewrite } from './translation.ts'

const ids = openRequestIds()

const TARGET = { origin: 'one', model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const CACHED = { cache_control: { type: 'ephemeral', ttl: '1h' } }

function callOf(more: object = {}, wires: WireName[] = ['messages'], cap = 4096, allowed = new Set<string>()): UpstreamCall {
  const body = { model: 'svc-code', max_tokens: 100, messages: [{ role: 'user', content: 'Hi' }], ...more }
  return readMessagesRequest(body, allowed, { betas: [], promptTokens: () => 9 }).call(cap, ids, () => 1000, wires)
}
const sent = (more: object = {}, cap?: number): Loose => JSON.parse(callOf(more, ['messages'], cap).body(TARGET))
const json = (answer: object): Loose => valid(checkMessagesJson, JSON.parse(callOf().rewriteJson(answer).body(ESTIMATE)))
const whole = (text: string) => valid(checkMessagesStream, rewrite(callOf({ stream: true }).openRewriter(), [Buffer.from(text)]))
const assembled = (text: string) => assembledMessage(eventsOf(whole(text)))

const REDACTED = { type: 'redacted_thinking', data: `${VENDOR}==` }
const CITED = { type: 'text', text: 'Grüße an 😀.', citations: [{ type: 'char_location', cited_text: 'x', document_index: 0, document_title: null, start_char_index: 0, end_char_index: 1, [VENDOR]: 1 }] }
const BLOCKS = [THINKING, REDACTED, { type: 'text', text: 'Grüße an 😀.' }, CALL]

t.test('a request arrives as it was sent, but for what the gateway decides', async (t) => {
  const request = {
    system: [{ type: 'text', text: 'x-anthropic-billing-header: cch=1;' }, { type: 'text', text: 'Be short.', ...CACHED }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Look', ...CACHED }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'read', input: { url: 'http://10.0.0.1', A: 1 } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: true, content: [{ type: 'text', text: 'gone', ...CACHED }] }] },
      { role: 'user', content: [{ type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'a' }] }, citations: { enabled: true } }] },
      { role: 'system', content: 'Hurry.' },
    ],
    tools: [{ name: 'read', input_schema: { type: 'object' }, ...CACHED }, { type: 'bash_20250124', name: 'bash' }],
    tool_choice: { type: 'any', disable_parallel_tool_use: true },
    thinking: { type: 'adaptive' },
    output_config: { effort: 'high' },
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    stop_sequences: ['END'],
    top_k: 5,
  }
  const body = sent({ ...structuredClone(request), metadata: { user_id: 'person', [VENDOR]: 1 }, speed: 'fast', service_tier: 'priority', container: 'c', unknown: 1, max_tokens: 9000 })
  const { system, ...same } = request
  t.match(body, { model: 'm', max_tokens: 4096, metadata: { user_id: /^[\w-]{43}$/ } })
  t.same({ ...body, model: 0, max_tokens: 0, metadata: 0 }, { model: 0, max_tokens: 0, metadata: 0, ...same, system: system.slice(1) })
})

t.test('a hosted tool and its results pass where the upstream allows it', async (t) => {
  const search = { type: 'web_search_20250305', name: 'web_search' }
  t.notOk('tools' in sent({ tools: [search], tool_choice: { type: 'tool', name: 'web_search' } }))
  const target = { ...TARGET, policy: { ...TARGET.policy, allow: new Set(['tool:web_search_20250305']) } }
  t.same(JSON.parse(callOf({ tools: [search] }).body(target)).tools, [search])
  const result = { type: 'web_search_result', title: 'T', url: 'http://a.test', page_age: null, encrypted_content: VENDOR }
  const content = [
    { type: 'server_tool_use', id: `srvtoolu_${VENDOR}`, name: 'web_search', input: { query: 'q' } },
    { type: 'web_search_tool_result', tool_use_id: `srvtoolu_${VENDOR}`, content: [result] },
    { type: 'text', text: 'a', citations: [{ type: 'web_search_result_location', cited_text: 'x', encrypted_index: VENDOR, title: 'T', url: 'http://a.test' }] },
  ]
  const answer = json(messageAnswer(content))
  t.notOk(JSON.stringify(answer).includes(VENDOR))
  t.same(answer.content[0].id, answer.content[1].tool_use_id)
  const caller = { caller: { type: 'direct' } }
  t.match(answer.content, [{ ...caller, input: { query: 'q' } }, { ...caller, content: [{ title: 'T' }] }, { citations: [{ url: 'http://a.test' }] }])
  t.same(sent({ messages: [{ role: 'user', content: 'q' }, { role: 'assistant', content: answer.content }] }).messages[1].content, content)
})

t.test('the client learns what the server cleared from the context, where it tells that', async (t) => {
  const edit = { type: 'clear_tool_uses_20250919', cleared_tool_uses: 3, cleared_input_tokens: 900, [VENDOR]: 1 }
  const managed = { context_management: { applied_edits: [edit, { type: 'clear_thinking_20251015' }, { type: VENDOR }], [VENDOR]: 1 } }
  const told = [{ type: 'clear_tool_uses_20250919', cleared_tool_uses: 3, cleared_input_tokens: 900 }, { type: 'clear_thinking_20251015', cleared_thinking_turns: 0, cleared_input_tokens: 0 }]
  const content = [{ type: 'text', text: 'Hi' }]
  const answer = (more: object) => JSON.parse(callOf().rewriteJson(messageAnswer(content, 'end_turn', more)).body(ESTIMATE))
  const events = (more: object) => eventsOf(rewrite(callOf({ stream: true }).openRewriter(), [Buffer.from(messagesStream(content).replace('"type":"message_delta"', `"type":"message_delta",${JSON.stringify(more).slice(1, -1) || '"x":1'}`))]))
  for (const last of [answer(managed), events(managed).at(-2)]) t.strictSame(last.context_management, { applied_edits: told })
  for (const last of [answer({ context_management: null }), events({ context_management: null }).at(-2)]) t.equal(last.context_management, null)
  for (const last of [answer({}), events({}).at(-2)]) t.notOk('context_management' in last)
})

t.test('compaction by the server is refused, and what it and an advisor bill beside an answer is charged', async (t) => {
  const compacting = { edits: [{ type: 'clear_tool_uses_20250919' }, { type: 'compact_20260112' }] }
  for (const wire of ['messages', 'responses', 'chat'] as const) t.throws(() => callOf({ context_management: compacting }, [wire]), { code: 'invalid_request', facts: { param: 'context_management.edits[1]' } })
  t.throws(() => callOf({ compaction: { type: 'summarize' } }), { code: 'invalid_request', facts: { param: 'compaction' } })
  const spent = (type: string) => ({ type, input_tokens: 100, cache_read_input_tokens: 50, cache_creation_input_tokens: 7, output_tokens: 10 })
  const usage = { ...MESSAGE_USAGE, iterations: [spent('compaction'), spent('message'), spent('advisor_message'), null] }
  const charged = { input: 20 + 314, cachedInput: 8 + 100, output: 5 + 20 }
  const content = [{ type: 'text', text: 'Hi' }]
  t.strictSame(callOf().rewriteJson(messageAnswer(content, 'end_turn', { usage })).usage, charged)
  const rewriter = callOf({ stream: true }).openRewriter()
  t.match(assembledMessage(eventsOf(rewrite(rewriter, [Buffer.from(messagesStream(content).replace('"usage":{"output_tokens"', `"usage":{"iterations":${JSON.stringify(usage.iterations)},"output_tokens"`))]))).usage, { output_tokens: charged.output })
  t.strictSame(rewriter.usage(), charged)
})

t.test('no tokens at all are asked for to fill the cache, and the prompt is charged', async (t) => {
  t.equal(sent({ max_tokens: 0 }).max_tokens, 0)
  const upstream = await openUpstream((answer) => respond(answer, 200, messageAnswer([], 'max_tokens', { usage: { ...MESSAGE_USAGE, output_tokens: 0 } })))
  t.teardown(() => upstream.close())
  const gateway = await openGateway(t, { declared: [{ name: 'm', baseUrl: upstream.url, model: 'm', wire: 'messages' }] })
  const { status, body } = await post(gateway, '/v1/messages', { model: 'svc-code', max_tokens: 0, messages: [{ role: 'user', content: 'Hi' }] })
  t.match({ status, body }, { status: 200, body: { content: [], stop_reason: 'max_tokens' } })
  t.match(gateway.admissions, [{ maxOutputTokens: 0 }])
  t.same(await gateway.settled(), { usage: { input: 20, cachedInput: 8, output: 0 }, estimated: false })
})

t.test('a budget of thinking stays below the limit of tokens that the plan sets', async (t) => {
  const thinking = { type: 'enabled', budget_tokens: 31_999 }
  t.same(sent({ thinking, max_tokens: 32_000 }, 40_000).thinking, thinking)
  t.same(sent({ thinking, max_tokens: 32_000 }).thinking, { type: 'enabled', budget_tokens: 2048 })
  t.same(sent({ thinking, max_tokens: 32_000 }, 2000).thinking, { type: 'disabled' })
  for (const limit of [-1, null]) t.equal(sent({ max_tokens: limit }).max_tokens, 4096, 'no limit of the client')
})

t.test('answers in JSON and in events are whole, say the same, and count cached tokens', async (t) => {
  const expected = {
    model: 'svc-code',
    content: [{ type: 'thinking', thinking: 'I look.', signature: /^sig[a-z]{4}_/ }, { type: 'redacted_thinking', data: /^sig[a-z]{4}_/ }, { type: 'text', text: 'Grüße an 😀.' }, { type: 'tool_use', id: /^toolu_/, name: 'read', input: { path: 'a.txt' } }],
    stop_reason: 'tool_use',
    usage: { input_tokens: 12, cache_read_input_tokens: 8, cache_creation_input_tokens: 0, output_tokens: 5 },
  }
  const answer = json(messageAnswer(BLOCKS, 'tool_use'))
  const streamed = assembled(messagesStream(BLOCKS, 'tool_use'))
  t.match(answer, expected)
  t.match(streamed, expected)
  t.same(streamed.content, answer.content)
  t.match(json(messageAnswer([CITED])).content, [{ citations: [{ type: 'char_location', cited_text: 'x' }] }])
  t.match(callOf().rewriteJson(messageAnswer(BLOCKS)).usage, { input: 20, cachedInput: 8, output: 5 })
})

t.test('what the upstream gave comes back to it as it was, and goes to no other one', async (t) => {
  const { content } = json(messageAnswer(BLOCKS, 'tool_use'))
  const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: content[3].id, content: 'ok' }] }
  const messages = [{ role: 'user', content: 'Hi' }, { role: 'assistant', content }, result]
  const thinking = { type: 'adaptive' }
  const body = sent({ messages: structuredClone(messages), thinking })
  t.same(body.messages[1].content, BLOCKS)
  t.equal(body.messages[2].content[0].tool_use_id, CALL.id)
  for (const wire of ['responses', 'chat'] as const) t.notOk(callOf({ messages: structuredClone(messages) }, [wire]).body(TARGET).includes(SIGNATURE), wire)
  const foreign = { role: 'assistant', content: [{ ...THINKING, signature: 'rs_1.enc_abcdefghijklmnop' }, { type: 'tool_use', id: 'a|b', name: 'read', input: {} }] }
  const other = sent({ messages: [{ role: 'user', content: 'Hi' }, foreign, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a|b', content: '' }] }], thinking })
  t.match(other.messages[1].content, [{ type: 'tool_use', id: 'call_YXxi' }], 'thinking of another service is left out')
  t.equal(other.messages[2].content[0].tool_use_id, 'call_YXxi')
  t.same(other.thinking, thinking, 'which a turn may begin without where the model decides itself')
})

t.test('a budget of thinking, and the edit that depends on it, are left out where the last turn has calls without thinking', async (t) => {
  const thinking = { type: 'enabled', budget_tokens: 1024 }
  const edits = [{ type: 'clear_thinking_20251015' }, { type: 'clear_tool_uses_20250919' }]
  const use = { type: 'tool_use', id: 'toolu_1', name: 'read', input: {} }
  const turn = (...content: object[]) => [{ role: 'assistant', content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'ok' }] }]
  const asked = (messages: object[], more: object = {}) => sent({ max_tokens: 2000, thinking, context_management: { edits }, messages: [{ role: 'user', content: 'Hi' }, ...messages], ...more })
  const { signature } = json(messageAnswer([THINKING])).content[0]
  const signed = () => ({ ...THINKING, signature })
  for (const content of [[use], [{ type: 'text', text: 'I look.' }, use], [{ ...THINKING, signature: 'EqQBCgIYAhIM' }, use]])
    t.match(asked(turn(...content)), { thinking: { type: 'disabled' }, context_management: { edits: [edits[1]] } }, JSON.stringify(content))
  t.notOk('context_management' in asked(turn(use), { context_management: { edits: edits.slice(0, 1) } }), 'no edit is left')
  t.notOk('thinking' in asked(turn(use), { thinking: null }))
  const kept: [string, object[]][] = [['thinking', turn(signed(), use)], ['no calls', [{ role: 'assistant', content: [{ type: 'text', text: 'a' }] }, { role: 'user', content: 'b' }]], ['an earlier turn', [...turn(use), { role: 'assistant', content: 'a' }, { role: 'user', content: 'b' }]]]
  for (const [name, messages] of kept) t.match(asked(messages), { thinking, context_management: { edits } }, name)
  t.match(asked(turn(use), { thinking: { type: 'adaptive' } }), { thinking: { type: 'adaptive' }, context_management: { edits } })
  t.match(sent({ max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 2000 }, context_management: { edits } }), { thinking: { type: 'disabled' }, context_management: { edits: [edits[1]] } }, 'a limit of tokens that is too low')
})

t.test('what a block repeats of a search or a citation has its documented members alone', async (t) => {
  const document = { type: 'document', source: { type: 'url', url: 'http://10.0.0.1/a.pdf' } }
  const found = { type: 'web_search_result', title: 'T', url: 'http://10.0.0.1', page_age: null, encrypted_content: 'e' }
  const reference = { type: 'tool_reference', tool_name: 'read' }
  const cited = { type: 'web_search_result_location', cited_text: 'x', encrypted_index: 'i', title: 'T', url: 'http://a.test' }
  const unread = { source: document.source, content: [document] }
  const blocks = (more: object, extra: object[]) => [
    { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [{ ...found, ...more }, ...extra] },
    { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_2', content: { type: 'web_search_tool_result_error', error_code: 'unavailable', ...more } },
    { type: 'tool_search_tool_result', tool_use_id: 'srvtoolu_3', content: { type: 'tool_search_tool_search_result', tool_references: [{ ...reference, ...more }, ...extra] } },
    { type: 'text', text: 'a', citations: [{ ...cited, ...more }, ...extra] },
  ]
  const body = { model: 'svc-code', max_tokens: 100, messages: [{ role: 'user', content: 'q' }, { role: 'assistant', content: blocks(unread, [document]) }] }
  const { addresses } = readMessagesRequest(structuredClone(body), new Set(), { betas: [], promptTokens: () => 9 })
  t.same(addresses, [])
  t.same(sent({ messages: body.messages }).messages[1].content, blocks({}, []))
})

const start = (usage: object = MESSAGE_USAGE) => messageEvent('message_start', { message: messageAnswer([], null, { usage }) })
const delta = (index: number, members: object) => messageEvent('content_block_delta', { index, delta: members })
const END = messageEvent('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } }) + messageEvent('message_stop')

t.test('streams of careless servers are as the wire has them', async (t) => {
  const text = (value: string) => ({ type: 'text_delta', text: value })
  const block = (index: number, content: object) => messageEvent('content_block_start', { index, content_block: content })
  const stop = (index: number) => messageEvent('content_block_stop', { index })
  const cases: [string, string, object[]][] = [
    ['a delta of a block that was not started', start() + delta(0, text('Hi')) + END, [{ type: 'text', text: 'Hi' }]],
    ['no beginning', block(0, { type: 'text', text: '' }) + delta(0, text('Hi')) + END, [{ type: 'text', text: 'Hi' }]],
    ['an empty text before a tool', start() + block(0, { type: 'text', text: '' }) + stop(0) + block(1, CALL) + stop(1) + END, [{ type: 'tool_use', input: CALL.input }]],
    ['no end of a block', start() + block(0, { type: 'text', text: 'H' }) + delta(0, text('i')) + block(1, { ...CALL, id: '', input: {} }) + delta(1, { type: 'input_json_delta', partial_json: '{"a":1}' }) + END, [{ text: 'Hi' }, { type: 'tool_use', id: /^toolu_/, input: { a: 1 } }]],
    ['blocks and deltas of the vendor', start() + block(0, { type: VENDOR }) + delta(0, { type: VENDOR, text: VENDOR }) + stop(0) + block(1, { type: 'text', text: '' }) + delta(1, text('Hi')) + stop(1) + END, [{ type: 'text', text: 'Hi' }]],
    ['no signature', start() + block(0, { type: 'thinking', thinking: 'a' }) + stop(0) + END, [{ type: 'thinking', thinking: 'a', signature: /^sig[a-z]{4}_/ }]],
  ]
  for (const [name, stream, content] of cases) {
    const message = assembled(stream)
    t.match(message.content, content, name)
    t.equal(message.content.length, content.length, name)
    t.equal(message.stop_reason, 'end_turn', name)
  }
})

t.test('usage that is not reported is estimated, at the end of the stream', async (t) => {
  const silent = start({ input_tokens: 0, output_tokens: 0 }) + delta(0, { type: 'text_delta', text: 'Hi' }) + messageEvent('message_delta', { delta: { stop_reason: 'end_turn' } }) + messageEvent('message_stop')
  const events = eventsOf(whole(silent))
  t.equal(events[0]?.message.usage.input_tokens, 9, 'the estimate of the prompt')
  t.match(assembledMessage(events).usage, { input_tokens: ESTIMATE.input, output_tokens: ESTIMATE.output })
  t.match(json(messageAnswer([], null, { usage: null })).usage, { input_tokens: ESTIMATE.input, output_tokens: ESTIMATE.output })
  const stream = callOf({ stream: true }).openRewriter()
  stream.push(Buffer.from(start()))
  t.match(stream.usage(), { input: 20, cachedInput: 8, output: 0 }, 'the prompt is known from the beginning')
  t.match(json(messageAnswer([], null, { usage: { input_tokens: -5, cache_read_input_tokens: 10, output_tokens: 5 } })).usage, { input_tokens: ESTIMATE.input, output_tokens: ESTIMATE.output })
})

t.test('a count that a stream has told is not taken back by a later 0, and no client gets a negative one', async (t) => {
  const first = { input_tokens: 900, cache_read_input_tokens: 100, output_tokens: 1 }
  const end = (usage: object) => start(first) + delta(0, { type: 'text_delta', text: 'Hi' }) + messageEvent('message_delta', { delta: { stop_reason: 'end_turn' }, usage }) + messageEvent('message_stop')
  const cases: [object, object][] = [
    [{ input_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 5 }, { input_tokens: 900, cache_read_input_tokens: 100, cache_creation_input_tokens: 0 }],
    [{ input_tokens: 0, output_tokens: 5 }, { input_tokens: 900, cache_read_input_tokens: 100 }],
    [{ input_tokens: -1, cache_read_input_tokens: -1, cache_creation_input_tokens: -7, output_tokens: 5, cache_creation: { ephemeral_5m_input_tokens: -7 } }, { input_tokens: 900, cache_read_input_tokens: 100, cache_creation_input_tokens: 0 }],
    [{ input_tokens: 200, cache_read_input_tokens: 800, output_tokens: 5 }, { input_tokens: 200, cache_read_input_tokens: 800 }],
  ]
  for (const [usage, expected] of cases) {
    const text = whole(end(usage))
    t.match(assembledMessage(eventsOf(text)).usage, { ...expected, output_tokens: 5 }, JSON.stringify(usage))
    t.notMatch(text, /":-/)
    const stream = readResponsesRequest({ model: 'svc-code', input: 'Hi', stream: true }, new Set()).call(100, ids, () => 1000, ['messages']).openRewriter()
    stream.push(Buffer.from(end(usage)))
    t.match(stream.usage(), { input: 1000, output: 5 }, 'over the Responses wire')
  }
})

t.test('each stop reason is told, an unknown one never as success; failures are errors', async (t) => {
  for (const reason of ['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'pause_turn', 'refusal', 'model_context_window_exceeded', VENDOR]) {
    const told = reason === VENDOR ? 'max_tokens' : reason
    t.equal(json(messageAnswer([], reason)).stop_reason, told)
    t.equal(assembled(messagesStream([{ type: 'text', text: 'a' }], reason)).stop_reason, told)
  }
  const error = { type: 'error', error: { type: 'overloaded_error', message: VENDOR } }
  const begun = messagesStream([{ type: 'text', text: 'Hi' }]).split('event: content_block_stop')[0] ?? ''
  for (const text of [begun, begun + messageEvent('error', error), messageEvent('error', error)]) {
    t.match(eventsOf(whole(text)).at(-1), { type: 'error', error: { type: 'overloaded_error' } })
    t.notMatch(whole(text), /message_stop/)
  }
  t.throws(() => json({ id: 'x' }))
})

t.test('a stream is equal for every place where its bytes are split, and nothing of the vendor passes', async (t) => {
  const random = randomOf(3)
  const long = [THINKING, { type: 'text', text: 'a b c d e "f" \\ é 😀 '.repeat(5) }, CALL]
  for (const [text, step] of [[messagesStream(BLOCKS), 3], [messagesStream(long).replaceAll('\n', '\r\n'), 7], [messagesStream(BLOCKS).slice(0, -200), 19]] as const) {
    const bytes = Buffer.from(text)
    const expected = whole(text)
    let different = 0
    for (let at = 0; at <= bytes.length; at += step)
      if (rewrite(callOf({ stream: true }).openRewriter(), [bytes.subarray(0, at), bytes.subarray(at)]) !== expected) different++
    const pieces: Buffer[] = []
    for (let at = 0; at < bytes.length; ) pieces.push(bytes.subarray(at, (at += 1 + Math.floor(random() * 5))))
    t.equal(rewrite(callOf({ stream: true }).openRewriter(), pieces), expected)
    t.equal(different, 0)
    t.notOk(expected.toLowerCase().includes(VENDOR))
  }
  t.notOk(JSON.stringify(json(messageAnswer(BLOCKS))).includes(VENDOR))
})

t.test('templates of an upstream give what parsing gives', async (t) => {
  const sets = new Map()
  const text = messagesStream([{ type: 'text', text: 'one two three four' }, CALL, { type: 'text', text: 'five "six" é' }])
  const first = rewrite(callOf({ stream: true }).openRewriter(sets), [Buffer.from(text)])
  t.ok([...sets.values()].flat().length > 0)
  t.equal(rewrite(callOf({ stream: true }).openRewriter(sets), [Buffer.from(text)]), first)
  t.equal(whole(text), first)
})

t.test('a model finds its tools by a search of the server, and shows how far it thought where it does not show what', async (t) => {
  const tools = [{ type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' }, { name: 'read', input_schema: { type: 'object' }, defer_loading: true }]
  t.same(sent({ tools }).tools, tools)
  const [first, ...rest] = messagesStream([{ ...THINKING, thinking: '' }]).split(delta(0, { type: 'thinking_delta', thinking: '' }))
  const counted = [100, 200].map((tokens) => ({ type: 'thinking_delta', thinking: '', estimated_tokens: tokens }))
  const events = eventsOf(rewrite(callOf({ stream: true }).openRewriter(), [Buffer.from(first + counted.map((one) => delta(0, one)).join('') + rest.join(''))]))
  t.same(events.flatMap(({ delta: one }) => (one?.type === 'thinking_delta' && one.estimated_tokens !== undefined ? one : [])), counted)
})

t.test('a gateway settles a native answer with its cached tokens and passes known betas', async (t) => {
  const upstream = await openUpstream()
  t.teardown(() => upstream.close())
  const gateway = await openGateway(t, { declared: [{ name: 'one', baseUrl: upstream.url, model: `${VENDOR}-large`, wire: ['messages', 'chat'], apiKey: 'secret', allow: ['beta:mine'] }] })
  const HELLO = { model: 'svc-code', max_tokens: 50, messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello', ...CACHED }] }] }
  for (const stream of [false, true]) {
    upstream.respondWith(stream ? streams(messagesStream(BLOCKS)) : (response) => respond(response, 200, messageAnswer(BLOCKS)))
    const { status, text } = await post(gateway, '/v1/messages?beta=true', { ...HELLO, stream }, { 'anthropic-beta': 'claude-code-20250219,context-1m-2025-08-07, context-management-2025-06-27,inline-tools-2026-09-15,timing-2026-09-09,mine' })
    t.equal(status, 200)
    t.notOk(text.includes(VENDOR))
    t.match(await gateway.settled(), { usage: { input: 20, cachedInput: 8, output: 5 }, estimated: false })
    t.match(upstream.requests.at(-1), {
      path: '/v1/messages',
      headers: { 'x-api-key': 'secret', 'anthropic-beta': 'claude-code-20250219,context-management-2025-06-27,inline-tools-2026-09-15,timing-2026-09-09,mine' },
      body: { model: `${VENDOR}-large`, messages: HELLO.messages },
    })
  }
  upstream.respondWith((response) => respond(response, 400, { type: 'error', error: { type: 'invalid_request_error', message: `prompt is too long: 9 tokens of ${VENDOR}` } }))
  t.match(await post(gateway, '/v1/messages', HELLO), { status: 400, body: { type: 'error', error: { type: 'invalid_request_error', message: /^prompt is too long: (?!.*acmeai)/ } } })
})
