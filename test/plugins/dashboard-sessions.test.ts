import t from 'tap'
import { SESSION_MS } from '../../src/domain/sessions.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { openBrowser, signIn } from './dashboard-browser.ts'

const { app } = await openEmbeddedProgram(t)

t.test('the one-time link signs in, once, and a new one takes its place', async (t) => {
  const link = new URL(app.signInLink() ?? '')
  t.not((await app.inject({ method: 'HEAD', url: `/dashboard/sign-in${link.search}`, headers: { host: '127.0.0.1' } })).statusCode, 303, 'a preview of the link does not use it up')
  const browser = openBrowser(app)
  const signedIn = await browser.get(`/dashboard/sign-in${link.search}`)
  t.match(signedIn, { statusCode: 303, headers: { location: '/dashboard/', 'cache-control': 'no-store' } })
  t.match(signedIn.headers['set-cookie'], /^tollgate_session=[\w-]{43}; Path=\/dashboard; Max-Age=43200; HttpOnly; SameSite=Lax$/)
  t.match((await browser.get('/dashboard/api/session')).json(), { user: { id: 'local' }, tenant: 'demo', tenants: ['demo'], sign_in: 'local', key_management: { allowed: true }, brand: 'SVC', model: 'svc-code' })

  const thief = openBrowser(app)
  t.match(await thief.get(`/dashboard/sign-in${link.search}`), { statusCode: 403, headers: { 'content-type': /^text\/html/ } })
  t.equal(thief.cookies.size, 0)
  await signIn(app, thief)
  t.equal((await thief.get('/dashboard/api/session')).statusCode, 200, 'the next link works')
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 200, 'and the first session goes on')
})

t.test('the link leads to the page at which the browser was signed out, once, and never elsewhere', async (t) => {
  const browser = openBrowser(app)
  const landing = async (wanted: string) => {
    t.equal((await browser.get(`/dashboard/sign-in?return=${encodeURIComponent(wanted)}`)).statusCode, 200)
    const { pathname, search } = new URL(app.signInLink() ?? '')
    return (await browser.get(`${pathname}${search}`)).headers.location
  }
  t.equal(await landing('/dashboard/tasks/1?object=operation'), '/dashboard/tasks/1?object=operation')
  t.notOk(browser.cookies.has('tollgate_return'))
  for (const evil of ['https://evil.example/', '//evil.example/', '/\\evil.example', '/dashboard/../evil', '/dashboard/\r\nx', '/dashboard/;x', '/v1/models', 'javascript:alert(1)', '/dashboard@evil.example', '']) t.equal(await landing(evil), '/dashboard/', evil)
  browser.cookies.set('tollgate_return', 'https://evil.example/')
  const { pathname, search } = new URL(app.signInLink() ?? '')
  t.equal((await browser.get(`${pathname}${search}`)).headers.location, '/dashboard/', 'nor by a planted cookie')
})

t.test('without a valid session every address of the interface answers 401 as a problem', async (t) => {
  const browser = openBrowser(app)
  for (const value of ['', 'x', 'A'.repeat(43), '"quoted"']) {
    browser.cookies.set('tollgate_session', value)
    for (const path of ['/dashboard/api/session', '/dashboard/api/none']) {
      const answer = await browser.get(path)
      t.match(answer, { statusCode: 401, headers: { 'content-type': /problem\+json/, 'cache-control': 'no-store' } })
      t.match(answer.json(), { status: 401, error: { code: 'not_signed_in' } })
    }
  }
  await signIn(app, browser)
  t.match((await browser.get('/dashboard/api/none')).json(), { status: 404, error: { code: 'not_found' } })
})

t.test('a request that names another tenant than that of the session is refused, and the session itself can be read', async (t) => {
  const browser = await signIn(app)
  for (const path of ['/plans', '/keys', '/usage/coding', '/media/kinds', '/media/generations']) {
    t.match((await browser.get(`/dashboard/api${path}`, { 'x-tollgate-tenant': 'globex' })).json(), { status: 409, error: { code: 'tenant_changed' } }, path)
    t.equal((await browser.get(`/dashboard/api${path}`, { 'x-tollgate-tenant': 'demo' })).statusCode, 200, path)
  }
  t.match((await browser.get('/dashboard/api/usage/media?format=csv&tenant=globex')).json(), { status: 409, error: { code: 'tenant_changed' } }, 'a link has no header')
  t.equal((await browser.get('/dashboard/api/usage/media?format=csv&tenant=demo')).statusCode, 200)
  t.match((await browser.send('POST', '/dashboard/api/media/uploads', {}, { 'x-tollgate-tenant': 'globex' })).json(), { status: 409, error: { code: 'tenant_changed' } })
  t.equal((await browser.get('/dashboard/api/session', { 'x-tollgate-tenant': 'globex' })).statusCode, 200)
})

t.test('a session id that somebody planted is not used: sign-in makes a new one and ends the old one', async (t) => {
  const attacker = await signIn(app)
  const planted = attacker.cookies.get('tollgate_session') ?? ''
  const victim = openBrowser(app)
  victim.cookies.set('tollgate_session', planted)
  await signIn(app, victim)
  t.not(victim.cookies.get('tollgate_session'), planted)
  t.equal((await victim.get('/dashboard/api/session')).statusCode, 200)
  t.equal((await attacker.get('/dashboard/api/session')).statusCode, 401)
})

