/** All combinations of the client's wire and the upstream's over the gateway: nothing of the vendor in any answer, and every answer settled. */
import t, { type Test } from 'tap'
import { WIRES, type WireName as Wire } from '../../src/upstream/wires/wire.ts'
import { CALL as TOOL_USE, messageAnswer, messageEvent, messagesStream, THINKING } from '../fakes/messages-wire.ts'
import { openUpstream, respond, stream, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, chunk, completion, delta, DONE, event, message, response, responsesStream, USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { chat, dataOf, MESSAGES, openGateway, post, responses, startStream, type Gateway, type TestResponse } from '../upstream/gateway.ts'
import { setUp } from './vendor.ts'

const COMBINATIONS = WIRES.flatMap((client) => WIRES.map((upstream) => ({ name: `${client} client, ${upstream} upstream`, client, upstream })))
const PATH: Record<Wire, string> = { chat: '/v1/chat/completions', responses: '/v1/responses', messages: '/v1/messages' }
const BODY: Record<Wire, object> = { chat: { model: 'svc-code', messages: MESSAGES }, responses: { model: 'svc-code', input: 'Hi' }, messages: { model: 'svc-code', max_tokens: 9000, messages: MESSAGES } }
const call = (client: Wire, gateway: Gateway, more: object = {}): Promise<TestResponse> => post(gateway, PATH[client], { ...BODY[client], ...more })
const WORDS = ['one two', ' three']

/** Answers of an upstream of each wire. */
const JSON_ANSWER: Record<Wire, (text: string, more?: object) => object> = {
  chat: (text, more = {}) => completion(text, more),
  responses: (text, more = {}) => response('completed', [message(text)], more),
  messages: (text, more = {}) => messageAnswer([{ type: 'text', text }], 'end_turn', more),
}
const STREAM: Record<Wire, (...texts: string[]) => string[]> = {
  chat: chatStream,
  responses: responsesStream,
  messages: (...texts) => messagesStream([{ type: 'text', text: texts.join('') }]).split(/(?=event: )/),
}
const WHOLE: Record<Wire, string[]> = { chat: chatStream(...WORDS), responses: responsesStream(...WORDS), messages: STREAM.messages(...WORDS) }
const isLastOfText = (part: string) => part.includes('three')
/** The beginning of a stream, with all of its text. */
const beginOf = (wire: Wire): string[] => WHOLE[wire].slice(0, WHOLE[wire].findIndex(isLastOfText) + 1)
const BEGIN: Record<Wire, string[]> = { chat: beginOf('chat'), responses: beginOf('responses'), messages: beginOf('messages') }
const ERROR: Record<Wire, string> = { chat: `data: {"error":{"message":"${VENDOR}"}}\n\n`, responses: event('error', { message: VENDOR }), messages: messageEvent('error', { error: { type: 'overloaded_error', message: VENDOR } }) }
const FAILED: Record<Wire, object> = { chat: { error: { code: 'server_overloaded' } }, responses: { type: 'response.failed', response: { status: 'failed' } }, messages: { type: 'error', error: { type: 'overloaded_error' } } }

const HEADERS = { 'x-request-id': VENDOR, 'openai-organization': VENDOR, server: VENDOR, 'x-ratelimit-remaining-tokens': VENDOR }

/** An answer of both kinds: tools with a signature, citations, log probabilities. */
const RICH: Record<Wire, object> = {
  chat: completion('', {
    choices: [
      {
        message: {
          content: 'a',
          reasoning: 'b',
          reasoning_details: [{ type: 'reasoning.encrypted', data: VENDOR, format: VENDOR }],
          tool_calls: [{ id: `${VENDOR}:0`, type: 'function', function: { name: 'f', arguments: '{}', [VENDOR]: 1 }, extra_content: { [VENDOR]: 1 } }],
        },
        finish_reason: 'tool_calls',
        native_finish_reason: VENDOR,
      },
    ],
  }),
  responses: response('completed', [
    { id: `rs_${VENDOR}`, type: 'reasoning', summary: [{ type: 'summary_text', text: 'b' }], encrypted_content: 'gAAAA' },
    message('a'),
    { id: `fc_${VENDOR}`, type: 'function_call', call_id: VENDOR, name: 'f', arguments: '{}', vendor: VENDOR },
  ]),
  messages: messageAnswer([{ ...THINKING, vendor: VENDOR }, { type: 'redacted_thinking', data: VENDOR }, { type: 'text', text: 'a' }, { ...TOOL_USE, vendor: VENDOR }], 'tool_use'),
}

/** A test that runs `check` for each combination. */
function combinations(check: (t: Test, client: Wire, upstream: Wire) => Promise<void>): (t: Test) => Promise<void> {
  return async (t) => {
    for (const combination of COMBINATIONS) await t.test(combination.name, (t) => check(t, combination.client, combination.upstream))
  }
}

t.test('no byte of an answer names the vendor, on any wire, whole or streamed, also in errors', combinations(async (t, client, wire) => {
  const { upstream, gateway } = await setUp(t, () => {}, {}, { wire, breaker: { failures: 1000 } })
  const scripts: [string, Script, boolean][] = [
    ['JSON', (answer) => respond(answer, 200, JSON_ANSWER[wire]('hi'), HEADERS), false],
    ['JSON with tools and reasoning', (answer) => respond(answer, 200, RICH[wire], HEADERS), false],
    ['stream', streams(...WHOLE[wire]), true],
    ['broken stream', streams(...BEGIN[wire], ERROR[wire]), true],
    ['stream that is cut off', streams(...BEGIN[wire]), true],
    ['error 400', (answer) => respond(answer, 400, { error: { message: VENDOR, type: VENDOR, code: VENDOR, param: VENDOR } }, HEADERS), false],
    ['error 500', (answer) => respond(answer, 500, { error: VENDOR }, HEADERS), true],
    ['not JSON', (answer) => void answer.end(VENDOR), false],
  ]
  for (const [name, script, streamed] of scripts) {
    upstream.respondWith(script)
    const got = await call(client, gateway, { stream: streamed, tools: [], thinking: { type: 'adaptive' } })
    t.notOk((got.text + JSON.stringify(got.headers)).toLowerCase().includes(VENDOR), name)
    t.ok(got.text.length > 50, `${name} has an answer`)
  }
}))

t.test('reported usage is charged, else an estimate that the client sees', combinations(async (t, client, wire) => {
  const { upstream, gateway } = await setUp(t, () => {}, {}, { wire })
  const ask = (streamed: boolean) => call(client, gateway, { stream: streamed, ...(client === 'chat' && streamed ? { stream_options: { include_usage: true } } : {}) })
  const usageOf = ({ text, body }: TestResponse) => {
    const last = body ?? dataOf(text).findLast((one) => one !== '[DONE]' && one.type !== 'message_stop')
    const { usage } = last.response ?? last
    return [usage.prompt_tokens ?? usage.input_tokens + (usage.cache_read_input_tokens ?? 0), usage.completion_tokens ?? usage.output_tokens]
  }
  for (const streamed of [false, true]) {
    upstream.respondWith((answer) => (streamed ? streams(...WHOLE[wire])(answer, upstream.requests.at(-1)!) : respond(answer, 200, JSON_ANSWER[wire]('one two three'))))
    t.same(usageOf(await ask(streamed)), [20, 5])
    t.same(await gateway.settled(), { usage: { input: 20, cachedInput: 8, output: 5 }, estimated: false })
    const silent = WHOLE[wire].map((text) => text.replaceAll('"usage"', '"other"'))
    upstream.respondWith((answer) => (streamed ? streams(...silent)(answer, upstream.requests.at(-1)!) : respond(answer, 200, JSON_ANSWER[wire]('one two three', { usage: null }))))
    const seen = usageOf(await ask(streamed))
    const settled = await gateway.settled()
    t.match(settled, { usage: { output: 3 }, estimated: true })
    t.same(seen, [settled!.usage.input, settled!.usage.output])
  }
}))

t.test('a stream that breaks ends with the failure of the client\'s wire, is not retried, and charges what was streamed', combinations(async (t, client, wire) => {
  let finish = (_end: string) => {}
  const { upstream, gateway } = await setUp(
    t,
    (answer) => {
      stream(answer, ...BEGIN[wire])
      finish = (end) => void answer.end(end)
    },
    {},
    { wire },
  )
  for (const end of ['', ERROR[wire]]) {
    const before = upstream.requests.length
    const answer = await startStream(gateway, PATH[client], { ...BODY[client], stream: true })
    let text = ''
    for await (const piece of answer) {
      text += String(piece)
      if (text.includes('three')) finish(end)
    }
    t.match(dataOf(text).at(-1), FAILED[client])
    t.notOk(text.includes('[DONE]'))
    t.equal(upstream.requests.length, before + 1)
    t.match(await gateway.settled(), { usage: { output: 3 }, estimated: true })
  }
}))

t.test('a client disconnect aborts the upstream and charges what was streamed', combinations(async (t, client, wire) => {
  const { upstream, gateway } = await setUp(t, (answer) => stream(answer, ...BEGIN[wire]), {}, { wire })
  const answer = await startStream(gateway, PATH[client], { ...BODY[client], stream: true })
  let seen = ''
  while (!seen.includes('three')) seen += String(await new Promise((resolve) => answer.once('data', resolve)))
  const aborted = upstream.nextAbort()
  answer.destroy()
  await aborted
  t.match(await gateway.settled(), { usage: { output: 3 }, estimated: true })
}))

t.test('a stream that outgrows its reservation extends it', combinations(async (t, client, wire) => {
  const words = Array.from({ length: 300 }, () => 'four'.repeat(10))
  const { gateway } = await setUp(t, streams(...STREAM[wire](...words.map((word) => `${word} `))), { admitted: { reserved: 100 } }, { wire })
  const { text } = await call(client, gateway, { stream: true })
  t.match(text, /(?:\[DONE\]|"type":"message_stop"\}|event: response\.completed\n.*)\n\n$/)
  t.ok(gateway.ensured.length > 0 && gateway.ensured.length < 15, `${gateway.ensured.length} extensions`)
  t.ok(gateway.ensured.every((tokens, n) => n === 0 || tokens >= gateway.ensured[n - 1]!))
}))

