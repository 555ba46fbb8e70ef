/** Reasoning that only the upstream can read that gave it: conversations stay there, and lose it where they cannot. */
import t from 'tap'
import type { Upstream } from '../../src/upstream/http/upstream.ts'
import { candidatesFor } from '../../src/upstream/selection/load-balancing.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds, type Sealed } from '../../src/upstream/wires/encrypted-ids.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { openReasoning } from '../../src/upstream/wires/sealed-members.ts'
import type { Target } from '../../src/upstream/wires/wire.ts'
import { openUpstream, respond, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { chunk, delta, DONE } from '../fakes/upstream-wire.ts'
import { dataOf, openGateway, type Gateway, type Loose } from './gateway.ts'
import { rewrite } from './translation.ts'

type Wire = 'chat' | 'responses' | 'messages'
type Json = Record<string, Loose>

const secret = (name: string) => `secret of ${name}`

/** An answer with reasoning, sealed by its upstream, and a call. */
const ANSWERS: Record<Wire, (name: string, turn: number) => Json> = {
  chat: (name, turn) => ({
    choices: [{
      finish_reason: 'tool_calls',
      message: {
        role: 'assistant',
        content: null,
        reasoning_details: [{ type: 'reasoning.encrypted', data: secret(name) }],
        tool_calls: [{ id: `c${turn}`, type: 'function', function: { name: 'read', arguments: '{}' }, extra_content: { google: { thought_signature: secret(name) } } }],
      },
    }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }),
  responses: (name, turn) => ({
    status: 'completed',
    output: [
      { type: 'reasoning', id: `rs_${turn}`, summary: [], encrypted_content: secret(name) },
      { type: 'function_call', id: `fc_${turn}`, call_id: `c${turn}`, name: 'read', arguments: '{}', status: 'completed' },
    ],
    usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
  }),
  messages: (name, turn) => ({
    type: 'message',
    role: 'assistant',
    content: [{ type: 'thinking', thinking: 'I look.', signature: secret(name) }, { type: 'tool_use', id: `c${turn}`, name: 'read', input: {} }],
    stop_reason: 'tool_use',
    usage: { input_tokens: 1, output_tokens: 1 },
  }),
}

const PARAMETERS = { type: 'object', properties: {} }
const CALLED = { chat: 'tool_calls', responses: 'call_id', messages: 'tool_use' }

/** A client of a wire: the path and body of its first turn, and what it appends of an answer. */
const CLIENTS: Record<Wire, { path: string; body: () => Json; next: (body: Json, answer: Json) => void }> = {
  chat: {
    path: '/v1/chat/completions',
    body: () => ({ messages: [{ role: 'user', content: 'Read it.' }], tools: [{ type: 'function', function: { name: 'read', parameters: PARAMETERS } }] }),
    next: ({ messages }, { choices: [{ message }] }) => void messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'text' }),
  },
  responses: {
    path: '/v1/responses',
    body: () => ({ input: [{ role: 'user', content: 'Read it.' }], include: ['reasoning.encrypted_content'], tools: [{ type: 'function', name: 'read', parameters: PARAMETERS, strict: false }] }),
    next: ({ input }, { output }) => void input.push(...output, { type: 'function_call_output', call_id: output.at(-1).call_id, output: 'text' }),
  },
  messages: {
    path: '/v1/messages',
    body: () => ({ max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 1024 }, messages: [{ role: 'user', content: 'Read it.' }], tools: [{ name: 'read', input_schema: PARAMETERS }] }),
    next: ({ messages }, { content }) =>
      void messages.push({ role: 'assistant', content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: content.at(-1).id, content: 'text' }] }),
  },
}

