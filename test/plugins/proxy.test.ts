/** Pass-through routes: admission, charge, streaming, headers, failures, the file. */
import { once } from 'node:events'
import { request as httpRequest } from 'node:http'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import fastify, { type FastifyBaseLogger } from 'fastify'
import pino from 'pino'
import t from 'tap'
import { WebSocket } from 'ws'
import { parseProxyRoutes } from '../../plugins/proxy/routes-file.ts'
import { watchRoutes } from '../../plugins/proxy/route-watch.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { PASS_THROUGH } from '../../src/domain/subscription/holds.ts'
import { ABANDONED_MS, MOST_PENDING_MS } from '../../src/tasks/flat-charge.ts'
import { sweepSubscriptions } from '../../src/tasks/recovery-sweeps.ts'
import { verifyStore } from '../../src/verify/verify.ts'
import { certify } from '../egress/certificate.ts'
import { openService } from '../fakes/service.ts'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { openProxyProgram } from './proxy-program.ts'

const coding = { product: 'Coding', tokensPerRequest: 100 }
const media = { product: 'Media', amountPerRequest: '0.25' }
const errorOf = async (answer: Response) => [answer.status, ((await answer.json()) as { error: { code: string } }).error.code]

t.test('a service is called through a key of the product and charged flat tokens, or flat money', async (t) => {
  const service = await openService(t)
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url }, { ...media, prefix: '/pictures/v2', upstream: service.url, rewritePrefix: '/base' }])
  const posted = await program.call('/tools/a%20b/c?x=1&x=2&y', { method: 'POST', body: 'hello', headers: { 'content-type': 'text/weird', accept: 'text/weird' } })
  t.same([posted.status, await posted.text(), posted.headers.get('content-type')], [200, 'hello', 'text/weird'])
  t.ok(posted.headers.get('x-ratelimit-remaining-tokens'))
  t.equal(await program.usedTokens(), 100)
  t.equal((await program.call('/pictures/v2', {}, program.media)).status, 200)
  t.equal((await program.call('/pictures/v2/7', { method: 'DELETE' }, program.media)).status, 200)
  t.equal(await program.burned(), '0.5000')
  t.same(service.seen.map(({ method, url }) => `${method} ${url}`), ['POST /a%20b/c?x=1&x=2&y', 'GET /base', 'DELETE /base/7'])
  t.match(service.seen[0]?.headers, { accept: 'text/weird', host: new URL(service.url).host, 'x-svc-tenant': 'demo', 'x-svc-plan': 'demo/coder', 'x-forwarded-for': '127.0.0.1', 'x-forwarded-prefix': '/tools' })
  t.same(service.seen.filter(({ headers }) => 'authorization' in headers), [], 'the key stays here')
  const { by } = (await (await program.call('/api/v1/usage', {}, program.media)).json()) as { by: object[] }
  t.match(by, [{ operation: 'proxy', count: 2, burned: '0.5000' }])
  t.same((await verifyStore(program.app.store, { now: Date.now() })).violations, [])
})

t.test('a request without a key, with a key of the other product, of another plan, or beyond the balance does not reach the service', async (t) => {
  const service = await openService(t)
  const program = await openProxyProgram(t, [
    { ...coding, prefix: '/tools', upstream: service.url },
    { ...coding, prefix: '/tools/admin', upstream: service.url, plans: ['demo/other'] },
    { ...coding, prefix: '/ours', upstream: service.url, plans: ['demo/coder'], tokensPerRequest: 0 },
    { ...media, prefix: '/costly', upstream: service.url, amountPerRequest: '1000000' },
    { ...coding, prefix: '/full', upstream: service.url, tokensPerRequest: 500_000 },
  ])
  t.same(await errorOf(await program.call('/tools', { headers: { authorization: '' } })), [401, 'invalid_api_key'])
  t.same(await errorOf(await program.call('/tools', {}, program.media)), [403, 'wrong_product'])
  t.match(await (await program.call('/tools', {}, program.media)).json(), { error: { message: 'This API key belongs to the other product. This address takes Coding Plan API keys.' } })
  t.same(await errorOf(await program.call('/tools/admin/x')), [403, 'plan_not_allowed'])
  t.same(await errorOf(await program.call('/tools/%61dmin/x')), [403, 'plan_not_allowed'], 'however the prefix is written')
  t.same(await errorOf(await program.call('/costly', {}, program.media)), [402, 'insufficient_balance'])
  t.same(await errorOf(await program.call('/elsewhere')), [404, 'not_found'])
  t.same(await errorOf(await program.call('/toolset')), [404, 'not_found'])
  t.same(service.seen, [])
  t.equal((await program.call('/ours')).status, 200)
  t.equal(await program.usedTokens(), 0)
  t.equal((await program.call('/full')).status, 200)
  await program.usedTokens()
  t.same(await errorOf(await program.call('/tools')), [429, 'session_limit_reached'])
  t.equal(service.seen.length, 2)
})

