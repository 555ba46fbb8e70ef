/** Streams of the Coding Plan API: mid-stream failures, reservation extension, keep-alive comments, client disconnects. */
import { connect } from 'node:net'
import t from 'tap'
import { eventually } from '../flows/eventually.ts'
import { respond, stream, streams } from '../fakes/upstream.ts'
import { chatStream, chunk, completion, delta, DONE, responsesStream, USAGE } from '../fakes/upstream-wire.ts'
import { chat, dataOf, MESSAGES, responses, startStream } from '../upstream/gateway.ts'
import { setUp } from './vendor.ts'

t.test('a stream whose upstream resets the connection ends with an error event, and charges what was streamed; one that fails before any output charges nothing', async (t) => {
  const { upstream, gateway } = await setUp(t, (answer) => {
    stream(answer, ...chatStream('one two', ' three').slice(0, 4))
    setImmediate(() => answer.socket?.resetAndDestroy())
  })
  const got = await chat(gateway, { stream: true })
  t.match(dataOf(got.text).at(-1), { error: { code: 'server_overloaded', type: 'server_error' } })
  t.match(await gateway.settled(), { usage: { output: 3 }, estimated: true })
  upstream.respondWith(streams(...responsesStream('x').slice(0, 1)))
  const events = dataOf((await responses(gateway, { stream: true })).text)
  t.match(events.at(-1), { type: 'response.failed', sequence_number: events.length - 1, response: { status: 'failed', error: { code: 'server_error' } } })
  t.equal(await gateway.settled(), null)
})

t.test('an answer that outgrows its reservation ends with a failure when the reservation is gone', async (t) => {
  const words = Array.from({ length: 300 }, () => 'four'.repeat(10))
  for (const [call, events, last] of [
    [chat, chatStream(...words).slice(0, 200), { error: {} }],
    [responses, responsesStream(...words).slice(0, 200), { type: 'response.failed' }],
  ] as const) {
    const { gateway, upstream } = await setUp(t, (answer) => stream(answer, ...events), { admitted: { reserved: 100 }, ensure: () => 'gone' })
    const aborted = upstream.nextAbort()
    t.match(dataOf((await call(gateway, { stream: true })).text).at(-1), last)
    await aborted
  }
})

t.test('a silent stream gets keep-alive comments, also before its first event while attempts are retried', async (t) => {
  let tries = 0
  let text = ''
  const received = (comments: number) => eventually(`${comments} comments`, async () => ((text.match(/: keep-alive\n\n/g) ?? []).length >= comments ? true : null))
  const { gateway } = await setUp(
    t,
    async (answer) => {
      if (++tries === 1) return void received(1).then(() => answer.destroy())
      stream(answer, ...chatStream('a').slice(0, 3))
      await received(3)
      answer.end(chatStream('a').slice(3).join(''))
    },
    { keepAliveMs: 40 },
  )
  for await (const part of await startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true })) text += String(part)
  t.match(text, /^: keep-alive\n\n/)
  t.ok(text.endsWith(DONE))
  const { gateway: failing } = await setUp(
    t,
    (answer) => void setTimeout(() => answer.destroy(), 100),
    { keepAliveMs: 20 },
    { retry: { attempts: 1 } },
  )
  t.match(dataOf((await chat(failing, { stream: true })).text), [{ error: { code: 'server_overloaded' } }])
  t.match(dataOf((await responses(failing, { stream: true })).text), [
    { type: 'response.created', sequence_number: 0, response: { id: /^resp_/, status: 'in_progress' } },
    { type: 'response.in_progress', sequence_number: 1 },
    { type: 'response.failed', sequence_number: 2, response: { id: /^resp_/, status: 'failed' } },
  ])
  t.equal(await failing.settled(), null)
})

t.test('a client disconnect before the first byte aborts the upstream, and charges the prompt', async (t) => {
  for (const more of [{ stream: true }, {}]) {
    const { upstream, gateway } = await setUp(t, () => {})
    const client = new AbortController()
    const answer = fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'svc-code', messages: MESSAGES, ...more }),
      signal: client.signal,
    })
    const aborted = upstream.nextAbort()
    while (upstream.requests.length === 0) await new Promise(setImmediate)
    client.abort()
    await t.rejects(answer)
    await aborted
    t.match(await gateway.settled(), { usage: { output: 0 }, estimated: true })
  }
})