t.test('the lower of the client\'s and the plan\'s limit of tokens is sent', combinations(async (t, client, wire) => {
  const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, JSON_ANSWER[wire]('hi')), {}, { wire })
  const limit = (tokens: number) => ({ [client === 'responses' ? 'max_output_tokens' : 'max_tokens']: tokens })
  for (const [more, sent] of [[{}, 4096], [limit(9000), 4096], [limit(20), 20]] as const) {
    await call(client, gateway, more)
    const { max_tokens: older, max_completion_tokens: chatLimit, max_output_tokens: responsesLimit } = upstream.requests.at(-1)!.body
    t.equal(older ?? chatLimit ?? responsesLimit, sent)
  }
}))

t.test('a stop sequence at a Responses upstream ends the answer, cuts the upstream off, and charges what it sent', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => stream(answer, ...responsesStream('one two', ' three STO', 'P four').slice(0, 8)), {}, { wire: 'responses' })
  const cut = upstream.nextAbort()
  const { text } = await chat(gateway, { stream: true, stop: ['STOP'], stream_options: { include_usage: true } })
  await cut
  const chunks = dataOf(text)
  t.equal(chunks.slice(0, -2).map((one) => one.choices[0].delta.content ?? '').join(''), 'one two three ')
  t.equal(chunks.at(-3).choices[0].finish_reason, 'stop')
  t.equal(chunks.at(-1), '[DONE]')
  const settled = await gateway.settled()
  t.match(settled, { estimated: true, usage: { output: 5 } }, 'all five words that the upstream sent')
  t.equal(chunks.at(-2).usage.completion_tokens, settled!.usage.output)
  t.equal(upstream.requests[0]!.body['stop'], undefined)
})

