import { generateKeyPairSync } from 'node:crypto'
import t, { type Test } from 'tap'
import { atProvider, CLIENT, openOidcProvider, type OidcProvider } from '../servers/oidc-provider.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { openBrowser, type Browser } from './dashboard-browser.ts'

const PUBLIC = 'http://127.0.0.1:8080'

async function openOffice(t: Test, { env = {}, inIdToken = false }: { env?: Record<string, string>; inIdToken?: boolean } = {}) {
  const provider = await openOidcProvider(t, { clients: [PUBLIC], inIdToken })
  const oidc = { DASHBOARD: 'oidc', OIDC_ISSUER: provider.issuer, OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret, OIDC_SCOPES: 'openid profile', PUBLIC_URL: PUBLIC, ...env }
  const { app } = await openEmbeddedProgram(t, { env: oidc })
  return { app, provider, browser: openBrowser(app) }
}

/** Begins a sign-in and returns the path of the callback, which the browser has not opened yet. */
async function callbackOf(browser: Browser, returnTo = ''): Promise<string> {
  const begun = await browser.get(`/dashboard/sign-in${returnTo === '' ? '' : `?return=${encodeURIComponent(returnTo)}`}`)
  if (begun.statusCode !== 302) throw new Error(`sign-in answered ${begun.statusCode}`)
  return atProvider(String(begun.headers.location), PUBLIC)
}

async function signInAs(provider: OidcProvider, browser: Browser, person: OidcProvider['person']) {
  provider.person = person
  return browser.get(await callbackOf(browser))
}

const ADA = { sub: 'ada', name: 'Ada', tenants: ['acme', 'demo'] }

for (const inIdToken of [false, true]) {
  t.test(`a person signs in with the tenants of the claim ${inIdToken ? 'in the ID token' : 'at the userinfo endpoint'}, switches, and signs out at the provider too`, async (t) => {
    const { app, provider, browser } = await openOffice(t, { inIdToken })
    t.equal(app.signInLink(), null)
    t.match(await signInAs(provider, browser, ADA), { statusCode: 303, headers: { location: '/dashboard/', 'cache-control': 'no-store' } })
    t.match((await browser.get('/dashboard/api/session')).json(), { user: { id: 'ada', name: 'Ada' }, tenant: 'acme', tenants: ['acme', 'demo'], sign_in: 'oidc' })
    t.match((await browser.send('PUT', '/dashboard/api/session/tenant', { tenant: 'demo' })).json(), { tenant: 'demo' })
    t.match((await browser.get('/dashboard/api/session')).json(), { tenant: 'demo' })
    for (const tenant of ['globex', 'acme/x', '']) t.ok([400, 403].includes((await browser.send('PUT', '/dashboard/api/session/tenant', { tenant })).statusCode), tenant)
    const out = await browser.send('POST', '/dashboard/api/sign-out')
    t.match(out.json().end_session_url, `${provider.issuer}/session/end?`)
    t.match(new URL(out.json().end_session_url).searchParams.get('post_logout_redirect_uri'), `${PUBLIC}/dashboard/`)
    t.equal((await browser.get('/dashboard/api/session')).statusCode, 401)
  })
}

t.test('a person without a tenant in the claim, or with a claim that is no list of namespaces, gets no session', async (t) => {
  const { provider, browser } = await openOffice(t)
  const claims: unknown[] = [undefined, [], 'demo', { demo: true }, ['demo', 1], ['Demo'], ['../demo'], [['demo']], null, ['demo '], Array.from({ length: 501 }, (_, i) => `t${i}`)]
  for (const tenants of claims) {
    const page = await signInAs(provider, browser, { sub: 'eve', tenants })
    t.match(page, { statusCode: 403, headers: { 'content-type': /^text\/html/, 'cache-control': 'no-store' } }, JSON.stringify(tenants))
    t.match(page.body, 'Your account has no tenant here')
    t.equal(browser.cookies.size, 0)
  }
})

