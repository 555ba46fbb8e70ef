/** Connections to upstreams: what a finished answer leaves behind, and resets of idle connections. */
import { createServer, type Socket } from 'node:net'
import { mock } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t, { type Test } from 'tap'
import { Attempt } from '../../src/upstream/http/attempt.ts'
import type { Connection, ResponseHandler } from '../../src/upstream/http/connection.ts'
import { parseHead } from '../../src/upstream/http/response-head.ts'
import type { Upstream } from '../../src/upstream/http/upstream.ts'
import { openChatStream } from '../../src/upstream/wires/chat/chat-stream.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import type { UpstreamCall } from '../../src/upstream/wires/wire.ts'
import type { UpstreamEvent } from '../../src/upstream/selection/retry-and-failover.ts'
import { chatStream, completion } from '../fakes/upstream-wire.ts'
import { chat, openGateway } from './gateway.ts'
import { listening } from '../fakes/listening.ts'

const OK = parseHead('HTTP/1.1 200 OK\r\n\r\n')

t.test('a stream whose body has ended leaves no timer behind', async (t) => {
  let now = performance.now()
  mock.timers.enable({ apis: ['setTimeout'] })
  mock.method(performance, 'now', () => now)
  t.teardown(() => mock.reset())
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  const call = { stream: true, openRewriter: () => openChatStream({ ids, includeUsage: false, createdAt: 1 }) } as unknown as UpstreamCall
  const read = (end: boolean) => {
    const aborts: Error[] = []
    const told: string[] = []
    const connection = { pause() {}, resume() {}, destroy: (reason: Error) => void aborts.push(reason) } as unknown as Connection
    const pool = {
      send(_head: string, _body: unknown, attempt: ResponseHandler) {
        attempt.responseBegun(OK)
        attempt.responseData(Buffer.from(chatStream('a').join('')))
        if (end) attempt.responseEnded()
        return connection
      },
    }
    const upstream = { settings: { timeouts: { firstByteMs: 5_000, idleMs: 5_000 } }, head: () => '', pool, target: {} } as unknown as Upstream
    const sink = { bytes() {}, ended: (failure: unknown) => void told.push(failure === null ? 'ended' : 'failed') }
    new Attempt(upstream, call, false, sink, { answered: () => void told.push('answered'), failed: (error) => t.fail(error.message) }).send('pool', '{}')
    now += 60_000
    mock.timers.tick(60_000)
    t.same(told, ['answered', 'ended'])
    return aborts
  }
  t.equal(read(true).length, 0, 'the body ended: nothing fires later')
  t.equal(read(false).length, 1, 'the body did not end: its connection is closed')
})

/** An attempt that gets this text in one piece, and what it was told. `answered` is called with it. */
function attemptWith(text: string, answered: (attempt: Attempt) => void): { attempt: Attempt; calls: string[]; outcome: WeakRef<object> } {
  const ids = openIds([Buffer.alloc(48, 1)])('acme/first')
  const call = { stream: true, openRewriter: () => openChatStream({ ids, includeUsage: false, createdAt: 1 }) } as unknown as UpstreamCall
  const calls: string[] = []
  const note = (name: string) => () => void calls.push(name)
  const connection = { pause: note('pause'), resume: note('resume'), destroy: note('destroy') } as unknown as Connection
  const pool = {
    send(_head: string, _body: unknown, attempt: ResponseHandler) {
      attempt.responseBegun(OK)
      return connection
    },
  }
  const upstream = { settings: { timeouts: { firstByteMs: 5_000, idleMs: 5_000 } }, head: () => '', pool, target: {} } as unknown as Upstream
  const outcome = { answered: () => answered(attempt), failed: note('failed') }
  const attempt = new Attempt(upstream, call, false, { bytes() {}, ended: note('ended') }, outcome)
  attempt.send('pool', '{}')
  attempt.responseData(Buffer.from(text))
  return { attempt, calls, outcome: new WeakRef(outcome) }
}

t.test('a stream that is paused at its beginning and has ended is read to the end of its body, so that its connection is free', async (t) => {
  const { attempt, calls } = attemptWith(chatStream('a').join(''), (one) => one.pause())
  t.same(calls, ['pause', 'ended', 'resume'])
  attempt.responseEnded()
  t.same(calls, ['pause', 'ended', 'resume'])
})

t.test('a stream keeps nothing of its request once it has begun', async (t) => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const { attempt, outcome } = attemptWith(chatStream('a').slice(0, -1).join(''), () => {})
  // A WeakRef is kept until the end of its turn.
  await new Promise(setImmediate)
  collect()
  t.equal(outcome.deref(), undefined)
  attempt.abort()
})

