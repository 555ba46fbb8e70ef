/** Reasoning that only the upstream can read that gave it: conversations stay there, and lose it where they cannot. */
import t from 'tap'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { openUpstream, respond, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { openGateway, type Gateway, type Loose } from './gateway.ts'

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
