/** `X-SVC-Limit`: every 429 and 503 says which limit it was, and so does the log. */
import t from 'tap'
import { Busy, Failure, FAILURES, overLimit, Unavailable } from '../../src/domain/errors.ts'
import { LIMITS, type Limit } from '../../src/domain/limits.ts'
import { openBodyBudget } from '../../plugins/request-body/body-budget.ts'
import { bearer, CODING, openGateway } from './gateway.ts'

const CAUSE = new Error('the cause is logged only')

t.test('each limit answers 429 or 503 with its name, in the log as well; other failures have none', async (t) => {
  const failures: Record<string, Error> = {
    ...Object.fromEntries((Object.keys(LIMITS) as Limit[]).map((limit) => [limit, overLimit(limit)])),
    'the store': new Unavailable('store', CAUSE),
    'a busy record': new Busy('store', CAUSE),
    'the resources': new Unavailable('resources', CAUSE),
    'a fault': new Failure('invalid_request'),
    'a bug': CAUSE,
  }
  const gateway = await openGateway(t, (app) => {
    for (const config of [{ api: 'coding' } as const, { api: 'coding', messages: 'always' } as const]) {
      app.get(`/v1/fail${'messages' in config ? '/messages' : ''}`, { config }, async (request) => {
        throw failures[(request.query as { name: string }).name]
      })
    }
    app.get('/v1/plugin', { config: { api: 'coding' } }, async () => {
      throw app.errors.fail('concurrency_limit')
    })
  })
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const get = async (url: string) => {
    const { statusCode, headers, body } = await gateway.app.inject({ url, headers: bearer(raw) })
    t.notMatch(body, /cause/)
    return { status: statusCode, limit: headers['x-svc-limit'] }
  }
  const named: Record<string, string | undefined> = { 'the store': 'store', 'a busy record': 'store_record', 'the resources': 'backend', 'a fault': undefined, 'a bug': undefined }
  for (const [name, failure] of Object.entries(failures)) {
    const limit = name in named ? named[name] : name
    const status = failure instanceof Failure ? failure.status : failure instanceof Unavailable ? 503 : 500
    t.same(await get(`/v1/fail?name=${name}`), { status, limit }, name)
    t.same(await get(`/v1/fail/messages?name=${name}`), { status: status === 503 ? 529 : status, limit }, name)
    const lines = gateway.logged.filter(({ msg }) => msg === 'request')
    t.same(lines.slice(-2).map((line) => line['limit']), [limit, limit], name)
  }
  t.same(await get('/v1/plugin'), { status: 429, limit: 'plugin' })
})

t.test('every code of 429 and 503 has a limit', async (t) => {
  const named = new Set<string>(Object.values(LIMITS).map(([code]) => code))
  for (const [code, [status]] of Object.entries(FAILURES)) t.equal(named.has(code), status === 429 || status === 503, code)
})

t.test("the plan's rate, its requests in flight, its token windows and the memory of bodies are told apart", async (t) => {
  const route = (app: Parameters<Parameters<typeof openGateway>[1]>[0]) => {
    app.post('/v1/x', { config: { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 1000 }) } }, async (request) => {
      request.reservation?.settleWith(Promise.resolve({ usage: { input: 0, cachedInput: 0, output: 1000 }, estimated: false }))
      return {}
    })
  }
  const gateway = await openGateway(t, route, () => {}, {}, { budget: openBodyBudget(64 * 1024) })
  const limitOf = async (name: string, spec: object, payload = '{}', sent = 2) => {
    const plan = await gateway.plan(name, { product: 'Coding', coding: CODING, ...spec })
    const { raw } = await gateway.key(plan, { product: 'Coding' })
    const send = () => gateway.app.inject({ method: 'POST', url: '/v1/x', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload })
    for (let i = 1; i < sent; i++) {
      await send()
      await gateway.settled(plan)
    }
    return (await send()).headers['x-svc-limit']
  }
  t.equal(await limitOf('tokens', {}), 'session_tokens')
  t.equal(await limitOf('week', { coding: { ...CODING, weeklyWindow: { tokens: 700 } } }), 'weekly_tokens')
  t.equal(await limitOf('rate', { requestsPerMinute: 1, coding: { ...CODING, sessionWindow: { tokens: 1e6, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e7 } } }, '{}', 12), 'plan_rate')
  t.equal(await limitOf('memory', {}, `"${'x'.repeat(60_000)}"`, 1), 'body_memory')
})