t.test('no service is called before the admission of its request is stored', async (t) => {
  const service = await openService(t, { socket: (socket) => socket.on('message', (data) => socket.send(data)) })
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url, websocket: true }])
  const { store } = program.app
  const { decide } = store
  store.decideNow = (_id, { op }) => {
    if (op === 'admit') throw new Error('it would wait for others to be written with them')
    return null
  }
  let durable = Promise.reject<void>(new Unavailable('store', new Error('the disk is gone')))
  durable.catch(() => {})
  store.decide = (async (...args: Parameters<typeof decide>) => ({ ...(await decide(...args)), durable })) as typeof decide
  t.same(await errorOf(await program.call('/tools', { method: 'POST', body: 'hello' })), [503, 'unavailable'])
  const handshake = () => new WebSocket(`ws://127.0.0.1:${program.port}/tools`, { headers: { authorization: `Bearer ${program.coding}` } })
  const [, refused] = await once(handshake(), 'unexpected-response')
  t.equal(refused.statusCode, 503)
  t.same(service.seen, [])
  t.equal(await program.usedTokens(), 0)
  const stored = Promise.withResolvers<void>()
  durable = stored.promise
  const waiting = [program.call('/tools', { method: 'POST', body: 'hello' }), once(handshake(), 'open')]
  await eventually('both admissions', async () => (((await (await program.call('/v1/usage')).json()) as { session: { reserved: number } }).session.reserved === 200 ? true : null))
  t.same(service.seen, [])
  stored.resolve()
  await Promise.all(waiting)
  t.equal(service.seen.length, 2)
})

t.test('both directions are streamed: the service answers while the client still sends', async (t) => {
  const service = await openService(t)
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url }])
  const outgoing = httpRequest({ port: program.port, path: '/tools/echo', method: 'POST', headers: { authorization: `Bearer ${program.coding}`, 'content-encoding': 'x-own' } })
  outgoing.write('one')
  const [answer] = await once(outgoing, 'response')
  const [first] = await once(answer, 'data')
  t.equal(String(first), 'one')
  outgoing.write('two')
  const [second] = await once(answer, 'data')
  t.equal(String(second), 'two')
  outgoing.end()
  await once(answer.resume(), 'end')
  t.equal(service.seen[0]?.headers['content-encoding'], 'x-own')
  t.equal(await program.usedTokens(), 100)
})

t.test('a service that is away, dies, is slow, or fails costs nothing, and is not named', async (t) => {
  const dead = await openService(t)
  await dead.close()
  const service = await openService(t, {
    answer: (request, response) => {
      if (request.url === '/dies') request.socket.destroy()
      if (request.url === '/fails') response.writeHead(503, { 'retry-after': '0' }).end('busy')
    },
  })
  const program = await openProxyProgram(t, [
    { ...coding, prefix: '/dead', upstream: dead.url },
    { ...coding, prefix: '/tools', upstream: service.url, timeoutMs: 300 },
    { ...media, prefix: '/paid', upstream: service.url, timeoutMs: 300 },
  ])
  for (const [path, expected] of [['/dead', [502, 'bad_gateway']], ['/tools/dies', [502, 'bad_gateway']], ['/tools/slow', [504, 'gateway_timeout']]] as const) {
    const answer = await program.call(path)
    const text = await answer.clone().text()
    t.same(await errorOf(answer), expected)
    t.notMatch(text, /127\.0\.0\.1|ECONN|undici|socket/i)
  }
  t.equal(await (await program.call('/tools/fails')).text(), 'busy')
  t.equal((await program.call('/paid/dies', {}, program.media)).status, 502)
  t.equal(await program.usedTokens(), 0)
  t.equal(await program.burned(), '0.0000')
  t.same(service.seen.map(({ url }) => url), ['/dies', '/slow', '/fails', '/dies'], 'nothing is sent twice')
})

