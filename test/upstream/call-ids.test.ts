/** Ids of calls that are long or have strange characters, replayed to any upstream over any wire. */
import t from 'tap'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { WIRES, type UpstreamCall, type WireName } from '../../src/upstream/wires/wire.ts'
import { USAGE } from '../fakes/upstream-wire.ts'
import type { Loose } from './gateway.ts'
import { ESTIMATE } from './translation.ts'

const open = openIds([Buffer.alloc(48, 1)])
const NONE: ReadonlySet<string> = new Set()
/** What servers of the wire take, by the documentation of OpenAI and Anthropic. */
const VALID: Record<WireName, RegExp> = { chat: /^.{1,40}$/, responses: /^.{1,64}$/, messages: /^[a-zA-Z0-9_-]+$/ }
const target = (origin: string) => ({ origin, model: 'big', maxTokensField: null, policy: { allow: NONE, drop: NONE, force: {} } })

/** The conversation of a client, which got a call with this id and sends its result. */
const CLIENTS: Record<WireName, (id: string) => object> = {
  chat: (id) => ({
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: null, tool_calls: [{ id, type: 'function', function: { name: 'read', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: id, content: 'ok' },
    ],
  }),
  responses: (id) => ({
    input: [{ role: 'user', content: 'Hi' }, { type: 'function_call', call_id: id, name: 'read', arguments: '{}' }, { type: 'function_call_output', call_id: id, output: 'ok' }],
  }),
  messages: (id) => ({
    max_tokens: 100,
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: [{ type: 'tool_use', id, name: 'read', input: {} }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: 'ok' }] },
    ],
  }),
}

/** The answer of an upstream that calls with this id. */
const ANSWERS: Record<WireName, (id: string) => object> = {
  chat: (id) => ({ id: 'x', created: 5, usage: USAGE, choices: [{ index: 0, finish_reason: 'tool_calls', message: { role: 'assistant', content: null, tool_calls: [{ id, type: 'function', function: { name: 'read', arguments: '{}' } }] } }] }),
  responses: (id) => ({ id: 'resp_1', status: 'completed', output: [{ type: 'function_call', id: 'fc_1', call_id: id, name: 'read', arguments: '{}' }] }),
  messages: (id) => ({ id: 'msg_1', content: [{ type: 'tool_use', id, name: 'read', input: {} }], stop_reason: 'tool_use' }),
}

/** The id of the call in an answer that the client got. */
const GIVEN: Record<WireName, (answer: Loose) => string> = {
  chat: ({ choices }) => choices[0].message.tool_calls[0].id,
  responses: ({ output }) => output.find(({ type }: Loose) => type === 'function_call').call_id,
  messages: ({ content }) => content.find(({ type }: Loose) => type === 'tool_use').id,
}

/** The ids of the call and of its result in what an upstream is sent. */
const SENT: Record<WireName, (body: Loose) => [string, string]> = {
  chat: ({ messages }) => [messages[1].tool_calls[0].id, messages[2].tool_call_id],
  responses: ({ input }) => [input[1].call_id, input[2].call_id],
  messages: ({ messages }) => [messages[1].content[0].id, messages[2].content[0].tool_use_id],
}

function callOf(client: WireName, id: string, upstream: WireName): UpstreamCall {
  const body = { model: 'svc-code', ...CLIENTS[client](id) }
  const request = client === 'chat' ? readChatRequest(body, NONE) : client === 'responses' ? readResponsesRequest(body, NONE) : readMessagesRequest(body, NONE, { betas: [], promptTokens: () => 9 })
  return request.call(100, open('acme/first'), () => 1000, [upstream])
}

/** The ids that an upstream of this origin is sent. */
const replayed = (client: WireName, id: string, upstream: WireName, origin: string) => SENT[upstream](JSON.parse(callOf(client, id, upstream).body(target(origin))))

/** The id that a client gets for a call of the upstream `one`. */
function given(client: WireName, upstream: WireName, id: string): string {
  const call = callOf(client, 'call_1', upstream)
  call.body(target('one'))
  return GIVEN[client](JSON.parse(call.rewriteJson(ANSWERS[upstream](id)).body(ESTIMATE)))
}

const LONG = `call_${'a1'.repeat(20)}`
const LONGER = `call_1__thought__${'aZ9+/='.repeat(60)}`

for (const client of WIRES)
  t.test(`a client of ${client}: an upstream gets its own ids of calls back, and another one ids that it takes`, async (t) => {
    for (const upstream of WIRES)
      for (const id of ['call_1', 'functions.read:0', LONG, LONGER]) {
        const replayable = given(client, upstream, id)
        t.ok(VALID.messages.test(replayable))
        const [called, answered] = replayed(client, replayable, upstream, 'one')
        t.equal(answered, called)
        if (upstream !== 'messages' || VALID.messages.test(id)) t.equal(called, id, `${upstream}: its own`)
        for (const other of WIRES) {
          const [call, result] = replayed(client, replayable, other, 'two')
          t.match(call, VALID[other], `${upstream} to ${other}: ${id.length} characters`)
          t.equal(result, call)
          if (VALID[other].test(id)) t.equal(call, id)
        }
      }
  })

t.test('ids that no upstream of ours gave are shortened for each', async (t) => {
  const foreign = `call_${open('other/plan').encrypt('', LONG)}`
  for (const client of WIRES)
    for (const upstream of WIRES)
      for (const id of [LONG, LONGER, foreign]) {
        const [call, result] = replayed(client, id, upstream, 'one')
        t.match(call, VALID[upstream])
        t.equal(result, call)
      }
})