t.test('responses are not stored over any wire', async (t) => {
  for (const wire of WIRES) {
    const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 200, JSON_ANSWER[wire]('hi')), {}, { wire })
    t.match(await responses(gateway, { previous_response_id: 'resp_1' }), { status: 400, body: { error: { code: 'previous_response_not_found' } } })
    t.equal(gateway.admissions.length, 0)
    t.equal((await responses(gateway, { store: true })).body.store, false)
    t.not(upstream.requests.at(-1)!.body['store'], true)
  }
})

t.test('a native upstream is preferred within a priority, and a request fails over to one of the other wire', async (t) => {
  const [chatOnly, both] = [await openUpstream((answer) => respond(answer, 200, completion('from chat'))), await openUpstream((answer) => respond(answer, 200, response('completed', [message('from both')])))]
  t.teardown(() => Promise.all([chatOnly.close(), both.close()]))
  const declared = (priority: number) => [
    { name: 'chat', baseUrl: chatOnly.url, model: 'm', wire: 'chat', weight: 1000, priority },
    { name: 'both', baseUrl: both.url, model: 'm', wire: 'both', priority: 1, retry: { attempts: 1 } },
  ]
  const textOf = async (gateway: Gateway, more = {}) => (await responses(gateway, more)).body.output?.[0].content[0].text
  const equal = await openGateway(t, { declared: declared(1) })
  t.equal(await textOf(equal), 'from both')
  both.respondWith((answer) => void answer.destroy())
  t.equal(await textOf(equal), 'from chat')
  both.respondWith((answer) => respond(answer, 200, response('completed', [message('from both')])))
  const first = await openGateway(t, { declared: declared(0) })
  t.equal(await textOf(first), 'from chat', 'the priority counts before the wire')
  t.equal(await textOf(first, { input: [{ type: 'compaction', encrypted_content: 'x' }] }), 'from both', 'what cannot be translated is sent to its own wire')
  t.match(both.requests.at(-1)!.body, { input: [{ type: 'compaction', encrypted_content: 'x' }] })
})

