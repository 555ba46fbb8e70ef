/** Load balancing, retry, failover, circuit breaker, timeouts, back-pressure, and the UPSTREAMS file. */
import { writeFile } from 'node:fs/promises'
import { createServer as createTlsServer } from 'node:https'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import { openBreaker } from '../../src/upstream/selection/circuit-breaker.ts'
import { parseUpstreams } from '../../src/upstream/upstreams-file.ts'
import { openUpstreams } from '../../src/upstream/upstreams.ts'
import type { UpstreamEvent } from '../../src/upstream/selection/retry-and-failover.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openUpstream, respond, stream, streams, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { chatStream, completion, DONE } from '../fakes/upstream-wire.ts'
import { SELF_SIGNED } from './self-signed.ts'
import { eventually } from '../flows/eventually.ts'
import { chat, dataOf, writeUpstreamsFile, MESSAGES, openGateway, SILENT, startStream, type Gateway } from './gateway.ts'
import { listening } from '../fakes/listening.ts'
import { freePort } from '../servers/process.ts'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

const answers =
  (content: string): Script =>
  (answer, { body }) =>
    body['stream']
      ? streams(...chatStream(content))(answer, { path: '', headers: {}, text: '', body })
      : respond(answer, 200, completion(content))
const failing: Script = (answer) => respond(answer, 500, {})

async function fakes(t: Test, ...scripts: Script[]): Promise<FakeUpstream[]> {
  const all = await Promise.all(scripts.map((script) => openUpstream(script)))
  t.teardown(() => Promise.all(all.map((one) => one.close())))
  return all
}

const member = (name: string, { url }: { url: string }, more: object = {}) => ({ name, baseUrl: url, model: name, wire: 'chat', ...more })
const answerOf = async (gateway: Gateway) => (await chat(gateway)).body.choices?.[0].message.content as string | undefined

t.test('the lowest priority number is tried first, then failover in order; a 401 fails over without a retry', async (t) => {
  const [first, second, third] = (await fakes(t, answers('first'), answers('second'), answers('third'))) as [
    FakeUpstream,
    FakeUpstream,
    FakeUpstream,
  ]
  const gateway = await openGateway(t, {
    declared: [member('c', third, { priority: 9 }), member('b', second, { priority: 1 }), member('a', first)],
  })
  t.equal(await answerOf(gateway), 'first')
  first.respondWith(failing)
  t.equal(await answerOf(gateway), 'second')
  t.equal(first.requests.length, 1 + 2, 'two attempts, then failover')
  second.respondWith((answer) => respond(answer, 401, {}))
  t.equal(await answerOf(gateway), 'third')
  t.equal(second.requests.length, 1 + 1, 'a 401 is not retried')
  third.respondWith((answer) => respond(answer, 400, { error: { code: 'content_filter' } }))
  t.equal((await chat(gateway)).status, 400)
})

