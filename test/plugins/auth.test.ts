/** Authentication, order of checks, window headers and refusals of a metered route, over a real store. */
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { mint } from '../../src/domain/api-keys.ts'
import { bearer, CODING, MEDIA, openGateway, START } from './gateway.ts'

/** A metered route of 100 tokens that charges the `output` of its body, and routes that only read. */
function routes(app: FastifyInstance): void {
  const admits = () => ({ promptBytes: 0, maxOutputTokens: 100 })
  app.post('/v1/work', { config: { api: 'coding', creates: true, admits } }, async (request) => {
    const { output } = request.body as { output: number }
    request.reservation?.settleWith(Promise.resolve({ usage: { input: 0, cachedInput: 0, output }, estimated: false }))
    return { done: true }
  })
  app.get('/v1/read', { config: { api: 'coding' } }, async () => ({ read: true }))
  app.get('/api/v1/read', { config: { api: 'media', problem: true } }, async () => ({ read: true }))
}

async function coder(t: Parameters<typeof openGateway>[0]) {
  const gateway = await openGateway(t, routes)
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw, version } = await gateway.key(subscription)
  const work = (output: number, key = raw) => gateway.app.inject({ method: 'POST', url: '/v1/work', headers: bearer(key), payload: { output } })
  return { ...gateway, subscription, raw, version, work }
}

t.test('a request without a valid key gets 401 with www-authenticate', async (t) => {
  const { app } = await coder(t)
  const unknown = mint('svc', new Uint8Array(32).fill(77))
  for (const headers of [{}, { authorization: 'Basic x' }, { authorization: 'Bearer' }, { authorization: 'Bearer sk-123' }, bearer(unknown), bearer(`${unknown.slice(0, -1)}!`)]) {
    const answer = await app.inject({ url: '/v1/read', headers })
    t.equal(answer.statusCode, 401)
    t.equal(answer.headers['www-authenticate'], 'Bearer')
    t.match(answer.json(), { error: { code: 'invalid_api_key', type: 'authentication_error', param: null } })
  }
})

t.test('a key of the other product gets 403 wrong_product, in the error format of the API that was called', async (t) => {
  const { app, raw, plan, key } = await coder(t)
  const answer = await app.inject({ url: '/api/v1/read', headers: bearer(raw) })
  t.equal(answer.statusCode, 403)
  t.match(answer.headers['content-type'], /^application\/problem\+json/)
  t.match(answer.json(), { status: 403, title: 'wrong product', error: { code: 'wrong_product' } })
  const media = await key(await plan('studio', { product: 'Media', media: MEDIA }))
  t.equal((await app.inject({ url: '/api/v1/read', headers: bearer(media.raw) })).statusCode, 200)
  t.match((await app.inject({ url: '/v1/read', headers: bearer(media.raw) })).json(), { error: { code: 'wrong_product' } })
})

t.test('a suspended or revoked key is refused at its next request, also when it is cached', async (t) => {
  const { store, subscription, version, work, time } = await coder(t)
  t.equal((await work(1)).statusCode, 200)
  t.equal((await work(1)).statusCode, 200, 'cached')
  await store.setKey(version.id, { state: 'suspended' }, [subscription])
  await store.change(subscription, { op: 'keysChanged' }, time.now)
  t.match((await work(1)).json(), { error: { code: 'key_suspended' } })
  await store.setKey(version.id, { state: 'active' }, [subscription])
  await store.change(subscription, { op: 'keysChanged' }, time.now)
  t.equal((await work(1)).statusCode, 200)
  await store.setKey(version.id, { state: 'revoked' }, [subscription])
  await store.change(subscription, { op: 'keysChanged' }, time.now)
  t.equal((await work(1)).statusCode, 401)
})

