/** Faults that gateways of the Messages wire are known for, over careless upstreams of each wire. `post` validates every answer. */
import t, { type Test } from 'tap'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { CALL, messageAnswer, messageEvent } from '../fakes/messages-wire.ts'
import { openUpstream, streams, type FakeUpstream } from '../fakes/upstream.ts'
import { chunk, delta, DONE, event, response, USAGE } from '../fakes/upstream-wire.ts'
import { openGateway, post, type Gateway, type Loose } from '../upstream/gateway.ts'
import { assembledMessage, eventsOf } from '../upstream/message-events.ts'

const ASKED = {
  model: 'svc-code',
  max_tokens: 2048,
  stream: true,
  thinking: { type: 'adaptive' },
  tools: [{ name: 'read', input_schema: { type: 'object' } }],
  messages: [{ role: 'user', content: 'Read it' }],
}

const chatEnd = (reason: string, usage: object | null = USAGE) => [chunk([delta({}, reason)]), ...(usage ? [chunk([], { usage })] : []), DONE]
const fragment = (members: object) => chunk([delta({ tool_calls: [{ index: 0, ...members }] })])
const chatCall = [fragment({ id: 'c1', type: 'function', function: { name: 'read', arguments: '' } }), fragment({ function: { arguments: '{"path":"a.txt"}' } })]

const textItem = (text: string) => ({ id: 'msg_1', type: 'message', status: 'completed', role: 'assistant', content: [{ type: 'output_text', text, annotations: [] }] })
const callItem = { id: 'fc_1', type: 'function_call', status: 'completed', call_id: 'c1', name: 'read', arguments: '{"path":"a.txt"}' }
const thought = { id: 'rs_1', type: 'reasoning', summary: [{ type: 'summary_text', text: 'I look.' }] }
const textDelta = (text: string) => event('response.output_text.delta', { item_id: 'msg_1', output_index: 0, content_index: 0, delta: text })
const itemDone = (index: number, item: object) => event('response.output_item.done', { output_index: index, item })
const responsesBegin = event('response.created', { response: response('in_progress') })
const responsesEnd = (output: object[], more: object = {}) => event('response.completed', { response: response('completed', output, more) })

const begin = (usage: object = { input_tokens: 20, output_tokens: 1 }) => messageEvent('message_start', { message: messageAnswer([], null, { usage }) })
const start = (index: number, block: object) => messageEvent('content_block_start', { index, content_block: block })
const add = (index: number, one: object) => messageEvent('content_block_delta', { index, delta: one })
const stop = (index: number) => messageEvent('content_block_stop', { index })
const messagesEnd = (reason: string, usage: object = { output_tokens: 5 }) => [messageEvent('message_delta', { delta: { stop_reason: reason, stop_sequence: null }, usage }), messageEvent('message_stop')]
const block = (index: number, first: object, ...deltas: object[]) => [start(index, first), ...deltas.map((one) => add(index, one)), stop(index)]
const messagesCall = (index: number) => block(index, { ...CALL, input: {} }, { type: 'input_json_delta', partial_json: '{"path":"a.txt"}' })

const ZERO = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }
const ZERO_RESPONSE = { input_tokens: 0, output_tokens: 0, total_tokens: 0 }
const ZERO_MESSAGE = { input_tokens: 0, output_tokens: 0 }

/** What a careless upstream of each wire streams. */
const STREAMS: Record<string, Record<WireName, string[]>> = {
  unstarted: {
    chat: [fragment({ function: { arguments: '{}' } }), chunk([delta({ content: 'Hello' })]), ...chatEnd('stop')],
    responses: [responsesBegin, textDelta('Hello'), responsesEnd([textItem('Hello')])],
    messages: [begin(), add(0, { type: 'text_delta', text: 'Hello' }), ...messagesEnd('end_turn')],
  },
  uncounted: {
    chat: [chunk([delta({ content: 'Hello to you' })]), ...chatEnd('stop', null)],
    responses: [responsesBegin, textDelta('Hello to you'), responsesEnd([textItem('Hello to you')], { usage: null })],
    messages: [begin({}), ...block(0, { type: 'text', text: '' }, { type: 'text_delta', text: 'Hello to you' }), ...messagesEnd('end_turn', {})],
  },
  zeros: {
    chat: [chunk([delta({ content: 'Hello to you' })]), ...chatEnd('stop', ZERO)],
    responses: [responsesBegin, textDelta('Hello to you'), responsesEnd([textItem('Hello to you')], { usage: ZERO_RESPONSE })],
    messages: [begin(ZERO_MESSAGE), ...block(0, { type: 'text', text: '' }, { type: 'text_delta', text: 'Hello to you' }), ...messagesEnd('end_turn', ZERO_MESSAGE)],
  },
  emptyText: {
    chat: [chunk([delta({ role: 'assistant', content: '' })]), ...chatCall, ...chatEnd('tool_calls')],
    responses: [responsesBegin, itemDone(0, textItem('')), itemDone(1, callItem), responsesEnd([textItem(''), callItem])],
    messages: [begin(), ...block(0, { type: 'text', text: '' }), ...messagesCall(1), ...messagesEnd('tool_use')],
  },
  unsigned: {
    chat: [chunk([delta({ reasoning_content: 'I look.' })]), ...chatCall, ...chatEnd('tool_calls')],
    responses: [responsesBegin, itemDone(0, thought), itemDone(1, callItem), responsesEnd([thought, callItem])],
    messages: [begin(), ...block(0, { type: 'thinking', thinking: '', signature: '' }, { type: 'thinking_delta', thinking: 'I look.' }), ...messagesCall(1), ...messagesEnd('tool_use')],
  },
}
const brokenOff = (wire: WireName) => STREAMS['unstarted']![wire].slice(0, wire === 'chat' ? 2 : -2)