async function turnOf({ url }: Gateway, client: Wire, body: Json): Promise<Json> {
  const { path, next } = CLIENTS[client]
  const response = await fetch(url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', ...body }) })
  const answer = (await response.json()) as Json
  if (response.status !== 200) throw new Error(JSON.stringify(answer))
  next(body, answer)
  return answer
}

for (const wire of ['chat', 'responses', 'messages'] as const) {
  for (const client of ['chat', 'responses', 'messages'] as const) {
    t.test(`a ${client} client over two ${wire} upstreams`, async (t) => {
      let turns = 0
      const answering = (name: string): Script => (answer) => respond(answer, 200, ANSWERS[wire](name, turns++))
      const names = ['one', 'other']
      const fakes = (await Promise.all(names.map((name) => openUpstream(answering(name))))) as [FakeUpstream, FakeUpstream]
      t.teardown(() => Promise.all(fakes.map((fake) => fake.close())))
      const declared = fakes.map(({ url }, n) => ({ name: names[n], baseUrl: url, model: 'm', wire, retry: { attempts: 1 }, breaker: { failures: 9 } }))
      const gateway = await openGateway(t, { declared })
      const last = (n: number) => fakes[n]?.requests.at(-1) ?? { text: '', body: {} as Json }

      const body = CLIENTS[client].body()
      await turnOf(gateway, client, body)
      const [first, second] = fakes[0].requests.length === 1 ? [0, 1] : [1, 0]
      for (let n = 0; n < 4; n++) await turnOf(gateway, client, body)
      t.equal(fakes[first]?.requests.length, 5, 'it stays where its reasoning can be read')
      t.equal(last(first).text.split(secret(names[first] ?? '')).length - 1, wire === 'chat' ? 8 : 4, 'with all of it')

      fakes[first]?.respondWith((answer) => respond(answer, 500, {}))
      await turnOf(gateway, client, body)
      t.notMatch(last(second).text, secret(names[first] ?? ''), 'another upstream cannot read it')
      t.equal(last(second).text.split(CALLED[wire]).length > 5, true, 'and gets the calls')
      if (wire === 'messages') t.not(last(second).body['thinking']?.type, 'enabled', 'a turn without its thinking')

      fakes[first]?.respondWith(answering(names[first] ?? ''))
      await turnOf(gateway, client, body)
      t.equal(fakes[first]?.requests.length, 6, 'it stays where it went')
      t.match(last(second).text, secret(names[second] ?? ''))
      t.notMatch(last(second).text, secret(names[first] ?? ''))
    })
  }
}

t.test('what is sealed tells its origin to the gateway alone, and is opened with every key', async (t) => {
  const [older, newer] = [Buffer.alloc(48, 1), Buffer.alloc(48, 2)]
  const ids = openIds([older])('acme/first')
  ids.origin = 'one'
  const sealed = ['a', 'b', 'c'].map((text) => ids.seal('enc', text))
  t.equal(new Set(sealed.map((text) => text.slice(0, 7))).size, 3, 'the sign of an upstream is another one for each text')
  const rotated = openIds([newer, older])('acme/first')
  for (const text of sealed) {
    t.match(text, /^enc[a-z]{4}_/)
    t.ok(rotated.isFrom('one', text))
    t.notOk(rotated.isFrom('other', text))
  }
  t.same(sealed.map((text) => rotated.decrypt(text)), ['a', 'b', 'c'])
  t.ok(rotated.isFrom('other', ids.encrypt('enc_', 'a')), 'earlier releases did not tell')
})

/** A server of a thinking model, which refuses turns with calls that come back without their reasoning. */
const demanding: Script = (answer, { body }) => {
  const lacking = (body['messages'] as Json[]).findIndex((one) => one['tool_calls'] && !one['reasoning_content'])
  if (lacking < 0) return respond(answer, 200, { ...ANSWERS.chat('other', 9), choices: [{ finish_reason: 'stop', message: { role: 'assistant', content: 'Done.' } }] })
  const message = `thinking is enabled but reasoning_content is missing in assistant tool call message at index ${lacking}`
  respond(answer, 400, { error: { message, type: 'invalid_request_error' } })
}

t.test('a server that needs the reasoning of turns with calls gets it, also after a failover from any other one', async (t) => {
  for (const wire of ['chat', 'responses', 'messages'] as const) {
    for (const client of ['chat', 'responses', 'messages'] as const) {
      const fakes = (await Promise.all([openUpstream((answer) => respond(answer, 200, ANSWERS[wire]('one', 1))), openUpstream(demanding)])) as [FakeUpstream, FakeUpstream]
      t.teardown(() => Promise.all(fakes.map((fake) => fake.close())))
      const declared = fakes.map(({ url }, n) => ({ name: `u${n}`, baseUrl: url, model: 'm', wire: n === 0 ? wire : 'chat', priority: n, retry: { attempts: 1 }, breaker: { failures: 9 } }))
      const gateway = await openGateway(t, { declared })
      const body = CLIENTS[client].body()
      await turnOf(gateway, client, body)
      fakes[0].respondWith((answer) => respond(answer, 500, {}))
      // As it may come several times at once: a large body is made before the refusal of another request, and sent after it.
      const large = structuredClone(body);
      (large['messages'] ?? large['input'])[0].content = 'x'.repeat(2_000_000)
      const answers = await Promise.all([body, large, large].map((one) => fetch(gateway.url + CLIENTS[client].path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', ...one }) })))
      t.same(answers.map(({ status }) => status), [200, 200, 200], `${client} client, ${wire} before`)
      const refused = fakes[1].requests.length - 3
      t.ok(refused <= 3, 'each that was under way, at most')
      await fetch(gateway.url + CLIENTS[client].path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', ...body }) })
      t.equal(fakes[1].requests.length, refused + 4, 'what it needs is remembered')
      t.match(fakes[1].requests.at(-1)?.body['messages'], [{}, { tool_calls: Array, reasoning_content: /^ $|^I look\.$/ }, { role: 'tool' }])
    }
  }
})

t.test('a refusal that quotes a client teaches nothing about the server', async (t) => {
  const fake = await openUpstream((answer, { body }) => {
    for (const message of body['messages'] as Json[]) {
      if ('reasoning_content' in message) return respond(answer, 400, { error: { message: "Unknown parameter: 'messages[1].reasoning_content'." } })
      if (message['role'] !== 'user' && message['role'] !== 'assistant') return respond(answer, 400, { error: { message: `Invalid value: '${message['role']}'.` } })
    }
    respond(answer, 200, ANSWERS.chat('one', 1))
  })
  t.teardown(() => fake.close())
  const gateway = await openGateway(t, { declared: [{ name: 'one', baseUrl: fake.url, model: 'm', wire: 'chat' }] })
  const said = (role: string) => ({ messages: [{ role: 'user', content: 'a' }, { role, content: 'b' }, { role: 'user', content: 'c' }] })
  await turnOf(gateway, 'chat', said('assistant'))
  await t.rejects(turnOf(gateway, 'chat', said('reasoning_content must')), /invalid_request/)
  await turnOf(gateway, 'chat', said('assistant'))
})

t.test('a server that does not take reasoning is not sent any', async (t) => {
  const fake = await openUpstream((answer) => respond(answer, 400, { error: { message: "property 'messages.1.reasoning_content' is unsupported, it must be removed" } }))
  t.teardown(() => fake.close())
  const gateway = await openGateway(t, { declared: [{ name: 'one', baseUrl: fake.url, model: 'm', wire: 'chat' }] })
  await t.rejects(turnOf(gateway, 'chat', CLIENTS.chat.body()), /invalid_request/)
  t.equal(fake.requests.length, 1)
})

t.test('a compacted conversation goes to the upstream that can read it, unless it is gone', async (t) => {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  for (const more of [[], [{ type: 'compaction_trigger' }]]) {
    const { call } = readResponsesRequest({ model: 'svc-code', input: [{ type: 'compaction', encrypted_content: sealedBy('one') }, { role: 'user', content: 'Hi' }, ...more] }, new Set())
    const made = call(100, ids, () => 1, ['responses'])
    const upstreams = ['one', 'other'].map((name) => ({ settings: { name, wires: ['responses'], priority: name === 'one' ? 1 : 0, weight: 1 }, target: { origin: name, policy: { allow: new Set(['compaction_trigger']) } } })) as unknown as Upstream[]
    const names = (some: Upstream[]) => candidatesFor(made, some, () => 0.5).map(({ upstream }) => upstream.settings.name)
    t.same(names(upstreams), ['one'])
    t.same(names(upstreams.slice(1)), ['other'])
  }
})

t.test('what is left out for another upstream leaves a conversation that it takes', async (t) => {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  const bodyOf = (call: { body(target: Target): string }): Json => JSON.parse(call.body({ origin: 'other', model: 'm', maxTokensField: null, policy: { allow: new Set(), drop: new Set(), force: {} } })) as Json
  const details = [{ type: 'reasoning.encrypted', data: sealedBy('one', 'seal', '{"details":[{"type":"reasoning.text","text":"x"}]}') }]
  const messages = [{ role: 'user', content: 'a' }, { role: 'assistant', content: null, reasoning_details: details }, { role: 'user', content: 'b' }]
  t.same(bodyOf(readChatRequest({ model: 'svc-code', messages }, new Set()).call(100, ids, () => 1, ['chat']))['messages'].map(({ role }: Json) => role), ['user', 'user'], 'a message of reasoning alone')
  const input = [{ role: 'user', content: 'a' }, { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: sealedBy('one') }, { type: 'message', role: 'assistant', id: 'x-msg_1', content: [] }]
  t.same(bodyOf(readResponsesRequest({ model: 'svc-code', input }, new Set()).call(100, ids, () => 1, ['responses']))['input'], [{ role: 'user', content: 'a' }, { type: 'message', role: 'assistant', content: [] }], 'an id of another upstream')
})

t.test('streamed reasoning details reach a chat client as one entry, however many fragments they have', async (t) => {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  ids.origin = 'one'
  const fragment = (text: string) => chunk([delta({ reasoning: text, reasoning_details: [{ type: 'reasoning.text', text, index: 0 }] })])
  const thoughts = Array.from({ length: 50 }, (_, n) => fragment(`t${n % 2} `))
  const called = delta({ tool_calls: [{ index: 0, id: 'a', type: 'function', function: { name: 'read', arguments: '{}' } }] })
  const templates = new Map()
  for (const rest of [[chunk([called]), chunk([delta({}, 'tool_calls')])], [chunk([delta({ content: 'x' })]), chunk([delta({}, 'stop')])], [chunk([delta({}, 'stop')])], []]) {
    for (let n = 0; n < 3; n++) {
      const { openRewriter } = readChatRequest({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }] }, new Set()).call(100, ids, () => 1, ['chat'])
      const events: Json[] = dataOf(rewrite(openRewriter(templates), [Buffer.from([...thoughts, ...rest, DONE].join(''))]))
      const deltas: Json[] = events.flatMap(({ choices }) => choices ?? []).map((choice: Json) => choice['delta'])
      t.equal(deltas.map(({ reasoning }) => reasoning ?? '').join(''), 't0 t1 '.repeat(25))
      const entries = deltas.flatMap(({ reasoning_details: some }) => some ?? [])
      t.equal(entries.length, 1)
      t.match(openReasoning(entries[0].data, ids)?.details, [{ type: 'reasoning.text', text: 't0 t1 '.repeat(25), index: 0 }])
    }
  }
})

t.test('reasoning details that come after the finish reason reach a chat client', (t) => {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  ids.origin = 'one'
  const late = delta({ reasoning_details: [{ type: 'reasoning.encrypted', data: 'secret', index: 0 }] })
  const { openRewriter } = readChatRequest({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }] }, new Set()).call(100, ids, () => 1, ['chat'])
  const events: Json[] = dataOf(rewrite(openRewriter(), [Buffer.from([chunk([delta({ content: 'x' })]), chunk([delta({}, 'stop')]), chunk([late]), DONE].join(''))]))
  const [entry] = events.flatMap(({ choices }) => choices ?? []).flatMap((choice: Json) => choice['delta'].reasoning_details ?? [])
  t.match(openReasoning(entry?.data, ids)?.details, [{ data: 'secret' }])
  t.end()
})

t.test('streamed reasoning details are sealed for clients of other wires as they are joined', async (t) => {
  const thoughts = Array.from({ length: 75_000 }, (_, n) => chunk([delta({ reasoning_details: [{ type: 'reasoning.text', text: `thought ${n}`, index: 0 }] })]))
  const bytes = [Buffer.from([...thoughts, chunk([delta({ content: 'x' })]), chunk([delta({}, 'stop')]), DONE].join(''))]
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  ids.origin = 'one'
  const { openRewriter } = readResponsesRequest({ model: 'svc-code', input: 'Hi' }, new Set()).call(100, ids, () => 1, ['chat'])
  const [item] = dataOf(rewrite(openRewriter(), bytes)).at(-1)!['response'].output
  t.ok(item.encrypted_content.length < 2_000_000, 'though the fragments are longer than what is collected')
  t.match(openReasoning(item.encrypted_content, ids)?.details, [{ type: 'reasoning.text', text: /^thought 0thought 1thought 2/, index: 0 }])
})

/** What an upstream with this origin gave. */
function sealedBy(origin: string, prefix: Sealed = 'enc', text = secret(origin)): string {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  ids.origin = origin
  return ids.seal(prefix, text)
}
