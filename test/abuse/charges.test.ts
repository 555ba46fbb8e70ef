/** Ways to use more tokens than are charged: what a client sends, where it leaves, and what an upstream hides. */
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { stream, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, chunk, delta, DONE, event, message, response, RESPONSE_USAGE, responsesStream, USAGE } from '../fakes/upstream-wire.ts'
import { chat, MESSAGES, responses, startStream, type Gateway } from '../upstream/gateway.ts'
import { messageEvent, messagesStream } from '../fakes/messages-wire.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import { setUp } from '../plugins/vendor.ts'

/** What the upstream bills: far more than it shows. */
const HIDDEN = 50_000
const CHAT_USAGE = { ...USAGE, completion_tokens: HIDDEN, total_tokens: HIDDEN + 20 }
const WHOLE_USAGE = { usage: { ...RESPONSE_USAGE, output_tokens: HIDDEN, total_tokens: HIDDEN + 20 } }
const BILLED = { usage: { input: 20, cachedInput: 8, output: HIDDEN }, estimated: false }

type Case = { wire: 'chat' | 'responses'; upstream: WireName; begun: string[]; rest: string[]; leavesAt: string }

const text = responsesStream('the', ' answer')
const chatText = chatStream('the', ' answer')
const begunChat = chatText.slice(0, -2)
const restChat = [chunk([], { usage: CHAT_USAGE }), DONE]
const begunResponses = text.slice(0, -2)
const restResponses = [event('response.completed', { response: response('completed', [message('the answer')], WHOLE_USAGE) })]
/** The events of a stream that bills as much. */
const messageText = (text: string) => messagesStream([{ type: 'text', text }], 'end_turn', HIDDEN).split(/(?<=\n\n)/)
const begunMessage = messageText('the answer').slice(0, -2)
const restMessage = messageText('the answer').slice(-2)
const CASES: Case[] = [
  { wire: 'chat', upstream: 'chat', begun: begunChat, rest: restChat, leavesAt: '"finish_reason":"stop"' },
  { wire: 'responses', upstream: 'responses', begun: begunResponses, rest: restResponses, leavesAt: 'response.output_item.done' },
  { wire: 'responses', upstream: 'responses', begun: text.slice(0, -4), rest: restResponses, leavesAt: 'response.output_text.done' },
  { wire: 'chat', upstream: 'responses', begun: begunResponses, rest: restResponses, leavesAt: ' answer' },
  { wire: 'responses', upstream: 'chat', begun: begunChat, rest: restChat, leavesAt: ' answer' },
  { wire: 'chat', upstream: 'messages', begun: begunMessage, rest: restMessage, leavesAt: 'answer' },
  { wire: 'responses', upstream: 'messages', begun: begunMessage, rest: restMessage, leavesAt: 'response.output_item.done' },
  { wire: 'responses', upstream: 'messages', begun: messageText('the answer').slice(0, -1), rest: restMessage.slice(-1), leavesAt: 'answer' },
]

const PATHS = { chat: '/v1/chat/completions', responses: '/v1/responses' }
const bodyOf = (wire: 'chat' | 'responses') => ({ model: 'svc-code', stream: true, ...(wire === 'chat' ? { messages: MESSAGES } : { input: 'Hello' }) })

/** Reads a stream up to a text, and leaves. */
async function leaveAt(gateway: Gateway, wire: 'chat' | 'responses', at: string): Promise<void> {
  const answer = await startStream(gateway, PATHS[wire], bodyOf(wire))
  let seen = ''
  while (!seen.includes(at)) seen += String((await once(answer, 'data'))[0])
  answer.destroy()
}

/** Sends the rest once the client has left. */
function inTwoParts(begun: string[], rest: string[]): { script: Script; finish: () => void } {
  let finish = () => {}
  return {
    script: (answer) => {
      stream(answer, ...begun)
      finish = () => void answer.end(rest.join(''))
    },
    finish: () => finish(),
  }
}