for (const wire of WIRES) {
  t.test(`over an upstream that speaks ${wire}`, async (t) => {
    const upstream = await openUpstream()
    t.teardown(() => upstream.close())
    const gateway = await openGateway(t, { declared: [{ name: 'main', baseUrl: upstream.url, model: 'big', wire }] })
    for (const [promise, hold] of PROMISES) await t.test(promise, (t) => hold(t, { gateway, upstream, wire }))
  })
}

type Setting = { gateway: Gateway; upstream: FakeUpstream; wire: WireName }

async function streamed({ gateway, upstream, wire }: Setting, name: string, asked: object = ASKED): Promise<Loose[]> {
  upstream.respondWith(streams(...(STREAMS[name]?.[wire] ?? [])))
  const { status, text } = await post(gateway, '/v1/messages', asked)
  if (status !== 200) throw new Error(text)
  return eventsOf(text)
}

async function delta0(t: Test, setting: Setting): Promise<void> {
  t.match(assembledMessage(await streamed(setting, 'unstarted')).content, [{ type: 'text', text: 'Hello' }])
  await setting.gateway.settled()
}

async function counted(t: Test, setting: Setting): Promise<void> {
  for (const name of ['uncounted', 'zeros']) {
    const events = await streamed(setting, name)
    t.ok(events[0].message.usage.input_tokens > 0, 'the estimate of the prompt, at the beginning')
    const { usage } = assembledMessage(events)
    const settled = await setting.gateway.settled()
    t.ok(settled!.usage.output > 0, `${name}: charged`)
    if (name === 'uncounted') t.ok(usage.input_tokens > 0 && usage.output_tokens > 0)
  }
}

async function noEmptyText(t: Test, setting: Setting): Promise<void> {
  const { content, stop_reason: reason } = assembledMessage(await streamed(setting, 'emptyText'))
  t.match(content, [{ type: 'tool_use', name: 'read', input: { path: 'a.txt' } }])
  t.equal(content.length, 1)
  t.equal(reason, 'tool_use')
  await setting.gateway.settled()
}

async function endsByError(t: Test, { gateway, upstream, wire }: Setting): Promise<void> {
  upstream.respondWith(streams(...brokenOff(wire)))
  const events = eventsOf((await post(gateway, '/v1/messages', ASKED)).text)
  t.equal(events[0].type, 'message_start')
  t.match(events.at(-1), { type: 'error', error: { type: /^(overloaded|api)_error$/, message: String }, request_id: String })
  await gateway.settled()
}

async function counts(t: Test, { gateway, upstream }: Setting): Promise<void> {
  const asked = upstream.requests.length
  const { status, body } = await post(gateway, '/v1/messages/count_tokens?beta=true', { ...ASKED, stream: undefined, max_tokens: undefined })
  t.equal(status, 200)
  t.ok(body.input_tokens > 0)
  t.equal(upstream.requests.length, asked, 'by the gateway itself')
}

/** The next turn must not be refused for what its thinking lacks. */
async function signs(t: Test, setting: Setting): Promise<void> {
  const { content } = assembledMessage(await streamed(setting, 'unsigned'))
  t.match(content, [{ type: 'thinking', thinking: 'I look.', signature: /./ }, { type: 'tool_use' }])
  await setting.gateway.settled()
  const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: content[1].id, content: 'It says hello.' }] }
  await streamed(setting, 'unstarted', { ...ASKED, messages: [...ASKED.messages, { role: 'assistant', content }, result] })
  await setting.gateway.settled()
  const sent = setting.upstream.requests.at(-1)!.text
  t.ok(sent.includes('It says hello.'))
  if (setting.wire === 'chat') t.match(sent, /"reasoning_content":"I look\."/)
  if (setting.wire === 'messages') t.match(sent, /"thinking":"I look\."/, 'the upstream that did not sign it gets it as it was')
}

const PROMISES: [string, (t: Test, setting: Setting) => Promise<void>][] = [
  ['a delta of a block that was never started starts one', delta0],
  ['usage that the upstream leaves out is estimated, and zeros are charged as what was metered', counted],
  ['an empty text before a tool is no block', noEmptyText],
  ['a stream that the upstream breaks off ends with an error event', endsByError],
  ['count_tokens is answered by the gateway', counts],
  ['thinking without a signature gets one, and the next turn passes', signs],
]