t.test('with onAbort: Drain the upstream is read to its end after a client disconnect, and its usage is charged', async (t) => {
  let finish = () => {}
  const { gateway } = await setUp(
    t,
    (answer) => {
      stream(answer, ...chatStream('a').slice(0, 3))
      finish = () => void answer.end(chatStream('a').slice(3).join(''))
    },
    { admitted: { onAbort: 'Drain' } },
  )
  const answer = await startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true })
  await new Promise((resolve) => answer.once('data', resolve))
  answer.destroy()
  await new Promise((resolve) => setTimeout(resolve, 20))
  finish()
  t.same(await gateway.settled(), { usage: { input: USAGE.prompt_tokens, cachedInput: 8, output: 5 }, estimated: false })

  const { upstream, gateway: bounded } = await setUp(t, (hanging) => stream(hanging, ...chatStream('a').slice(0, 3)), {
    admitted: { onAbort: 'Drain' },
    drainMs: 30,
  })
  const other = await startStream(bounded, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true })
  await new Promise((resolve) => other.once('data', resolve))
  const aborted = upstream.nextAbort()
  other.destroy()
  await aborted
  t.match(await bounded.settled(), { estimated: true }, 'no longer than drainMs')
})

t.test('with onAbort: Drain a request counts in the memory of bodies after its client has left, until it is over', async (t) => {
  const left = Promise.withResolvers<boolean>()
  let isHeld = () => false
  const { upstream, gateway } = await setUp(t, () => {}, {
    admitted: { onAbort: 'Drain' },
    drainMs: 30,
    decorate: (app) => void app.addHook('preHandler', async ({ bodyShare }, { raw }) => {
      isHeld = () => {
        try {
          return bodyShare?.take(0) === undefined
        } catch {
          return false
        }
      }
      raw.once('close', () => left.resolve(isHeld()))
    }),
  })
  const client = new AbortController()
  const answer = fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', messages: MESSAGES }), signal: client.signal })
  while (upstream.requests.length === 0) await new Promise(setImmediate)
  client.abort()
  await t.rejects(answer)
  t.ok(await left.promise)
  await gateway.settled()
  await new Promise(setImmediate)
  t.notOk(isHeld())
})

t.test('a client that reads nothing of a complete answer is disconnected, whole or streamed, and its request is settled', async (t) => {
  const text = 'x'.repeat(1000)
  const pieces = 8_000
  const MANY = 2_000_000
  const { gateway } = await setUp(
    t,
    async (answer, { body }) => {
      if (!body['stream']) return respond(answer, 200, completion(text.repeat(pieces), { usage: { ...USAGE, completion_tokens: MANY } }))
      stream(answer, chunk([delta({ role: 'assistant' })]), chunk([delta({ content: text.repeat(pieces) })]), chunk([delta({}, 'stop')]), chunk([], { usage: { ...USAGE, completion_tokens: MANY } }), DONE)
      answer.end()
    },
    { stalledMs: 50 },
  )
  for (const more of [{}, { stream: true }]) {
    const client = connect(Number(new URL(gateway.url).port), '127.0.0.1')
    client.on('error', () => {})
    client.pause()
    const body = JSON.stringify({ model: 'svc-code', messages: MESSAGES, ...more })
    client.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
    t.match(await gateway.settled(), { usage: { output: MANY }, estimated: false }, JSON.stringify(more))
    client.destroy()
  }
})

t.test('usage that an upstream reported early is not the charge of an answer that was aborted later: the larger counts', async (t) => {
  const words = Array.from({ length: 200 }, (_, n) => ` word${n}`)
  const early = { ...USAGE, completion_tokens: 0, total_tokens: 20 }
  const { gateway } = await setUp(t, (answer) => stream(answer, chunk([delta({ role: 'assistant', content: '' })], { usage: early }), ...words.map((content) => chunk([delta({ content })]))))
  const answer = await startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true })
  let seen = ''
  while (!seen.includes('word199')) seen += String(await new Promise((resolve) => answer.once('data', resolve)))
  answer.destroy()
  const settled = await gateway.settled()
  t.match(settled, { usage: { input: 20, cachedInput: 8 }, estimated: true })
  t.ok(settled!.usage.output >= 200, String(settled!.usage.output))

  const { gateway: other } = await setUp(t, (cut) => {
    stream(cut, chunk([delta({ role: 'assistant', content: 'a' })], { usage: { ...USAGE, completion_tokens: 500, total_tokens: 520 } }))
    setImmediate(() => cut.destroy())
  })
  await chat(other, { stream: true })
  t.same(await other.settled(), { usage: { input: 20, cachedInput: 8, output: 500 }, estimated: false }, 'reported above what was streamed: hidden reasoning')
})