t.test('a route without proves or admits reads the key from the store for each request', async (t) => {
  const gateway = await openGateway(t, (app) => {
    app.post('/v1/made', { config: { api: 'coding', creates: true } }, async () => ({ made: true }))
    app.post('/v1/proved', { config: { api: 'coding', creates: true, proves: true } }, async ({ caller }) => {
      await caller?.creating(async () => ({ outcome: 'stale', keysVersion: 1 }) as { outcome: string }).catch(() => {})
      return {}
    })
  })
  const { raw, version } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const post = (url: string) => gateway.app.inject({ method: 'POST', url, headers: bearer(raw) })
  t.equal((await post('/v1/proved')).statusCode, 200, 'which caches the key')
  t.equal((await post('/v1/made')).statusCode, 200)
  await gateway.store.setKey(version.id, { state: 'revoked' }, [])
  t.equal((await post('/v1/made')).statusCode, 401)
})

t.test('a key is refused from its expiry and from the end of its overlap, without any write', async (t) => {
  const { key, subscription, work, time } = await coder(t)
  const expiring = await key(subscription, { expiresAt: START + 1000 })
  const rotated = await key(subscription, { overlapUntil: START + 2000 })
  t.equal((await work(1, expiring.raw)).statusCode, 200)
  t.equal((await work(1, rotated.raw)).statusCode, 200)
  time.now = START + 1000
  t.equal((await work(1, expiring.raw)).statusCode, 401)
  t.equal((await work(1, rotated.raw)).statusCode, 200)
  time.now = START + 2000
  t.equal((await work(1, rotated.raw)).statusCode, 401)
})

t.test('a key that moved to another plan is charged to it from its next request', async (t) => {
  const { store, plan, subscription, version, work, time, settled } = await coder(t)
  const other = await plan('coder2', { product: 'Coding', coding: CODING })
  await work(10)
  await store.setKey(version.id, { subscription: other }, [subscription, other])
  for (const id of [subscription, other]) await store.change(id, { op: 'keysChanged' }, time.now)
  await work(20)
  t.equal((await settled(subscription)).coding?.weekly.used, 10)
  t.equal((await settled(other)).coding?.weekly.used, 20)
})

t.test('a revoked key is refused before its request is validated, also when it is cached', async (t) => {
  const { app, store, version, work, raw } = await coder(t)
  await work(1)
  await work(1)
  await store.setKey(version.id, { state: 'revoked' }, [])
  const broken = await app.inject({ method: 'POST', url: '/v1/work', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: '{' })
  t.equal(broken.statusCode, 401)
})

t.test('an inactive plan is refused before the request is validated', async (t) => {
  const { app, plan, raw, work } = await coder(t)
  await plan('coder', { product: 'Coding', coding: CODING, state: 'Suspended' }, 2)
  t.match((await work(1)).json(), { error: { code: 'plan_inactive', type: 'permission_error' } })
  const broken = await app.inject({ method: 'POST', url: '/v1/work', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: '{' })
  t.equal(broken.statusCode, 403)
  t.equal((await app.inject({ url: '/v1/read', headers: bearer(raw) })).statusCode, 200, 'reads are still allowed')
})

t.test('invalid JSON, a large body, another media type, method or path is a documented error', async (t) => {
  const { app, raw } = await coder(t)
  const rows = [
    ['POST', '/v1/work', 'application/json', '{', 400, 'invalid_json'],
    ['POST', '/v1/work', 'application/json', '', 400, 'invalid_json'],
    ['POST', '/v1/work', 'application/json', '{"__proto__":{"a":1}}', 400, 'invalid_json'],
    ['POST', '/v1/work', 'text/plain', 'hello', 415, 'unsupported_media_type'],
    ['POST', '/v1/work', 'application/json', `"${'x'.repeat(1_100_000)}"`, 413, 'payload_too_large'],
    ['POST', '/v1/work', 'gzip', '{}', 415, 'unsupported_media_type'],
    ['DELETE', '/v1/work', 'application/json', '', 405, 'method_not_allowed'],
    ['GET', '/nothing', 'application/json', '', 404, 'not_found'],
  ] as const
  for (const [method, url, type, payload, status, code] of rows) {
    const answer = await app.inject({ method, url, headers: { ...bearer(raw), ...(type === 'gzip' ? { 'content-type': 'application/json', 'content-encoding': type } : payload || method === 'POST' ? { 'content-type': type } : {}) }, ...(payload ? { payload } : {}) })
    t.equal(answer.statusCode, status, `${method} ${url} ${type}`)
    t.match(answer.json(), { error: { code } })
    t.notMatch(answer.body, /FST_|stack|node_modules/)
    if (status === 405) t.equal(answer.headers.allow, 'POST')
  }
})