for (const onAbort of ['Cancel', 'Drain'] as const) {
  for (const { wire, upstream, begun, rest, leavesAt } of CASES) {
    t.test(`a ${wire} client of a ${upstream} upstream that leaves at ${leavesAt} is charged what the upstream bills (${onAbort})`, async (t) => {
      const { script, finish } = inTwoParts(begun, rest)
      const { gateway } = await setUp(t, script, { admitted: { onAbort }, usageMs: 60_000 }, { wire: upstream })
      await leaveAt(gateway, wire, leavesAt)
      await untilClosed(gateway)
      finish()
      t.same(await gateway.settled(), BILLED)
    })
  }
}

/** Until the gateway has noticed that its client left. */
async function untilClosed({ app }: Gateway): Promise<void> {
  while ((await connections(app.server)) > 0) await new Promise(setImmediate)
}
const connections = (server: Gateway['app']['server']) =>
  new Promise<number>((resolve, reject) => server.getConnections((error, count) => (error ? reject(error) : resolve(count))))

t.test('an upstream that reports nothing after a finished answer is read on for a bounded time, and for bounded bytes', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => stream(answer, ...begunChat), { usageMs: 30 })
  const aborted = upstream.nextAbort()
  await leaveAt(gateway, 'chat', '"finish_reason":"stop"')
  await aborted
  t.match(await gateway.settled(), { estimated: true, usage: { output: 2 } })

  const { upstream: chatty, gateway: bounded } = await setUp(t, writesOn(begunChat), { usageMs: 600_000 })
  const cut = chatty.nextAbort()
  await leaveAt(bounded, 'chat', '"finish_reason":"stop"')
  await cut
  t.match(await bounded.settled(), { estimated: true })
})

/** Goes on with text until it is aborted. */
function writesOn(begun: string[]): Script {
  return async (answer) => {
    stream(answer, ...begun)
    while (!answer.closed) {
      answer.write(chunk([delta({ content: ' more'.repeat(200) })]))
      await new Promise(setImmediate)
    }
  }
}

t.test('a sentinel as stop sequence is charged by the usage that follows it', async (t) => {
  const upstreams = {
    responses: { stop: 'STOP', begun: responsesStream('one STOP two').slice(0, -5), rest: restResponses },
    // White space, which this wire does not take.
    messages: { stop: '\n\n', begun: messageText('one \n\n two').slice(0, -3), rest: messageText('').slice(-3) },
  }
  for (const [wire, { stop, begun, rest }] of Object.entries(upstreams)) {
    for (const more of [{}, { stream_options: { include_usage: true } }]) {
      const { script, finish } = inTwoParts(begun, rest)
      const { gateway } = await setUp(t, script, { usageMs: 60_000 }, { wire })
      const answer = await startStream(gateway, PATHS.chat, { ...bodyOf('chat'), stop: [stop], ...more })
      let seen = ''
      answer.on('data', (part) => (seen += String(part)))
      while (!seen.includes('"finish_reason":"stop"')) await new Promise(setImmediate)
      finish()
      await once(answer, 'end')
      t.ok(seen.endsWith(DONE))
      t.equal(seen.split(DONE).length, 2, 'the end of the stream once')
      t.equal(seen.includes(`"completion_tokens":${HIDDEN}`), 'stream_options' in more)
      t.same(await gateway.settled(), BILLED)
    }
  }
})

t.test('a message that a stop sequence ends is charged by the usage that follows it, and says it', async (t) => {
  const parts = { chat: [chatStream('one ', 'STOP two').slice(0, -2), restChat], responses: [responsesStream('one ', 'STOP two').slice(0, -5), restResponses] } as const
  for (const [wire, [begun, rest]] of Object.entries(parts)) {
    const { script, finish } = inTwoParts([...begun], [...rest])
    const { gateway } = await setUp(t, script, { usageMs: 60_000 }, { wire })
    const answer = await startStream(gateway, '/v1/messages', { model: 'svc-code', max_tokens: 100, messages: MESSAGES, stream: true, stop_sequences: ['STOP'] })
    let seen = ''
    answer.on('data', (part) => (seen += String(part)))
    while (!seen.includes('content_block_stop')) await new Promise(setImmediate)
    finish()
    await once(answer, 'end')
    t.match(seen, /"stop_sequence":"STOP"/, wire)
    t.match(seen, new RegExp(`"output_tokens":${HIDDEN}`), wire)
    t.equal(seen.split('message_delta').length, 3, 'the end once')
    t.same(answer.trailers, {}, 'nothing is estimated')
    t.same(await gateway.settled(), BILLED)
  }
})