t.test('an answer that breaks off breaks off for the client, and was charged', async (t) => {
  const service = await openService(t, {
    answer: (request, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('half', () => request.socket.destroy())
    },
  })
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url }])
  await t.rejects(program.call('/tools').then((answer) => answer.text()))
  t.equal(await program.usedTokens(), 100)
})

t.test('a client that leaves before the answer stops the call, is not charged, and is no failed request', async (t) => {
  const logged: string[] = []
  const closed = Promise.withResolvers<void>()
  const service = await openService(t, { answer: (request) => void request.socket.once('close', closed.resolve) })
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url }], {}, logged)
  const leaving = new AbortController()
  const call = program.call('/tools', { signal: leaving.signal }).catch((error: Error) => error.name)
  await eventually('the request', async () => (service.seen.length > 0 ? true : null))
  leaving.abort()
  t.equal(await call, 'AbortError')
  await closed.promise
  t.equal(await program.usedTokens(), 0)
  const lines = await eventually('the line of the request', async () => (logged.some((line) => line.includes('"proxied"') && line.includes('"msg":"request"')) ? logged : null))
  t.same(lines.filter((line) => line.includes('request failed')), [])
})

t.test('a body above the limit is refused, by its length or while it arrives, and costs nothing', async (t) => {
  const service = await openService(t, { answer: (request) => void request.resume() })
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url, maxBodyBytes: 1000 }])
  const body = 'x'.repeat(1001)
  t.same(await errorOf(await program.call('/tools', { method: 'POST', body })), [413, 'payload_too_large'])
  t.equal(service.seen.length, 0)
  t.same(await errorOf(await program.call('/tools', { method: 'POST', body: new Blob([body]).stream(), duplex: 'half' })), [413, 'payload_too_large'])
  t.equal(await program.usedTokens(), 0)
})

t.test('the certificate of a service is verified', async (t) => {
  const service = await openService(t, { tls: certify(['127.0.0.1'], new Date(Date.now() - 86_400_000)) })
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/tools', upstream: service.url }])
  t.same(await errorOf(await program.call('/tools')), [502, 'bad_gateway'])
  t.same(service.seen, [])
})

t.test('the file is read again when it changes; an invalid one changes nothing', async (t) => {
  const [one, two] = [await openService(t), await openService(t)]
  const program = await openProxyProgram(t, [{ ...coding, prefix: '/one', upstream: one.url }])
  t.equal((await program.call('/one')).status, 200)
  await program.declare([{ ...coding, prefix: '/two', upstream: two.url }])
  await eventually('the new route', async () => ((await program.call('/two')).status === 200 ? true : null))
  t.equal((await program.call('/one')).status, 404)
})

/** Replaces a file as a whole, so that no read sees half of it. */
async function replaced(file: string, text: string): Promise<void> {
  await writeFile(`${file}.next`, text)
  await rename(`${file}.next`, file)
}

t.test('an invalid file is logged once with its line, and the last valid one stays in use', async (t) => {
  const file = join(t.testdir({ 'routes.yaml': JSON.stringify({ routes: [{ ...coding, prefix: '/one', upstream: 'http://127.0.0.1:9' }] }) }), 'routes.yaml')
  const refusals: string[] = []
  const log = pino({}, { write: (line: string) => line.includes('proxy_routes_refused') && refusals.push(line) })
  const app = fastify({ loggerInstance: log as FastifyBaseLogger })
  app.decorate('errors', { served: () => new Set(['v1']) } as never)
  const table = watchRoutes(app as never, file, 5)
  await app.ready()
  t.teardown(() => app.close())
  for (const text of ['routes: [', 'routes: []\ncolour: red']) {
    const before = refusals.length
    await replaced(file, text)
    await eventually('the refusal', async () => (refusals.length > before ? true : null))
    t.match(table('/one'), { path: '/' })
  }
  t.match(refusals.at(-1), /line 2: colour is not a setting/)
  await replaced(file, JSON.stringify({ routes: [] }))
  await eventually('the new file', async () => (table('/one') === null ? true : null))
  t.equal(refusals.length, 2)
})