t.test('an ID token whose signature is not by a key of the provider signs nobody in', async (t) => {
  const { provider, browser } = await openOffice(t, { inIdToken: true })
  const { keys } = (await (await fetch(`${provider.issuer}/jwks`)).json()) as { keys: { kid: string; alg: string }[] }
  const foreign = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey.export({ format: 'jwk' })
  provider.publishedKeys = { keys: keys.map(({ kid, alg }) => ({ ...foreign, kid, alg, use: 'sig' })) }
  t.equal((await signInAs(provider, browser, ADA)).statusCode, 403)
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 401)
})

t.test('a callback works once, in the browser that began it, with its own state and code', async (t) => {
  const { app, provider, browser } = await openOffice(t)
  provider.person = ADA
  const path = await callbackOf(browser)
  const kept = new Map(browser.cookies)
  const stranger = openBrowser(app)
  t.equal((await stranger.get(path)).statusCode, 403, 'another browser')
  await stranger.get('/dashboard/sign-in')
  t.equal((await stranger.get(path)).statusCode, 403, 'another browser with a sign-in of its own')
  t.equal(stranger.cookies.size, 0)
  t.equal((await browser.get(path)).statusCode, 303)
  const replayed = openBrowser(app)
  for (const [name, value] of kept) replayed.cookies.set(name, value)
  t.equal((await replayed.get(path)).statusCode, 403, 'the same state and code again, with the copied cookie')

  for (const forge of [(url: URL) => url.searchParams.set('state', 'x'), (url: URL) => url.searchParams.delete('state'), (url: URL) => url.searchParams.set('code', 'x'), (url: URL) => url.searchParams.delete('code'), (url: URL) => url.searchParams.set('iss', 'https://evil.example')]) {
    const victim = openBrowser(app)
    const url = new URL(await callbackOf(victim), PUBLIC)
    forge(url)
    t.equal((await victim.get(`${url.pathname}${url.search}`)).statusCode, 403, url.search)
    t.equal(victim.cookies.size, 0)
  }
})

t.test('a sealed cookie that was changed, or that is another one of ours, begins no sign-in', async (t) => {
  const { app, provider, browser } = await openOffice(t)
  provider.person = ADA
  const path = await callbackOf(browser)
  const sealed = browser.cookies.get('tollgate_sign_in') ?? ''
  for (const value of ['', 'x', `${sealed.slice(0, -4)}AAAA`, sealed.slice(0, 40), 'v1.a.b.c']) {
    const victim = openBrowser(app)
    victim.cookies.set('tollgate_sign_in', value)
    t.equal((await victim.get(path)).statusCode, 403, value.slice(0, 10))
  }
})

t.test('a refusal of the provider is a page without a session, and nothing of its text is shown', async (t) => {
  const { browser } = await openOffice(t)
  for (const [error, sentence] of [['access_denied', 'refused the access'], ['login_required', 'login_required'], ['<script>alert(1)</script>', 'was not completed']] as const) {
    const path = new URL(await callbackOf(browser), PUBLIC)
    for (const name of ['code']) path.searchParams.delete(name)
    path.searchParams.set('error', error)
    path.searchParams.set('error_description', '<img src=x onerror=alert(1)>')
    const page = await browser.get(`${path.pathname}${path.search}`)
    t.equal(page.statusCode, 403)
    t.match(page.body, sentence)
    t.notMatch(page.body, /onerror|<script/)
  }
})

t.test('after sign-in the browser goes to a page of the dashboard and nowhere else', async (t) => {
  const { provider, browser } = await openOffice(t)
  provider.person = ADA
  t.match((await browser.get(await callbackOf(browser, '/dashboard/usage/media'))).headers, { location: '/dashboard/usage/media' })
  t.match((await browser.get(await callbackOf(browser, '/dashboard/tasks?show=operations&created_after=2026-11-01'))).headers, { location: '/dashboard/tasks?show=operations&created_after=2026-11-01' })
  for (const evil of ['https://evil.example/', '//evil.example/', '/\\evil.example', '/dashboard/../../evil', '/dashboard/%0d%0aset-cookie:x', '/v1/models', 'javascript:alert(1)', '/dashboard/\r\nx']) {
    t.match((await browser.get(await callbackOf(browser, evil))).headers, { location: '/dashboard/' }, evil)
  }
})