t.test('a message that a stop sequence ends is complete when no usage follows in time, or the upstream writes on or breaks off', async (t) => {
  const [first = '', ...more] = chatStream('one ', 'STOP').slice(0, -3)
  const scripts: [Script, number][] = [
    [(answer) => stream(answer, first, ...more), 30],
    [writesOn([first, ...more]), 600_000],
    [(answer) => (stream(answer, first, ...more), void answer.end()), 600_000],
    [streams(first, ...more, chunk([delta({}, 'stop')]), DONE), 600_000],
  ]
  for (const [script, usageMs] of scripts) {
    const { gateway } = await setUp(t, script, { usageMs }, { wire: 'chat' })
    const answer = await startStream(gateway, '/v1/messages', { model: 'svc-code', max_tokens: 100, messages: MESSAGES, stream: true, stop_sequences: ['STOP'] })
    const seen = (await answer.toArray()).join('')
    t.match(seen, /"text":"one "[^]*"stop_sequence":"STOP"[^]*message_stop/)
    t.equal(seen.split('event: message_delta').length, 2, 'the end once')
    t.match(await gateway.settled(), { estimated: true })
  }
})

t.test('an upstream that writes on or breaks off after a stop sequence is stopped soon, and the client gets its end', async (t) => {
  const begun = messageText('one \n\n two').slice(0, -3)
  const error = messageEvent('error', { error: { type: 'overloaded_error', message: 'busy' } })
  const cases: [string, string, Script][] = [
    ['responses', 'STOP', (answer) => stream(answer, ...responsesStream('one STOP two').slice(0, -5))],
    ['messages', '\n\n', (answer) => stream(answer, ...begun)],
    ['messages', '\n\n', (answer) => (stream(answer, ...begun), void answer.end())],
    ['messages', '\n\n', streams(...begun, error)],
  ]
  for (const [wire, stop, script] of cases) {
    const { upstream, gateway } = await setUp(t, script, { usageMs: 30 }, { wire })
    const aborted = cases.findIndex((one) => one[2] === script) < 2 ? upstream.nextAbort() : null
    const { text: seen } = await chat(gateway, { stream: true, stop: [stop], stream_options: { include_usage: true } })
    await aborted
    t.ok(seen.endsWith(DONE))
    t.match(seen, /"completion_tokens":[1-9]/)
    t.match(await gateway.settled(), { estimated: true })
  }
})

t.test('a client of another wire that leaves a message is charged the prompt that its beginning reported', async (t) => {
  for (const wire of ['chat', 'responses'] as const) {
    const { gateway } = await setUp(t, (answer) => stream(answer, ...messageText('one two').slice(0, -3)), {}, { wire: 'messages' })
    await leaveAt(gateway, wire, 'two')
    t.same(await gateway.settled(), { usage: { input: 20, cachedInput: 8, output: 2 }, estimated: true }, wire)
  }
})

t.test('a message whose end reports no usage is charged the prompt that its beginning reported, and the output that was counted', async (t) => {
  const end = [messageEvent('message_delta', { delta: { stop_reason: 'end_turn' } }), messageEvent('message_stop')]
  for (const wire of ['chat', 'responses', 'messages'] as const) {
    const { gateway } = await setUp(t, streams(...messageText('one two three four').slice(0, -2), ...end), {}, { wire: 'messages' })
    const body = wire === 'messages' ? { model: 'svc-code', max_tokens: 100, messages: MESSAGES, stream: true } : { ...bodyOf(wire), stream_options: { include_usage: true } }
    const text = (await (await startStream(gateway, wire === 'messages' ? '/v1/messages' : PATHS[wire], body)).toArray()).join('')
    t.match(text, /"(?:completion|output)_tokens":4/, wire)
    t.same(await gateway.settled(), { usage: { input: 20, cachedInput: 8, output: 4 }, estimated: true }, wire)
  }
})

