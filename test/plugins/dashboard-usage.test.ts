import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { signIn } from './dashboard-browser.ts'

async function openOffice(t: Test, isHasty = false) {
  // Previews are free where nobody names a price.
  const engines = 'engines:\n  - { name: preview, type: preview }\nroutes:\n  - { kind: image, engine: preview, price: { amount: "0.04", per: Job } }\n'
  const program = await openEmbeddedProgram(t, { isHasty, env: { ENGINES: join(t.testdir({ 'engines.yaml': engines }), 'engines.yaml') } })
  // Over a connection: an answer is settled when its connection closes.
  const address = await program.app.listen({ host: '127.0.0.1', port: 0 })
  const call = async (path: string, secret: 'demo-media-key' | 'demo-coding-key', body: object) => {
    const headers = { authorization: `Bearer ${await program.key(secret)}`, 'content-type': 'application/json', prefer: 'wait=30' }
    const response = await fetch(`${address}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  return { ...program, call, browser: await signIn(program.app) }
}

t.test('coding usage: both windows, the days, and what each key used, moving with the requests', async (t) => {
  const { browser, call } = await openOffice(t)
  const usage = async (query = '') => browser.get(`/dashboard/api/usage/coding${query}`)
  t.match((await usage()).json(), { plan: 'coder', session: { limit: 500_000, used: 0, resets_at: null }, weekly: { limit: 5_000_000, used: 0 }, overshoot: 0, days: [], keys: [] })
  t.equal((await usage('?format=csv')).body, '')
  t.equal((await call('/v1/chat/completions', 'demo-coding-key', { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] })).status, 200)
  const body = await eventually('the settlement', async () => {
    const found = (await usage('?plan=coder')).json()
    return found.days.length > 0 ? found : null
  })
  const [day] = body.days
  t.match(day, { date: /^\d{4}-\d\d-\d\d$/, requests: 1, refusals: 0, refused: {} })
  t.ok(day.input > 0 && day.output > 0)
  t.equal(day.charged, body.session.used)
  t.same(body.keys, [{ name: 'coding', used: day.charged, refusals: 0 }])
  t.match(body.session.resets_at, /Z$/)
  const csv = await usage('?format=csv')
  t.match(csv.headers, { 'content-type': 'text/csv; charset=utf-8', 'content-disposition': 'attachment; filename="coding-coder.csv"', 'cache-control': 'no-store' })
  t.equal(csv.body, `date,requests,input,cached_input,output,charged,refusals\r\n${day.date},1,${day.input},${day.cached_input},${day.output},${day.charged},0\r\n`)
})

t.test('refused requests are shown by day, reason and key within seconds, and so is when a key was last used', async (t) => {
  const { app, browser, call } = await openOffice(t, true)
  const keys = async () => (await browser.get('/dashboard/api/keys')).json().data
  t.match(await keys(), [{ name: 'coding', last_used_at: null }, { name: 'media', last_used_at: null }])
  const { plan, product, terms, state, activeFrom, activeUntil } = (await app.store.subscription('demo/coder'))!
  const noTokens = { ...terms, coding: { ...terms.coding!, weeklyTokens: 0 } }
  await app.store.change('demo/coder', { op: 'applyPlan', plan: plan!, product, terms: noTokens, state, activeFrom, activeUntil, verdict: null }, app.clock())
  for (let n = 0; n < 3; n++) t.equal((await call('/v1/chat/completions', 'demo-coding-key', { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] })).status, 429)
  // In the store: a session that polls for seconds is refused by its rate limit.
  await eventually('the refusals', async () => {
    const { days = {} } = (await app.store.subscription('demo/coder'))?.coding?.refusals ?? {}
    return Object.values(days).some((day) => day.weekly_limit_reached === 3) ? true : null
  })
  const body = (await browser.get('/dashboard/api/usage/coding')).json()
  t.match(body, { days: [{ requests: 0, refusals: 3, refused: { weekly_limit_reached: 3 } }], keys: [{ name: 'coding', used: 0, refusals: 3 }] })
  t.match((await browser.get('/dashboard/api/usage/coding?format=csv')).body, /,refusals\r\n[\d-]+,0,0,0,0,0,3\r\n$/)
  await eventually('the last use', async () => ((await app.store.keysOf('demo/coder')).some(({ lastUsedAt }) => lastUsedAt !== undefined) ? true : null))
  t.match(await keys(), [{ name: 'coding', last_used_at: /Z$/ }, { name: 'media', last_used_at: null }])
})

t.test('media usage: the allowance, the days by kind, and what each key burned', async (t) => {
  const { browser, call } = await openOffice(t)
  const usage = async (query = '') => browser.get(`/dashboard/api/usage/media${query}`)
  t.match((await usage()).json(), { plan: 'studio', allowance: '100.0000', held: '0.0000', burned: '0.0000', remaining: '100.0000', days: [], keys: [], periods: [] })
  t.equal((await call('/api/v1/generations', 'demo-media-key', { kind: 'image', prompt: 'a lighthouse' })).body['status'], 'completed')
  const { days, ...body } = (await usage()).json()
  t.match(body, { burned: '0.0400', remaining: '99.9600', keys: [{ name: 'media', burned: '0.0400' }], period: { start: /Z$/, end: /Z$/ } })
  t.match(days, [{ by: { image: { count: 1, burned: '0.0400' } } }])
  t.equal((await usage('?format=csv')).body, `date,kind,count,burned\r\n${days[0].date},image,1,0.0400\r\n`)
  t.match((await browser.get('/dashboard/api/plans')).json().data, [{ name: 'coder', unlocks: ['coding_api'] }, { name: 'studio', unlocks: ['media_api', 'ai_room'], summary: { media: { burned: '0.0400' } }, key_policy: { max_keys: 5 } }])
})

t.test('archived periods stay, newest first, and the days of all are in the CSV', async (t) => {
  const { app, call } = await openOffice(t)
  await call('/api/v1/generations', 'demo-media-key', { kind: 'image', prompt: 'a lighthouse' })
  const { clock } = app
  app.clock = () => clock() + 31 * 24 * 3_600_000
  const later = await signIn(app)
  const body = (await later.get('/dashboard/api/usage/media')).json()
  t.match(body, { burned: '0.0000', days: [], periods: [{ burned: '0.0400', allowance: '100.0000' }] })
  t.match((await later.get('/dashboard/api/usage/media?format=csv')).body, /^date,kind,count,burned\r\n[\d-]+,image,1,0\.0400\r\n$/)
})

t.test('a format or a plan that does not exist is refused', async (t) => {
  const { browser } = await openOffice(t)
  t.equal((await browser.get('/dashboard/api/usage/media?format=xls')).statusCode, 400)
  t.match((await browser.get('/dashboard/api/usage/media?plan=coder')).json(), { status: 404 }, 'a plan of the other product')
})
