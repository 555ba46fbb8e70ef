/** Conversations that are compacted: by `/v1/responses/compact` and by the item `compaction_trigger`, over upstreams of each wire. */
import t, { type Test } from 'tap'
import { PATHS, WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { messageAnswer, messagesStream } from '../fakes/messages-wire.ts'
import { respond, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, completion, event, message, response, responsesStream, VENDOR } from '../fakes/upstream-wire.ts'
import { dataOf, post, responses, type Gateway, type Loose } from '../upstream/gateway.ts'
import { openaiSchemas } from '../upstream/openai-schemas.ts'
import { setUp } from './vendor.ts'

const SUMMARY = 'The user mends sum.mjs; test.mjs fails.'
const CALL = { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"path":"sum.mjs"}' }
const CONVERSATION = [
  { role: 'user', content: 'Mend sum.mjs.' },
  { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'x' },
  { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I read it.', annotations: [] }] },
  CALL,
  { type: 'function_call_output', call_id: 'c1', output: 'a - b' },
  { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hurry.' }, { type: 'input_image', image_url: 'data:image/png;base64,AAAA', detail: 'auto' }] },
]
const TRIGGER = { type: 'compaction_trigger' }
const USAGE = { usage: { input: 20, cachedInput: 8, output: 5 }, estimated: false }

const WHOLE: Record<WireName, (text: string) => object> = {
  chat: (text) => completion(text),
  responses: (text) => response('completed', [message(text)]),
  messages: (text) => messageAnswer([{ type: 'text', text }]),
}
const STREAMED: Record<WireName, (text: string) => string[]> = { chat: chatStream, responses: responsesStream, messages: (text) => [messagesStream([{ type: 'text', text }])] }
const says = (wire: WireName, text: string): Script => (answer, request) => (request.body['stream'] ? streams(...STREAMED[wire](text))(answer, request) : respond(answer, 200, WHOLE[wire](text)))

const compact = (gateway: Gateway, more: object = {}) => post(gateway, '/v1/responses/compact', { model: 'svc-code', input: CONVERSATION, instructions: 'You mend programs.', ...more })

/** The next turn over the item shows the summary to the model. */
async function continues(t: Test, gateway: Gateway, upstream: { requests: { text: string; path: string }[] }, items: object[]): Promise<void> {
  const next = await responses(gateway, { input: [...items, { role: 'user', content: 'Go on.' }] })
  t.equal(next.status, 200)
  const { text } = upstream.requests.at(-1)!
  t.ok(text.includes(SUMMARY) && text.includes('Go on.'), 'the summary is a message')
  t.notOk(text.includes('"compaction"'))
  await gateway.settled()
}

t.test('a summary that was cut off does not open the breaker of its upstream', async (t) => {
  const { upstream, gateway } = await setUp(t, says('responses', ''), {}, { wire: 'responses', breaker: { failures: 1 } })
  for (let i = 0; i < 3; i++) t.equal((await compact(gateway)).status, 422)
  upstream.respondWith(says('responses', SUMMARY))
  t.equal((await compact(gateway)).status, 200)
})

t.test("the client's limit of tokens is one for answers: neither admission nor the request for a summary has it", async (t) => {
  const { upstream, gateway } = await setUp(t, says('responses', SUMMARY), {}, { wire: 'responses' })
  t.equal((await responses(gateway, { max_output_tokens: 20, input: [...CONVERSATION, TRIGGER] })).status, 200)
  t.equal(gateway.admissions.at(-1)!.maxOutputTokens, null)
  t.equal(upstream.requests.at(-1)!.body['max_output_tokens'], 4096, 'that of the plan')
})

t.test('results whose addresses were not vetted go into the summary as text alone', async (t) => {
  for (const wire of WIRES) {
    const { upstream, gateway } = await setUp(t, says(wire, SUMMARY), {}, { wire })
    const input = [
      { role: 'user', content: 'Go.' },
      { type: 'x_output', call_id: 'c', output: [{ type: 'input_image', image_url: 'http://169.254.169.254/a' }, { type: 'input_file', file_id: 'f' }] },
      { type: 'shell_call_output', call_id: 'c', output: { image_url: 'http://10.0.0.1/' } },
      { type: 'computer_call_output', call_id: 'c', output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,AAAA' } },
    ]
    t.equal((await compact(gateway, { input })).status, 200)
    const { text } = upstream.requests.at(-1)!
    t.ok(text.includes('169.254.169.254') && text.includes('10.0.0.1'), 'the model is told of them')
    const values = new Map<unknown, string>()
    JSON.parse(text, (name, value: unknown) => values.set(value, name) && value)
    for (const one of ['http://169.254.169.254/a', 'http://10.0.0.1/', 'f']) t.notOk(values.has(one), `${wire}: ${one}`)
    t.ok([...values.keys()].some((value) => typeof value === 'string' && /^(?:data:image\/png;base64,)?AAAA$/.test(value)), 'a vetted screenshot is shown')
  }
})

t.test('a second compaction replaces the summary of the first', async (t) => {
  const { upstream, gateway } = await setUp(t, says('chat', SUMMARY), {}, { wire: 'chat' })
  const first = await compact(gateway)
  upstream.respondWith(says('chat', 'A second summary.'))
  const second = await compact(gateway, { input: [...first.body.output, { role: 'user', content: 'Go on.' }] })
  t.ok(upstream.requests.at(-1)!.text.includes(SUMMARY))
  t.same(second.body.output.map((item: Loose) => item.content?.[0].text ?? item.type), ['Mend sum.mjs.', 'Hurry.', 'Go on.', 'compaction'])
  t.notOk(second.text.includes(SUMMARY))
})

t.test('the memory of the request counts until an answer that has its messages is sent', async (t) => {
  const released: boolean[] = []
  const { gateway } = await setUp(t, says('chat', SUMMARY), {
    decorate: (app) =>
      void app.addHook('preHandler', async ({ bodyShare }, { raw }) => {
        if (bodyShare) bodyShare.free = () => void released.push(raw.closed)
      }),
  }, { wire: 'chat' })
  t.equal((await responses(gateway)).status, 200)
  t.equal((await compact(gateway)).status, 200)
  t.same(released, [false, true, true], 'of other answers: once they begin')
})

for (const wire of WIRES) {
  t.test(`over an upstream that speaks ${wire}`, async (t) => {
    const { upstream, gateway } = await setUp(t, says(wire, SUMMARY), {}, { wire, breaker: { failures: 1000 } })
    const valid = openaiSchemas(t)

    await t.test('a conversation is replaced by the messages of the user and a sealed summary', async (t) => {
      const { status, body, text } = await compact(gateway)
      t.equal(status, 200)
      valid?.('CompactResource', body)
      t.match(body, { id: /^resp_/, object: 'response.compaction', output: [{ role: 'user', content: [{ text: 'Mend sum.mjs.' }] }, { role: 'user', content: [{ text: 'Hurry.' }, { type: 'input_image' }] }, { type: 'compaction' }], usage: { total_tokens: 25 } })
      t.equal(body.output.length, 3)
      t.notOk(text.includes(SUMMARY) || text.includes(VENDOR))
      t.same(await gateway.settled(), USAGE)
      const sent = upstream.requests.at(-1)!
      t.equal(sent.path, `/v1${PATHS[wire]}`)
      for (const told of ['You mend programs.', 'Mend sum.mjs.', 'I read it.', String.raw`read {\"path\":\"sum.mjs\"}`, 'a - b', 'Hurry.', 'AAAA', 'Compact this conversation']) t.ok(sent.text.includes(told), told)
      t.notOk(sent.body['tools'] || /tool_use|tool_calls|function_call/.test(sent.text), 'calls are shown as text')
      await continues(t, gateway, upstream, body.output)
    })

    for (const stream of [false, true]) {
      await t.test(`a trigger at the end of an input is answered with one item, ${stream ? 'streamed' : 'whole'}`, async (t) => {
        const { status, body, text } = await responses(gateway, { stream, input: [...CONVERSATION, TRIGGER], tools: [{ type: 'function', name: 'read', parameters: {} }], tool_choice: 'required' })
        t.equal(status, 200)
        const events: Loose[] = stream ? dataOf(text) : []
        for (const one of events) valid?.('ResponseStreamEvent', one)
        t.same(events.map((one) => one.sequence_number), events.map((_, index) => index))
        if (stream) t.same(events.map(({ type }) => type), ['response.created', 'response.in_progress', 'response.output_item.added', 'response.output_item.done', 'response.completed'])
        const whole = stream ? events.at(-1).response : body
        valid?.('Response', whole)
        t.match(whole, { status: 'completed', output: [{ type: 'compaction', encrypted_content: /./ }], usage: { total_tokens: 25 }, tools: [{ name: 'read' }] })
        t.equal(whole.output.length, 1)
        t.notOk(text.includes(SUMMARY) || text.includes(VENDOR))
        t.same(await gateway.settled(), USAGE)
        await continues(t, gateway, upstream, whole.output)
      })
    }

    await t.test('a summary that was cut off, is empty or fails is no answer', async (t) => {
      const cut: Record<WireName, object> = {
        chat: completion('', { choices: [{ index: 0, message: { role: 'assistant', content: 'The us' }, finish_reason: 'length' }] }),
        responses: response('incomplete', [message('The us')], { incomplete_details: { reason: 'max_output_tokens' } }),
        messages: messageAnswer([{ type: 'text', text: 'The us' }], 'max_tokens'),
      }
      for (const script of [says(wire, ''), (answer) => respond(answer, 200, cut[wire])] satisfies Script[]) {
        upstream.respondWith(script)
        const before = upstream.requests.length
        t.match(await compact(gateway), { status: 422, body: { error: { code: 'summary_incomplete' } } })
        t.same(await gateway.settled(), USAGE, 'the upstream bills it: it is charged')
        t.equal(upstream.requests.length, before + 1, 'and not tried again')
      }
      upstream.respondWith((answer) => respond(answer, 500, {}))
      t.match(await compact(gateway), { status: 503, body: { error: { code: 'server_overloaded' } } })
      t.equal(await gateway.settled(), null, 'nothing is charged')
      upstream.respondWith(says(wire, ''))
      const before = upstream.requests.length
      const empty = await responses(gateway, { stream: true, input: [...CONVERSATION, TRIGGER] })
      t.match(dataOf(empty.text).at(-1), { type: 'response.failed', response: { status: 'failed', error: { code: 'summary_incomplete' } } })
      t.same(await gateway.settled(), USAGE)
      t.equal(upstream.requests.length, before + 1)
      const begun = STREAMED[wire](SUMMARY).join('')
      upstream.respondWith(streams(begun.slice(0, Math.floor(begun.length * 0.6))))
      const { text } = await responses(gateway, { stream: true, input: [...CONVERSATION, TRIGGER] })
      t.match(dataOf(text).at(-1), { type: 'response.failed', sequence_number: 2, response: { status: 'failed', error: { code: 'server_error' } } })
      await gateway.settled()
      upstream.respondWith((answer) => respond(answer, 400, { error: { code: 'context_length_exceeded', message: VENDOR } }))
      t.match(await compact(gateway), { status: 400, body: { error: { code: 'context_length_exceeded' } } })
      await gateway.settled()
    })
  })
}

t.test('an upstream that takes the trigger compacts by itself, and gets its item back as it was', async (t) => {
  const item = { id: `cmp_${VENDOR}_1`, type: 'compaction', encrypted_content: `${VENDOR}-compacted`, created_by: VENDOR }
  const compacted = response('completed', [item])
  const { upstream, gateway } = await setUp(
    t,
    (answer, { body }) => (body['stream'] ? streams(event('response.created', { response: response('in_progress') }), event('response.completed', { response: compacted }))(answer, upstream.requests.at(-1)!) : respond(answer, 200, compacted)),
    {},
    { wire: 'responses', allow: ['compaction_trigger'] },
  )
  const { body, text } = await compact(gateway)
  t.notOk(text.includes(VENDOR))
  const sent = upstream.requests.at(-1)!.body as Loose
  t.match(sent, { instructions: 'You mend programs.', max_output_tokens: 4096, store: false })
  t.match(sent.input.at(-1), TRIGGER)
  t.match(sent.input[3], CALL)
  t.same(await gateway.settled(), USAGE)
  await responses(gateway, { input: body.output })
  await gateway.settled()
  t.match((upstream.requests.at(-1)!.body as Loose).input.at(-1), { id: item.id, encrypted_content: item.encrypted_content })
  const streamed = dataOf((await responses(gateway, { stream: true, input: [...CONVERSATION, TRIGGER] })).text)
  t.match(streamed.at(-1), { type: 'response.completed', response: { output: [{ type: 'compaction', encrypted_content: body.output.at(-1).encrypted_content }] } })
  await gateway.settled()
})

t.test('a faulty request is refused by name, before it is admitted', async (t) => {
  const { gateway } = await setUp(t, says('responses', SUMMARY))
  const cases: [object, string, string][] = [
    [{ input: undefined }, 'invalid_request', 'input'],
    [{ input: [] }, 'invalid_request', 'input'],
    [{ input: 5 }, 'invalid_request', 'input'],
    [{ input: [null] }, 'invalid_request', 'input[0]'],
    [{ input: [TRIGGER, { role: 'user', content: 'x' }] }, 'invalid_request', 'input[0]'],
    [{ input: [{ type: 'item_reference', id: 'a' }] }, 'invalid_request', 'input[0].type'],
    [{ previous_response_id: 'resp_1' }, 'previous_response_not_found', 'previous_response_id'],
    [{ model: undefined }, 'invalid_request', 'model'],
    [{ instructions: 5 }, 'invalid_request', 'instructions'],
  ]
  for (const [more, code, param] of cases) t.match(await compact(gateway, more), { status: 400, body: { error: { code, param } } }, `${JSON.stringify(more)}`)
  t.equal(gateway.admissions.length, 0)
  t.match(await compact(gateway, { model: 'other' }), { status: 404, body: { error: { code: 'model_not_found' } } })
})

t.test('a summary of another subscription, or one of another service, is not read: over chat it is refused by name', async (t) => {
  const { gateway } = await setUp(t, says('chat', SUMMARY), {}, { wire: 'chat' })
  for (const content of ['gAAAA', `enc_${'A'.repeat(80)}`])
    t.match(await responses(gateway, { input: [{ type: 'compaction', encrypted_content: content }] }), { status: 400, body: { error: { code: 'unsupported_parameter', param: 'input[0]' } } })
})