t.test('a provider that is away never stops the start: its page says so, and the next try works', async (t) => {
  const { app, provider, browser } = await openOffice(t)
  await provider.stop()
  const page = await browser.get('/dashboard/sign-in')
  t.match(page, { statusCode: 503, headers: { 'retry-after': /^\d+$/, 'x-svc-limit': 'backend', 'content-type': /^text\/html/ } })
  t.match(page.body, 'The sign-in provider does not answer')
  t.notMatch(page.body, provider.issuer)
  t.equal((await app.inject({ url: '/openapi.json' })).statusCode, 200, 'the rest works')
  await provider.start()
  t.equal((await signInAs(provider, browser, ADA)).statusCode, 303)
  const path = await callbackOf(openBrowser(app))
  await provider.stop()
  t.equal((await browser.get(path)).statusCode, 403)
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 200, 'sessions go on without the provider')
})

t.test('callbacks of one address are limited, and so are all that wait for the provider together', async (t) => {
  const { app, provider } = await openOffice(t)
  const callback = (remoteAddress: string) => app.inject({ url: '/dashboard/callback?code=x&state=x', remoteAddress })
  let tries = 0
  let refused = await callback('192.0.2.1')
  for (; refused.statusCode === 403 && tries < 1000; tries++) refused = await callback('192.0.2.1')
  t.match(refused, { statusCode: 429, headers: { 'x-svc-limit': 'sign_ins', 'retry-after': /^\d+$/ }, body: /Too many sign-ins come from your network address/ })
  t.ok(tries >= 20, 'an office behind one address can sign in')
  t.equal((await callback('192.0.2.2')).statusCode, 403)

  provider.person = ADA
  const begun = await Promise.all(Array.from({ length: 17 }, async () => {
    const browser = openBrowser(app)
    const path = await callbackOf(browser)
    return () => browser.get(path)
  }))
  const { promise, resolve } = Promise.withResolvers<void>()
  provider.pause = promise
  const answers = begun.map((complete) => complete())
  t.match(await Promise.race(answers), { statusCode: 503, headers: { 'x-svc-limit': 'waiting_sign_ins', 'retry-after': '5' }, body: /Too many people sign in at once/ })
  resolve()
  t.same((await Promise.all(answers)).map(({ statusCode }) => statusCode).sort(), [...Array(16).fill(303), 503])
})

t.test('a session of the mode local is invalid in the mode oidc', async (t) => {
  const { app, browser } = await openOffice(t)
  const now = app.clock()
  const { sessionHash } = await import('../../src/domain/sessions.ts')
  const secret = 'A'.repeat(43)
  await app.store.openSession({ id: sessionHash(secret), user: { id: 'local', name: 'Operator' }, signIn: 'local', tenants: null, tenant: 'demo', createdAt: now, expiresAt: now + 1e6 }, now)
  browser.cookies.set('tollgate_session', secret)
  t.equal((await browser.get('/dashboard/api/session')).statusCode, 401)
})

t.test('off loopback the cookies are bound to this host and to TLS', async (t) => {
  const { browser } = await openOffice(t, { env: { PUBLIC_URL: 'https://tollgate.example' } })
  const begun = await browser.get('/dashboard/sign-in')
  t.match(begun.headers['set-cookie'], /^__Host-tollgate_sign_in=[^;]+; Path=\/; Max-Age=600; HttpOnly; SameSite=Lax; Secure$/)
  t.match(begun.headers.location, /redirect_uri=https%3A%2F%2Ftollgate\.example%2Fdashboard%2Fcallback/)
  t.match(begun.headers.location, /code_challenge_method=S256/)
  const post = async (origin: string) => (await browser.send('POST', '/dashboard/api/sign-out', undefined, { origin, host: 'tollgate.example' })).json().error.code
  t.equal(await post('http://tollgate.example'), 'csrf', 'a page that came without TLS is not ours')
  t.equal(await post('https://tollgate.example'), 'not_signed_in')
})