const ANSWERS = [
  { form: 'JSON', stream: false, type: 'application/json', answer: JSON.stringify(completion('hi')) },
  { form: 'stream', stream: true, type: 'text/event-stream', answer: chatStream('hi').join('') },
]

for (const { form, stream, type, answer } of ANSWERS) t.test(`a reset of a reused idle connection is tried again at once on a fresh one, and the breaker does not count it: ${form}`, async (t) => {
  let served = 0
  let connections = 0
  let always = false
  // Answers the first request of a connection, and resets it at the second one.
  const server = createServer((socket: Socket) => {
    connections++
    let requests = 0
    socket.on('error', () => {})
    socket.on('data', (data) => {
      if (!String(data).includes('POST ')) return
      if (++requests > 1 || always) return void socket.resetAndDestroy()
      served++
      socket.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(answer)}\r\n\r\n${answer}`)
    })
  })
  const port = await listening(t, server)
  const gateway = await openGateway(t, {
    declared: [{ name: 'a', baseUrl: `http://127.0.0.1:${port}/v1`, model: 'a', wire: 'chat', retry: { attempts: 1 }, breaker: { failures: 2 } }],
    upstreams: { backOffMs: 100_000 },
  })
  const events: UpstreamEvent[] = []
  gateway.upstreams.observe((event) => events.push(event))
  for (let n = 0; n < 6; n++) t.equal((await chat(gateway, { stream })).status, 200)
  t.equal(served, 6)
  t.ok(connections >= 6, `${connections} connections`)
  t.equal(gateway.upstreams.states()[0]!.breaker, 'closed')
  t.same(events.filter((event) => event.event === 'attempt' && event.outcome === 'failed'), [])
  always = true
  t.equal((await chat(gateway, { stream })).status, 503)
  t.equal((await chat(gateway, { stream })).status, 503)
  t.equal(gateway.upstreams.states()[0]!.breaker, 'open', 'a reset of a fresh connection counts')
})

/** A gateway with one attempt at an upstream that answers the request of each number with these bytes, and then does this. */
async function answeredWith(t: Test, answerOf: (request: number) => { bytes: string; afterwards?: (socket: Socket) => void }) {
  let requests = 0
  const server = createServer((socket: Socket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      if (!String(data).includes('POST ')) return
      const { bytes, afterwards = () => {} } = answerOf(++requests)
      socket.write(bytes, () => afterwards(socket))
    })
  })
  const port = await listening(t, server)
  const gateway = await openGateway(t, { declared: [{ name: 'a', baseUrl: `http://127.0.0.1:${port}/v1`, model: 'a', wire: 'chat', retry: { attempts: 1 } }] })
  return { gateway, requests: () => requests }
}

const JSON_ANSWER = JSON.stringify(completion('hi'))
const WHOLE = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(JSON_ANSWER)}\r\n\r\n${JSON_ANSWER}`

t.test('a request whose answer had begun is not sent again as if its connection had been idle, fresh or reused', async (t) => {
  const PART = 'HTTP/1.1 200 OK\r\ncontent-ty'
  const afterwards = (socket: Socket) => socket.end()
  const fresh = await answeredWith(t, () => ({ bytes: PART, afterwards }))
  t.equal((await chat(fresh.gateway)).status, 503)
  t.equal(fresh.requests(), 1)
  const reused = await answeredWith(t, (n) => (n === 1 ? { bytes: WHOLE } : { bytes: PART, afterwards }))
  t.equal((await chat(reused.gateway)).status, 200)
  t.equal((await chat(reused.gateway)).status, 503)
  t.equal(reused.requests(), 2)
})

t.test('informational answers before the answer are skipped, also a 100 Continue that the request does not expect', async (t) => {
  const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'
  const HINTS = 'HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n'
  let interim = ''
  const { gateway, requests } = await answeredWith(t, () => ({ bytes: interim + WHOLE }))
  const rows = [HINTS, CONTINUE, CONTINUE + CONTINUE, 'HTTP/1.1 100 \r\nx: y\r\n\r\n', CONTINUE + HINTS, '']
  for (const row of rows) {
    interim = row
    for (let n = 0; n < 2; n++) t.match(await chat(gateway), { status: 200, body: { choices: [{ message: { content: 'hi' } }] } }, row)
  }
  t.equal(requests(), rows.length * 2, 'each request was sent once')
})

t.test('a request whose answer is not HTTP is not sent again as if its connection had been idle', async (t) => {
  let answer = ''
  const { gateway, requests } = await answeredWith(t, () => ({ bytes: answer }))
  for (const [n, bytes] of ['NOT HTTP\r\n\r\n', 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'].entries()) {
    answer = bytes
    t.equal((await chat(gateway)).status, 503)
    t.equal(requests(), n + 1)
  }
})