t.test('headers of the UPSTREAMS file replace those of the gateway, whatever their case', async (t) => {
  const [upstream] = (await fakes(t, answers('hi'))) as [FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', upstream, { apiKey: 'secret', headers: { 'User-Agent': 'acme', AUTHORIZATION: 'Basic YTpi', 'X-Team': 'one' } })] })
  t.equal(await answerOf(gateway), 'hi')
  t.match(upstream.requests[0]?.headers, { 'user-agent': 'acme', authorization: 'Basic YTpi', 'x-team': 'one' })
})

t.test('a large body is sent whole to every upstream that is tried, with its own model', async (t) => {
  const content = 'say "語😀"\n'.repeat(100_000)
  const [first, second] = (await fakes(t, failing, answers('second'))) as [FakeUpstream, FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', first), member('b', second, { priority: 1 })], upstreams: { backOffMs: 0 } })
  const messages = [{ role: 'system', content: 'short' }, { role: 'user', content }, { role: 'assistant', content }, { role: 'user', content: 'last' }]
  t.equal((await chat(gateway, { messages, temperature: 0.5 })).status, 200)
  const bodies = [...first.requests, ...second.requests].map(({ body }) => body)
  t.same(bodies.map(({ model }) => model), ['a', 'a', 'b'])
  for (const body of bodies) t.match(body, { messages, temperature: 0.5 })
})

t.test('within a priority, upstreams are chosen by weight', async (t) => {
  const [a, b] = (await fakes(t, answers('a'), answers('b'))) as [FakeUpstream, FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', a, { weight: 1 }), member('b', b, { weight: 3 })] })
  for (let n = 0; n < 200; n++) await chat(gateway)
  t.ok(a.requests.length > 20 && a.requests.length < 85, `about a quarter: ${a.requests.length}`)
  t.equal(a.requests.length + b.requests.length, 200)
})

t.test('a short Retry-After of an upstream is waited for, a long one fails over', async (t) => {
  const [a, b] = (await fakes(t, () => {}, answers('b'))) as [FakeUpstream, FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', a), member('b', b, { priority: 1 })] })
  a.respondWith((answer) => (a.requests.length === 1 ? respond(answer, 429, {}, { 'retry-after': '1' }) : answers('a')(answer, a.requests[0]!)))
  t.equal(await answerOf(gateway), 'a')
  a.respondWith((answer) => respond(answer, 429, {}, { 'retry-after': '60' }))
  t.equal(await answerOf(gateway), 'b')
  t.equal(a.requests.length, 3)
})

t.test('a stream fails over until its first event, never after it', async (t) => {
  const [a, b] = (await fakes(t, () => {}, answers('b'))) as [FakeUpstream, FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', a, { breaker: { failures: 100 } }), member('b', b, { priority: 1 })] })
  for (const script of [streams(': wait\n\n'), streams('data: {"error":{}}\n\n'), failing] as Script[]) {
    a.respondWith(script)
    t.match(
      dataOf((await chat(gateway, { stream: true })).text)
        .slice(0, -1)
        .map((one) => one.choices[0].delta.content)
        .join(''),
      'b',
    )
  }
  a.respondWith(streams(chatStream('a')[1]!))
  const before = b.requests.length
  t.match(dataOf((await chat(gateway, { stream: true })).text).at(-1), { error: {} })
  t.equal(b.requests.length, before)
})

t.test('the circuit breaker opens for a failing upstream and probes it after openSeconds', async (t) => {
  const [a] = (await fakes(t, failing)) as [FakeUpstream]
  let now = 1_000_000
  const events: UpstreamEvent[] = []
  const gateway = await openGateway(t, {
    declared: [member('a', a, { retry: { attempts: 1 }, breaker: { failures: 3, windowSeconds: 30, openSeconds: 10 } })],
    upstreams: { now: () => now },
  })
  gateway.upstreams.observe((event) => events.push(event))
  for (let n = 0; n < 3; n++) await chat(gateway)
  t.equal(gateway.upstreams.states()[0]!.breaker, 'open')
  const refused = await chat(gateway)
  t.match({ status: refused.status, wait: refused.headers['retry-after'] }, { status: 503, wait: '10' })
  t.equal(a.requests.length, 3, 'no attempt while the breaker is open')
  now += 10_000
  await chat(gateway)
  t.equal(a.requests.length, 4, 'one probe')
  t.equal((await chat(gateway)).status, 503)
  t.equal(a.requests.length, 4, 'the probe failed and reopened the breaker')
  now += 10_000
  a.respondWith(answers('back'))
  t.equal(await answerOf(gateway), 'back')
  t.equal(gateway.upstreams.states()[0]!.breaker, 'closed')
  t.same(
    events.map((event) => event.event === 'attempt' && event.outcome),
    ['failed', 'failed', 'failed', 'failed', 'answered'],
  )
})

t.test('a breaker opens at consecutive failures within its window, and half open admits one probe', async (t) => {
  const breaker = openBreaker({ failures: 2, windowSeconds: 10, openSeconds: 5 })
  breaker.failed(0)
  breaker.succeeded()
  breaker.failed(1)
  t.equal(breaker.state(1), 'closed', 'a success between them')
  breaker.failed(20_000)
  t.equal(breaker.state(20_000), 'closed', 'too far apart')
  breaker.failed(21_000)
  t.equal(breaker.state(21_000), 'open')
  t.notOk(breaker.admit(25_999))
  t.equal(breaker.waitMs(25_000), 1000)
  t.equal(breaker.state(26_000), 'half_open')
  t.ok(breaker.admit(26_000))
  t.equal(breaker.state(90_000), 'open', 'while the probe has no answer')
  t.notOk(breaker.admit(26_000), 'one at a time')
  breaker.cancelled()
  t.ok(breaker.admit(26_000), 'a cancelled probe has no outcome')
  breaker.failed(26_000)
  t.notOk(breaker.admit(30_999))
})

t.test('an upstream that exceeds its first-byte or idle timeout is aborted', async (t) => {
  const [a, b] = (await fakes(t, () => {}, answers('b'))) as [FakeUpstream, FakeUpstream]
  const timeouts = { firstByteMs: 30, idleMs: 60 }
  const gateway = await openGateway(t, {
    declared: [member('a', a, { timeouts, retry: { attempts: 1 }, breaker: { failures: 100 } }), member('b', b, { priority: 1 })],
  })
  for (const script of [() => {}, (answer) => stream(answer), (answer) => stream(answer, ': hm\n\n')] as Script[]) {
    a.respondWith(script)
    t.ok((await chat(gateway, { stream: true })).text.includes('"b"'), 'no first event')
    await eventually('all its requests to be aborted', async () => (a.aborts === a.requests.length ? true : null))
  }
  const patient = await openGateway(t, { declared: [member('a', a, { timeouts: { idleMs: 60 } }), member('b', b, { priority: 1 })] })
  a.respondWith((answer) => stream(answer, chatStream('a').slice(0, 3).join('')))
  t.match(dataOf((await chat(patient, { stream: true })).text).at(-1), { error: { code: 'server_overloaded' } }, 'silence in the middle')
  await eventually('its request to be aborted', async () => (a.aborts === a.requests.length ? true : null))
})

t.test('a JSON request that an upstream has and does not answer in time is sent to nobody else, and not charged', async (t) => {
  const [a, b] = (await fakes(t, () => {}, answers('b'))) as [FakeUpstream, FakeUpstream]
  const timeouts = { firstByteMs: 30, idleMs: 60 }
  const gateway = await openGateway(t, { declared: [member('a', a, { timeouts }), member('b', b, { priority: 1 })] })
  for (const script of [() => {}, (answer) => void answer.writeHead(200, { 'content-type': 'application/json' }).write('{')] as Script[]) {
    a.respondWith(script)
    t.match(await chat(gateway), { status: 503, body: { error: { code: 'server_overloaded' } } })
    t.equal(await gateway.settled(), null)
  }
  t.same([a.requests.length, b.requests.length], [2, 0])
  await eventually('its requests to be aborted', async () => (a.aborts === 2 ? true : null))

  // A server that takes no more of a body than the system does.
  const full = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
  await once(full, 'listening')
  const url = `http://127.0.0.1:${(full.address() as { port: number }).port}`
  const waiting = await openGateway(t, { declared: [member('full', { url }, { timeouts, retry: { attempts: 1 } }), member('b', b, { priority: 1 })] })
  t.match(await chat(waiting, { messages: [{ role: 'user', content: 'x'.repeat(30_000_000) }] }), { status: 200 }, 'it has not all of it')
  full.close()
})

t.test('a changed upstream finishes the calls that will try it again', async (t) => {
  const [a] = (await fakes(t, failing)) as [FakeUpstream]
  const file = await writeUpstreamsFile(t, [member('a', a, { model: 'first' })])
  const upstreams = await openUpstreams({ file, env: () => undefined, log: SILENT, backOffMs: 1, pollMs: 60_000 })
  t.teardown(() => upstreams.close())
  a.respondWith(async (answer) => {
    await writeFile(file, JSON.stringify({ upstreams: [member('a', a, { model: 'second' })] }))
    await upstreams.reload()
    a.respondWith(answers('a'))
    respond(answer, 500, {})
  })
  const call = readChatRequest({ model: 'svc-code', messages: MESSAGES }, new Set()).call(100, openIds([Buffer.alloc(48, 1)])('acme/first'), () => 1, ['chat'])
  t.equal(await new Promise((resolve) => upstreams.send(call, { answered: () => resolve('answered'), failed: resolve, bytes() {}, ended() {} }, SILENT)), 'answered')
  t.same(a.requests.map(({ body }) => body['model']), ['first', 'first'])
})

t.test('a close ends the calls that wait to try a replaced upstream again', async (t) => {
  const [a, b] = (await fakes(t, failing, answers('b'))) as [FakeUpstream, FakeUpstream]
  const file = await writeUpstreamsFile(t, [member('a', a)])
  const upstreams = await openUpstreams({ file, env: () => undefined, log: SILENT, backOffMs: 1900, random: () => 1, pollMs: 60_000 })
  t.teardown(() => upstreams.close())
  const tried = new Promise<void>((resolve) => upstreams.observe(({ event }) => event === 'retry' && resolve()))
  a.respondWith((answer) => respond(answer.setHeader('connection', 'close'), 500, {}))
  const call = readChatRequest({ model: 'svc-code', messages: MESSAGES }, new Set()).call(100, openIds([Buffer.alloc(48, 1)])('acme/first'), () => 1, ['chat'])
  const ended = new Promise((resolve) => upstreams.send(call, { answered: () => resolve('answered'), failed: resolve, bytes() {}, ended() {} }, SILENT))
  await tried
  await writeFile(file, JSON.stringify({ upstreams: [member('b', b)] }))
  await upstreams.reload()
  a.respondWith(answers('a'))
  // The last connection of the replaced upstream is gone, and with it what held its pool.
  await new Promise(setImmediate)
  await upstreams.close()
  t.match(await ended, { code: 'server_overloaded' })
  t.equal(a.requests.length, 1)
})

t.test('an upstream that refuses the connection or speaks no TLS fails over', async (t) => {
  const port = await freePort()
  const [b] = (await fakes(t, answers('b'))) as [FakeUpstream]
  const gateway = await openGateway(t, {
    declared: [
      member('gone', { url: `http://127.0.0.1:${port}/v1` }),
      member('tls', { url: b.url.replace('http:', 'https:') }, { priority: 1 }),
      member('b', b, { priority: 2 }),
    ],
  })
  t.equal(await answerOf(gateway), 'b')
})

t.test('an upstream with an untrusted certificate gets no request', async (t) => {
  let requests = 0
  const server = createTlsServer(SELF_SIGNED, (_request, answer) => {
    requests++
    respond(answer, 200, completion('a'))
  })
  const port = await listening(t, server)
  const gateway = await openGateway(t, { declared: [member('a', { url: `https://127.0.0.1:${port}/v1` })] })
  t.equal((await chat(gateway)).status, 503)
  t.equal(requests, 0)
})

t.test('slow readers exert back-pressure on their upstreams, and the process buffers little', async (t) => {
  const READERS = 20
  const PIECE = `data: ${JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { content: 'x'.repeat(8000) } }] })}\n\n`
  const PIECES = 2000
  const written = new Map<object, number>()
  const [a] = (await fakes(t, async (answer) => {
    stream(answer)
    for (let n = 0; n < PIECES && !answer.destroyed; n++) {
      written.set(answer, n + 1)
      if (!answer.write(PIECE)) await Promise.race([once(answer, 'drain'), once(answer, 'close')])
    }
    answer.end(DONE)
  })) as [FakeUpstream]
  const gateway = await openGateway(t, { declared: [member('a', a)] })
  const memory = () => {
    collectGarbage()
    const { heapUsed, external } = process.memoryUsage()
    return (heapUsed + external) / 1024 / 1024
  }
  const before = memory()
  const readers = await Promise.all(
    Array.from({ length: READERS }, () =>
      startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true }),
    ),
  )
  // Until nothing moves: every buffer on the way is full.
  for (let last = -1, sum = 0; last !== sum;) {
    last = sum
    await new Promise((resolve) => setTimeout(resolve, 200))
    sum = [...written.values()].reduce((total, count) => total + count, 0)
  }
  const offered = (READERS * PIECES * PIECE.length) / 1024 / 1024
  t.ok(
    [...written.values()].every((count) => count < PIECES),
    'no upstream could send everything',
  )
  t.ok(memory() - before < 50, `${Math.round(memory() - before)} MiB buffered of ${Math.round(offered)} MiB offered`)

  const [first, ...others] = readers
  for (const other of others) other.destroy()
  let bytes = 0
  let end = ''
  for await (const part of first!) {
    bytes += (part as Buffer).length
    end = (end + String(part)).slice(-20)
  }
  t.ok(bytes > PIECES * 8000, 'the client that reads gets everything')
  t.ok(end.endsWith(DONE))
})

t.test('a changed UPSTREAMS file is applied, an invalid one is not', async (t) => {
  const [a, b] = (await fakes(t, answers('a'), answers('b'))) as [FakeUpstream, FakeUpstream]
  const file = await writeUpstreamsFile(t, [member('one', a)])
  const errors: object[] = []
  const upstreams = await openUpstreams({
    file,
    env: () => undefined,
    log: { ...SILENT, error: (facts) => errors.push(facts) },
    pollMs: 60_000,
  })
  t.teardown(() => upstreams.close())
  const names = () => upstreams.states().map(({ name }) => name)
  await writeFile(file, 'upstreams:\n  - name: two\n    wire: [')
  await upstreams.reload()
  await upstreams.reload()
  t.same(names(), ['one'])
  t.match(errors, [{ err: /line 3/ }])
  t.equal(errors.length, 1, 'logged once')
  await writeFile(file, JSON.stringify({ upstreams: [member('two', b), member('one', a)] }))
  await upstreams.reload()
  t.same(names(), ['two', 'one'])
  t.same(upstreams.wiresFor('chat'), ['chat'])
  t.same(upstreams.wiresFor('responses'), ['chat'])
})

t.test('an API key is read from its file, and again when the file changes', async (t) => {
  const [a] = (await fakes(t, answers('a'))) as [FakeUpstream]
  const file = await writeUpstreamsFile(t, [member('one', a, { apiKeyFile: 'key.txt' })])
  await t.rejects(openUpstreams({ file, env: () => undefined, log: SILENT }), /apiKeyFile cannot be read \(ENOENT\)/)
  await writeFile(join(dirname(file), 'key.txt'), 'first\n')
  const gateway = await openGateway(t, { upstreams: { file } })
  await chat(gateway)
  await writeFile(join(dirname(file), 'key.txt'), 'second\n')
  await gateway.upstreams.reload()
  await chat(gateway)
  t.same(
    a.requests.map(({ headers }) => headers.authorization),
    ['Bearer first', 'Bearer second'],
  )
})

t.test('an invalid UPSTREAMS file is refused with its line, the setting and the reason', async (t) => {
  const keys = { env: (name: string) => (name === 'KEY' ? 'k' : undefined), readFile: () => 'k' }
  const one = 'upstreams:\n  - name: a\n    baseUrl: https://models.test/v1/\n    model: m\n    wire: chat\n'
  t.match(parseUpstreams('u.yaml', `${one}    apiKeyEnv: KEY\n`, keys), [
    {
      name: 'a',
      baseUrl: 'https://models.test/v1',
      apiKey: 'k',
      weight: 1,
      priority: 0,
      timeouts: { connectMs: 2000, firstByteMs: 120_000, idleMs: 300_000 },
      retry: { attempts: 2 },
      breaker: { failures: 5, windowSeconds: 30, openSeconds: 10 },
    },
  ])
  const wrong: [string, string][] = [
    ['', 'UPSTREAMS u.yaml, line 1: the file must be an object.'],
    ['upstreams: []', 'line 1: upstreams must have at least one entry.'],
    [`${one}    colour: red\n`, 'line 6: upstreams[0].colour is not a setting.'],
    [one.replace('wire: chat', 'wire: both ways'), 'line 5: upstreams[0].wire must be one of chat, responses, messages, both.'],
    [one.replace('wire: chat', 'wire: [chat, soap]'), 'line 5: upstreams[0].wire[1] must be one of chat, responses, messages.'],
    [one.replace('wire: chat', 'wire: []'), 'line 5: upstreams[0].wire must have at least one entry.'],
    [one.replace('    model: m\n', ''), 'line 2: upstreams[0].model is missing.'],
    [one.replace('https:', 'ftp:'), 'line 3: upstreams[0].baseUrl must be an http or https address, or echo:.'],
    [one.replace('https://', 'https://me:secret@'), 'line 3: upstreams[0].baseUrl must have no user, password or fragment.'],
    [`${one}    apiKeyEnv: OTHER\n`, 'line 6: upstreams[0].apiKeyEnv names OTHER, which is not set.'],
    [`${one}    apiKeyEnv: KEY\n    apiKey: x\n`, 'line 6: upstreams[0].apiKeyEnv cannot be combined with apiKey.'],
    [`${one}    apiKey: "a b"\n`, 'line 6: upstreams[0].apiKey must be a key of visible ASCII characters.'],
    [`${one}    headers: {Host: x}\n`, 'line 6: upstreams[0].headers must not set Host.'],
    [`${one}    timeouts: {connectMs: soon}\n`, 'line 6: upstreams[0].timeouts.connectMs must be a whole number.'],
    [one + one.replace('upstreams:\n', ''), 'line 6: upstreams[1].name must be unique.'],
    ['upstreams:\n  - name: a\n   wire: x\n', 'line 3: '],
    [`${one}---\n${one}`, 'line 6: the file must be one YAML document.'],
    ['a: &a [*a, *a]\nb: {<<: *a}\n', 'UPSTREAMS u.yaml'],
  ]
  for (const [text, sentence] of wrong)
    t.throws(
      () => parseUpstreams('u.yaml', text, keys),
      { name: 'SettingsFileError', message: new RegExp(sentence.replaceAll(/[.[\]*+?^$(){}|\\]/g, '\\$&')) },
      sentence,
    )
})