t.test('an answer that was cut off costs what the plan learned of hidden output, up to the limit of the request', async (t) => {
  for (const [hidden, maxOutputTokens, expected] of [
    [{ outputRatio: 1000, hiddenTokens: 0 }, 4096, 3],
    [{ outputRatio: 3000, hiddenTokens: 900 }, 4096, 903],
    [{ outputRatio: 64_000, hiddenTokens: 9_000 }, 4096, 4096],
  ] as const) {
    const { gateway } = await setUp(t, (answer) => stream(answer, ...chatStream('one two', ' three').slice(0, 4)), { admitted: { hidden, maxOutputTokens } })
    await leaveAt(gateway, 'chat', 'three')
    t.match(await gateway.settled(), { usage: { output: expected }, estimated: true })
    t.equal(gateway.seen(), undefined, 'teaches nothing')
  }
})

t.test('a message that failed before any output is not charged, although its beginning reported the prompt', async (t) => {
  const begun = messageEvent('message_start', { message: { type: 'message', role: 'assistant', content: [], usage: { input_tokens: 100_000, output_tokens: 1 } } })
  const failed = messageEvent('error', { error: { type: 'overloaded_error', message: 'busy' } })
  const { script, finish } = inTwoParts([begun], [failed])
  const { gateway } = await setUp(t, script, {}, { wire: 'messages' })
  const answer = await startStream(gateway, '/v1/messages', { model: 'svc-code', max_tokens: 100, messages: MESSAGES, stream: true })
  await once(answer, 'data')
  finish()
  t.match(String((await once(answer, 'data'))[0]), /overloaded_error.*"request_id":"/)
  t.equal(await gateway.settled(), null)
})

t.test('an upstream that reports no usage, or far less than it wrote, is charged by what it wrote', async (t) => {
  const words = Array.from({ length: 400 }, (_, n) => ` word${n}`)
  const deltas = words.map((content) => chunk([delta({ content })]))
  for (const usage of [undefined, { ...USAGE, completion_tokens: 1, total_tokens: 21 }, { ...USAGE, completion_tokens: 0, total_tokens: 20 }]) {
    const { gateway } = await setUp(t, streams(...deltas, chunk([delta({}, 'stop')]), ...(usage ? [chunk([], { usage })] : []), DONE))
    await chat(gateway, { stream: true })
    const settled = await gateway.settled()
    t.ok(settled?.estimated && settled.usage.output >= 400, JSON.stringify(settled))
  }
})

t.test('the estimate of a prompt is of what the upstream was sent: text that looks like a data URL counts, padding does not', async (t) => {
  const { upstream, gateway } = await setUp(t, streams(...chatStream('a').slice(0, 3), DONE))
  const long = `data:;base64,${'x'.repeat(100_000)}`
  await charged(t, gateway, () => chat(gateway, { stream: true, messages: [{ role: 'user', content: long }] }), { above: 30_000 })
  await charged(t, gateway, () => chat(gateway, { stream: true, padding: long, metadata: { long } }), { below: 20 })
  t.notOk(upstream.requests[1]?.text.includes('base64'))
  upstream.respondWith(streams(...responsesStream('a').slice(0, -2)))
  await charged(t, gateway, () => responses(gateway, { stream: true, input: long }), { above: 30_000 })
})

async function charged(t: Test, gateway: Gateway, send: () => Promise<unknown>, { above = 0, below = Infinity }): Promise<void> {
  await send()
  const input = (await gateway.settled())?.usage.input ?? -1
  t.ok(input >= above && input <= below, `${input} tokens`)
}