t.test('a client disconnect between two attempts ends the request as a disconnect, and charges the prompt', async (t) => {
  for (const more of [{ stream: true }, {}]) {
    const { upstream, gateway } = await setUp(t, (answer) => respond(answer, 500, {}), { upstreams: { backOffMs: 1900, random: () => 1 } })
    const events: string[] = []
    const paused = new Promise<void>((resolve) =>
      gateway.upstreams.observe((event) => {
        events.push(event.event)
        if (event.event === 'retry') resolve()
      }),
    )
    const client = new AbortController()
    const answer = fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'svc-code', messages: MESSAGES, ...more }),
      signal: client.signal,
    })
    await paused
    client.abort()
    await t.rejects(answer)
    const settled = await gateway.settled()
    t.match(settled, { usage: { output: 0 }, estimated: true })
    t.ok((settled?.usage.input ?? 0) > 0)
    t.equal(upstream.requests.length, 1, 'no further attempt')
    t.notOk(gateway.logged.some((line) => line.includes('server_overloaded')))
  }
})

t.test('a stream is chunked for clients of HTTP/1.1, in bytes and with the connection kept, and ends with the connection for those of HTTP/1.0', async (t) => {
  const { gateway } = await setUp(t, streams(...chatStream('naïve', ' 雪', ' end')))
  const body = JSON.stringify({ model: 'svc-code', messages: MESSAGES, stream: true })
  const request = (version: string) => `POST /v1/chat/completions HTTP/${version}\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  const client = connect(Number(new URL(gateway.url).port), '127.0.0.1')
  let received = Buffer.alloc(0)
  client.on('data', (part: Buffer) => (received = Buffer.concat([received, part])))
  for (const turn of [1, 2]) {
    received = Buffer.alloc(0)
    client.write(request('1.1'))
    await eventually('the last chunk', async () => received.includes('\r\n0\r\n\r\n') || null)
    const [head, bytes] = split(received)
    t.match(head, /^HTTP\/1.1 200 OK\r\n[^]*\r\ntransfer-encoding: chunked/i, `on the same connection, ${turn}`)
    t.equal(contentOf(unchunked(bytes)), 'naïve 雪 end')
  }
  client.destroy()

  const old = connect(Number(new URL(gateway.url).port), '127.0.0.1')
  old.write(request('1.0'))
  const parts: Buffer[] = []
  for await (const part of old) parts.push(part as Buffer)
  const [head, bytes] = split(Buffer.concat(parts))
  t.notMatch(head, /transfer-encoding/i)
  t.equal(contentOf(bytes), 'naïve 雪 end')
  t.ok(bytes.toString().startsWith('data: ') && bytes.toString().endsWith(DONE))
})

function split(answer: Buffer): [head: string, body: Buffer] {
  const end = answer.indexOf('\r\n\r\n')
  return [answer.toString('latin1', 0, end), answer.subarray(end + 4)]
}

/** The body, by the sizes of its chunks; nothing may follow the last one. */
function unchunked(bytes: Buffer): Buffer {
  const chunks: Buffer[] = []
  for (let at = 0; ; ) {
    const end = bytes.indexOf('\r\n', at)
    const size = parseInt(bytes.toString('latin1', at, end), 16)
    const next = end + 2 + size + 2
    if (bytes.toString('latin1', next - 2, next) !== '\r\n') throw new Error(`a chunk of ${size} bytes does not end at ${next}`)
    if (size === 0 && next !== bytes.length) throw new Error('bytes follow the last chunk')
    if (size === 0) return Buffer.concat(chunks)
    chunks.push(bytes.subarray(end + 2, end + 2 + size))
    at = next
  }
}

const contentOf = (bytes: Buffer) => dataOf(bytes.toString()).flatMap((one) => one.choices?.[0]?.delta?.content ?? []).join('')
