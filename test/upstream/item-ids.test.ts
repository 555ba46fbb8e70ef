/** The ids of items and calls. */
import t from 'tap'
import { repeatedMembers } from '../../src/upstream/wires/responses/response-object.ts'
import { openResponsesStream } from '../../src/upstream/wires/responses/responses-stream.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { chunk, completion, delta, DONE, event, message, response } from '../fakes/upstream-wire.ts'
import { dataOf, type Loose } from './gateway.ts'
import { ESTIMATE, ids, rewrite } from './translation.ts'

t.test('an item has one id in all events, also where some leave it out, and after an unknown item', async (t) => {
  const place = { output_index: 1, content_index: 0 }
  const { id: _id, ...unnamed } = message('ab')
  const strange = { type: 'vendor_thing' }
  for (const [first, end] of [[message(''), unnamed], [unnamed, unnamed], [message(''), message('ab')]] as const) {
    const text = [
      event('response.created', { response: response('in_progress') }),
      event('response.output_item.added', { output_index: 0, item: strange }),
      event('response.output_item.added', { output_index: 1, item: { ...first, content: [] } }),
      ...['a', 'b'].map((delta) => event('response.output_text.delta', { ...place, delta })),
      event('response.output_item.done', { output_index: 1, item: end }),
      event('response.completed', { response: response('completed', [strange, end]) }),
    ].join('')
    const found = dataOf(rewrite(openResponsesStream({ ids, repeated: repeatedMembers({}, new Set(), 1000), now: () => 1000 }), [Buffer.from(text)])).flatMap((one) => [one.item_id, one.item?.id, one.response?.output?.[0]?.id]).filter((id) => id !== undefined)
    t.equal(found.length, 5)
    t.equal(new Set(found).size, 1, JSON.stringify(found))
  }
})

const TARGET = { model: 'm', origin: '', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const HI = { role: 'user', content: 'Hi' }
const CALL = { id: 'a', type: 'function', function: { name: 'read', arguments: '{}' } }
const THOUGHT = { reasoning_content: 'Let me see.' }

/** What a client of a wire gets of calls, and how it replays them to a chat server without the reasoning. */
const CLIENTS = {
  chat: {
    call: (messages: object[] = [HI]) => readChatRequest({ model: 'svc-code', messages }, new Set()).call(100, ids, () => 1000, ['chat']),
    ids: (answer: Loose): string[] => answer.choices[0].message.tool_calls.map(({ id }: Loose) => id),
    streamed: (events: Loose[]): string[] => events.flatMap(({ choices }) => choices?.[0]?.delta.tool_calls ?? []).flatMap(({ id }: Loose) => id ?? []),
    replay: (calls: string[], more: object = {}) => [HI, { role: 'assistant', content: null, ...more, tool_calls: calls.map((id) => ({ ...CALL, id })) }, ...calls.map((id) => ({ role: 'tool', tool_call_id: id, content: 'ok' }))],
  },
  responses: {
    call: (input: object[] = [HI]) => readResponsesRequest({ model: 'svc-code', input }, new Set()).call(100, ids, () => 1000, ['chat']),
    ids: (answer: Loose): string[] => answer.output.flatMap(({ call_id: id }: Loose) => id ?? []),
    streamed: (events: Loose[]): string[] => events.filter(({ type }) => type === 'response.output_item.done').flatMap(({ item }) => item.call_id ?? []),
    replay: (calls: string[]) => [HI, ...calls.map((id) => ({ type: 'function_call', call_id: id, name: 'read', arguments: '{}' })), ...calls.map((id) => ({ type: 'function_call_output', call_id: id, output: 'ok' }))],
  },
}

t.test('a placeholder stands for reasoning that a client does not send back with its calls, and for no other', async (t) => {
  const second = { ...CALL, id: 'b' }
  const answer = (more: object) => completion('', { choices: [{ index: 0, finish_reason: 'tool_calls', message: { role: 'assistant', content: null, ...more, tool_calls: [CALL, second] } }] })
  const stream = (...thoughts: object[]) => [...thoughts.map((one) => chunk([delta(one)])), ...[CALL, second].map((call, index) => chunk([delta({ tool_calls: [{ index, ...call }] })])), chunk([delta({}, 'tool_calls')]), DONE].join('')
  for (const [wire, client] of Object.entries(CLIENTS)) {
    const sent = (calls: string[], more?: object): Loose[] => JSON.parse(client.call(client.replay(calls, more)).body(TARGET)).messages
    const whole = (more: object) => client.ids(JSON.parse(client.call().rewriteJson(answer(more)).body(ESTIMATE)))
    const templates = new Map()
    const streamed = (...thoughts: object[]) => client.streamed(dataOf(rewrite(client.call().openRewriter(templates), [Buffer.from(stream(...thoughts))])))
    const pieces = [{ role: 'assistant', content: '' }, { reasoning_content: 'Let ' }, { reasoning_content: 'me ' }, { reasoning_content: 'see.' }]
    // The second stream is rewritten by the templates of the first.
    for (const calls of [whole(THOUGHT), streamed(...pieces), streamed(...pieces)]) {
      const [, turn, ...results] = sent(calls)
      t.match(turn, { reasoning_content: ' ', tool_calls: [CALL, second] }, wire)
      t.match(results, [{ tool_call_id: 'a' }, { tool_call_id: 'b' }])
    }
    for (const calls of [whole({}), whole({ reasoning: 'x' }), streamed({ content: 'x' })]) t.notOk('reasoning_content' in (sent(calls)[1] ?? {}), `${wire} without`)
  }
  const calls = CLIENTS.chat.ids(JSON.parse(CLIENTS.chat.call().rewriteJson(answer(THOUGHT)).body(ESTIMATE)))
  for (const kept of [THOUGHT, { reasoning: 'x' }]) {
    const [, turn] = JSON.parse(CLIENTS.chat.call(CLIENTS.chat.replay(calls, kept)).body(TARGET)).messages
    t.match(turn, kept)
    t.equal(turn.reasoning_content, (kept as Loose).reasoning_content, 'what is sent back stays')
  }
})