t.test('the hold of a gateway that died is returned, one of a request in flight is kept', async (t) => {
  const { app, media: key, call } = await openProxyProgram(t, [])
  const record = await app.store.subscription('demo/studio')
  await app.store.change('demo/studio', { op: 'hold', task: 'abandoned', kind: PASS_THROUGH, amount: 1, keyId: 'k', keyCap: null, keysVersion: record?.keysVersion ?? 0 }, Date.now())
  const later = (ms: number) => sweepSubscriptions({ ...app.tasks, clock: () => Date.now() + ms })
  t.equal((await later(app.server.requestTimeout + MOST_PENDING_MS)).orphan_hold, 0, 'its body may arrive slowly before the service has all of its time')
  t.equal((await later(ABANDONED_MS)).orphan_hold, 1)
  t.match(await (await call('/api/v1/usage', {}, key)).json(), { held: '0.0000', burned: '0.0000' })
})

t.test('a wrong file stops the start with its line', async (t) => {
  const route = 'upstream: "http://127.0.0.1:9"\n    product: Coding\n    tokensPerRequest: 1'
  const wrong: Record<string, RegExp> = {
    'routes:\n  - prefix: /v1/tools\n    product: Coding': /line \d: routes\[0\]\.upstream is required/,
    [`routes:\n  - prefix: /v1/tools\n    ${route}`]: /line 2: routes\[0\]\.prefix collides with \/v1, which Tollgate serves itself/,
    [`routes:\n  - prefix: /dashboard\n    ${route}`]: /line 2: .*collides with \/dashboard/,
    [`routes:\n  - prefix: /a/../b\n    ${route}`]: /line 2: .*dot segments/,
    [`routes:\n  - prefix: /a\n    ${route}\n  - prefix: /a\n    ${route}`]: /line 6: routes\[1\]\.prefix must be unique/,
    [`routes:\n  - prefix: /a\n    ${route}\n    colour: red`]: /line 6: routes\[0\]\.colour is not a setting/,
    'routes:\n  - {prefix: /a, upstream: "http://h/path", product: Coding, tokensPerRequest: 1}': /line 2: .*without user, path/,
    'routes:\n  - {prefix: /a, upstream: "http://h", product: Coding, amountPerRequest: "1"}': /amountPerRequest belongs to the product Media/,
    'routes:\n  - {prefix: /a, upstream: "http://h", product: Media, amountPerRequest: "-1"}': /must be a decimal string/,
    'routes:\n  - {prefix: /a, upstream: "http://h", product: Media}': /amountPerRequest is missing/,
    'routes:\n  - {prefix: /a, upstream: "http://h", product: Coding, tokensPerRequest: 1, headers: {Host: x}}': /must not set Host/,
  }
  for (const [text, sentence] of Object.entries(wrong)) t.throws(() => parseProxyRoutes('routes.yaml', text, new Set(['v1', 'dashboard'])), { message: sentence }, text)
  await t.rejects(openProxyProgram(t, `routes:\n  - prefix: /v1/tools\n    ${route}`), { message: /line 2: .*collides with \/v1/ })
  await t.rejects(openEmbeddedProgram(t, { env: { PROXY_ROUTES: '/nonexistent.yaml' } }), { message: /PROXY_ROUTES \/nonexistent.yaml: cannot be read \(ENOENT\)/ })
})

t.test('the example is a valid file', async (t) => {
  const file = join(import.meta.dirname, '../../examples/proxy/routes.yaml')
  t.match(parseProxyRoutes(file, await readFile(file, 'utf8'), new Set(['v1'])), [{ prefix: '/search', upstream: 'http://127.0.0.1:9000', price: { api: 'coding', tokens: 500 }, websocket: true }])
})