t.test('what an agent replays survives a turn on the chat wire: signatures and reasoning details', async (t) => {
  const signature = { [VENDOR]: { thought_signature: 'c2ln' } }
  const details = [{ type: 'reasoning.text', text: 'Let me', index: 0, format: VENDOR }, { type: 'reasoning.text', text: ' think', signature: 's', index: 0, format: VENDOR }]
  const call = { index: 0, id: `${VENDOR}:0`, type: 'function', function: { name: 'f', arguments: '{}' }, extra_content: signature }
  const { upstream, gateway } = await setUp(t, streams(...details.map((one) => chunk([delta({ reasoning_details: [one] })])), chunk([delta({ tool_calls: [call] }, 'tool_calls')]), chunk([], { usage: USAGE }), DONE))
  const { text } = await chat(gateway, { stream: true })
  t.notOk(text.includes(VENDOR))
  const deltas = dataOf(text).slice(0, -1).map(({ choices }) => choices[0]?.delta ?? {})
  const turn = { role: 'assistant', content: null, reasoning_details: deltas.flatMap((one) => one.reasoning_details ?? []), tool_calls: deltas.flatMap((one) => one.tool_calls ?? []).map(({ index: _index, ...one }) => one) }
  await chat(gateway, { messages: [{ role: 'user', content: 'Hi' }, turn, { role: 'tool', tool_call_id: turn.tool_calls[0].id, content: 'ok' }] })
  const [, replayed, result] = upstream.requests.at(-1)!.body['messages'] as Record<string, unknown>[]
  const { index: _index, ...whole } = call
  t.same(replayed!['tool_calls'], [whole])
  t.same(replayed!['reasoning_details'], [{ type: 'reasoning.text', text: 'Let me think', signature: 's', index: 0, format: VENDOR }])
  t.equal(result!['tool_call_id'], `${VENDOR}:0`)
})