t.test('every answer has the headers of both windows', async (t) => {
  const { app, raw, work, settled, subscription } = await coder(t)
  const shown = (headers: Record<string, unknown>) => [headers['x-codex-primary-used-percent'], headers['x-codex-secondary-used-percent'], headers['x-ratelimit-limit-tokens']]
  t.same(shown((await work(500)).headers), ['0.0', '0.0', '1000'])
  await settled(subscription)
  const read = await app.inject({ url: '/v1/read', headers: bearer(raw) })
  t.same(shown(read.headers), ['50.0', '10.0', '1000'])
  t.equal(read.headers['x-codex-primary-window-minutes'], '300')
  t.equal(read.headers['x-codex-primary-reset-at'], String(START / 1000 + 18_000))
  t.equal(read.headers['x-ratelimit-reset-tokens'], '5h0m0s')
})

t.test('a full window is 429 with the reset time and x-should-retry: false', async (t) => {
  const { work, settled, subscription } = await coder(t)
  await work(1000)
  await settled(subscription)
  const answer = await work(1)
  t.equal(answer.statusCode, 429)
  t.equal(answer.headers['retry-after'], '18000')
  t.equal(answer.headers['x-should-retry'], 'false')
  t.match(answer.json(), {
    error: { type: 'usage_limit_reached', code: 'session_limit_reached', param: null, resets_at: START / 1000 + 18_000, resets_in_seconds: 18_000, plan_type: String },
  })
})

t.test('requests above requestsPerMinute are refused with retry-after', async (t) => {
  const { plan, work } = await coder(t)
  await plan('coder', { product: 'Coding', coding: CODING, requestsPerMinute: 6 }, 2)
  for (let i = 0; i < 10; i++) t.equal((await work(1)).statusCode, 200)
  const answer = await work(1)
  t.match(answer.json(), { error: { code: 'rate_limited', type: 'rate_limit_exceeded' } })
  t.equal(answer.headers['retry-after'], '10')
})

t.test('a request whose handler fails charges nothing and releases its reservation', async (t) => {
  const gateway = await openGateway(t, (app) => {
    app.post('/v1/work', { config: { api: 'coding', creates: true, proves: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 100 }) } }, async () => {
      throw new Error('secret detail')
    })
  })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await gateway.key(subscription)
  const answer = await gateway.app.inject({ method: 'POST', url: '/v1/work', headers: bearer(raw), payload: {} })
  t.equal(answer.statusCode, 500)
  t.notMatch(answer.body, /secret detail/)
  const record = await gateway.settled(subscription)
  t.match(record.coding, { session: { used: 0 }, weekly: { used: 0 }, reservations: {} })
})

t.test('the log line of a request has the error code and the key id, and never the key', async (t) => {
  const { app, raw, version, work, logged } = await coder(t)
  await work(1)
  await app.inject({ method: 'POST', url: '/v1/work', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: '{' })
  await app.inject({ url: '/v1/read', headers: bearer(`${raw.slice(0, -1)}!`) })
  await new Promise((resolve) => setImmediate(resolve))
  const lines = logged.filter(({ msg }) => msg === 'request')
  t.match(lines, [{ status: 200, route: '/v1/work', tenant: 'acme', keyId: version.id }, { status: 400, code: 'invalid_json', keyId: version.id }, { status: 401, code: 'invalid_api_key' }])
  t.equal(lines[0]?.['code'], undefined)
  t.notOk(JSON.stringify(logged).includes(raw.slice(0, -1)))
})