t.test('a session ends at sign-out and after twelve hours, and no answer of it may be kept', async (t) => {
  const browser = await signIn(app)
  const secret = browser.cookies.get('tollgate_session') ?? ''
  const other = await signIn(app)
  t.equal((await browser.get('/dashboard/api/session')).headers['cache-control'], 'no-store')
  const out = await browser.send('POST', '/dashboard/api/sign-out')
  t.match(out, { statusCode: 204, headers: { 'clear-site-data': '"cache"' } })
  t.equal(browser.cookies.size, 0)
  browser.cookies.set('tollgate_session', secret)
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 401, 'the copied cookie is worth nothing')
  t.equal((await other.get('/dashboard/api/session')).statusCode, 200)
  const { clock } = app
  t.intercept(app, 'clock', { value: () => clock() + SESSION_MS })
  t.equal((await other.get('/dashboard/api/session')).statusCode, 401)
})

t.test('a change needs the header of a page and its origin', async (t) => {
  const browser = await signIn(app)
  const put = (headers: Record<string, string>) => browser.request({ method: 'PUT', url: '/dashboard/api/session/tenant', headers, payload: { tenant: 'demo' } })
  const forged: Record<string, string>[] = [
    {},
    { 'x-tollgate-csrf': '0' },
    { 'x-tollgate-csrf': '1', 'sec-fetch-site': 'cross-site' },
    { 'x-tollgate-csrf': '1', 'sec-fetch-site': 'same-site' },
    { 'x-tollgate-csrf': '1', origin: 'https://evil.example' },
    { 'x-tollgate-csrf': '1', origin: 'null' },
    { 'x-tollgate-csrf': '1', origin: 'http://127.0.0.1:1' },
  ]
  for (const headers of forged) t.match((await put(headers)).json(), { status: 403, error: { code: 'csrf' } }, JSON.stringify(headers))
  t.equal((await put({ 'x-tollgate-csrf': '1', 'sec-fetch-site': 'same-origin', origin: 'http://127.0.0.1:8080' })).statusCode, 200)
  t.equal((await browser.request({ method: 'POST', url: '/dashboard/api/sign-out' })).statusCode, 403)
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 200, 'a forged sign-out ends nothing')
})

t.test('every answer under /dashboard is safe from frames, sniffing and script of others', async (t) => {
  const browser = openBrowser(app)
  for (const path of ['/dashboard/sign-in', '/dashboard/sign-in.css', '/dashboard/api/session']) {
    const { headers } = await browser.get(path)
    t.match(headers, { 'x-frame-options': 'DENY', 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer', 'cross-origin-opener-policy': 'same-origin' }, path)
    const policy = String(headers['content-security-policy'])
    for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'", "script-src 'self';"]) t.ok(policy.includes(part), `${path} ${part}`)
    t.notMatch(policy, /unsafe/)
  }
})

t.test('under a name that a stranger lets resolve to this machine the local dashboard answers nothing', async (t) => {
  const browser = await signIn(app)
  for (const host of ['evil.example', 'evil.example:8080', '10.0.0.1', '127.0.0.1.evil.example']) {
    t.match((await browser.get('/dashboard/api/session', { host })).json(), { error: { code: 'origin_not_allowed' } }, host)
  }
  for (const host of ['localhost:8080', '127.0.0.1', '[::1]:8080']) t.equal((await browser.get('/dashboard/api/session', { host })).statusCode, 200, host)
})

t.test('a person acts only for a tenant that exists', async (t) => {
  const browser = await signIn(app)
  for (const tenant of ['other', 'demo/', '..', 'demo0']) {
    t.match((await browser.send('PUT', '/dashboard/api/session/tenant', { tenant })).json(), { error: { code: 'tenant_not_allowed' } }, tenant)
  }
  for (const body of [{}, { tenant: '' }, { tenant: 1 }, { tenant: 'demo', more: 1 }]) t.equal((await browser.send('PUT', '/dashboard/api/session/tenant', body)).statusCode, 400, JSON.stringify(body))
  t.match((await browser.get('/dashboard/api/session')).json(), { tenant: 'demo' })
})

t.test('a browser at the root goes to the dashboard, and a program finds nothing there', async (t) => {
  t.match(await app.inject({ url: '/', headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } }), { statusCode: 302, headers: { location: '/dashboard/' } })
  for (const headers of [{}, { accept: '*/*' }, { accept: 'application/json' }]) t.match((await app.inject({ url: '/', headers })).json(), { error: { code: 'not_found' } })
})

t.test('a session has a rate of its own', async (t) => {
  const now = app.clock()
  t.intercept(app, 'clock', { value: () => now })
  const [busy, calm] = [await signIn(app), await signIn(app)]
  const codes = new Set<number>()
  for (let n = 0; n < 150; n++) codes.add((await busy.get('/dashboard/api/session')).statusCode)
  t.same([...codes], [200, 429])
  t.match((await busy.get('/dashboard/api/session')).headers['retry-after'], /^\d+$/)
  t.equal((await calm.get('/dashboard/api/session')).statusCode, 200)
})

t.test('off, there is nothing at /dashboard', async (t) => {
  const { app: bare } = await openEmbeddedProgram(t, { env: { DASHBOARD: 'off' } })
  t.equal(bare.signInLink(), null)
  for (const url of ['/', '/dashboard/', '/dashboard/sign-in']) t.equal((await bare.inject({ url, headers: { accept: 'text/html' } })).statusCode, 404, url)
  t.equal((await bare.inject({ url: '/dashboard/api/session' })).statusCode, 404)
})
