/** Two gateways over one MongoDB: any of them begins, completes and ends a sign-in. */
import { randomBytes } from 'node:crypto'
import t from 'tap'
import { join } from 'node:path'
import { DEFAULT_ENGINES } from '../../src/backends/engines/engines-file.ts'
import { onMongodb } from '../backends/store/empty-store.ts'
import { plan, keyVersion } from '../contracts/store/acme.ts'
import { atProvider, CLIENT, openOidcProvider } from '../servers/oidc-provider.ts'
import { openBrowser } from './dashboard-browser.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

const PUBLIC = 'http://127.0.0.1:8080'

t.test('a sign-in that one gateway begins is completed by another, and its session is that of all until one of them ends it', onMongodb(async (t, { url }) => {
  const provider = await openOidcProvider(t, { clients: [PUBLIC] })
  provider.person = { sub: 'ada', name: 'Ada', tenants: ['acme', 'globex'] }
  const folder = t.testdir({ 'sealing.key': `${randomBytes(32).toString('base64')}\n`, 'engines.yaml': DEFAULT_ENGINES, 'upstreams.yaml': 'upstreams: [{ name: echo, baseUrl: "echo:", wire: both }]\n' })
  const env = {
    STORE_URL: url, FILES_URL: 'gridfs:', PUBLIC_URL: PUBLIC, SEALING_KEY_FILE: join(folder, 'sealing.key'), ENGINES: join(folder, 'engines.yaml'), UPSTREAMS: join(folder, 'upstreams.yaml'),
    DASHBOARD: 'oidc', OIDC_ISSUER: provider.issuer, OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret,
  }
  const [{ app: first }, { app: second }] = [await openEmbeddedProgram(t, { role: 'gateway', env }), await openEmbeddedProgram(t, { role: 'gateway', env })]
  await first.store.change('acme/code', plan(), first.clock())
  await first.store.change('globex/code', plan(), first.clock())
  await first.store.mintKey(keyVersion('k1', 0, { state: 'active', subscription: 'acme/code', product: 'Coding', name: 'ci', tenant: 'acme' }))

  const [atFirst, atSecond] = [openBrowser(first), openBrowser(second)]
  const share = (from: typeof atFirst, to: typeof atFirst) => {
    to.cookies.clear()
    for (const [name, value] of from.cookies) to.cookies.set(name, value)
  }
  const begun = await atFirst.get('/dashboard/sign-in?return=/dashboard/keys')
  const callback = await atProvider(String(begun.headers.location), PUBLIC)
  share(atFirst, atSecond)
  const replay = openBrowser(first)
  share(atFirst, replay)
  t.match(await atSecond.get(callback), { statusCode: 303, headers: { location: '/dashboard/keys' } })
  t.equal((await replay.get(callback)).statusCode, 403, 'completed once, over all gateways')
  share(atSecond, atFirst)
  t.match((await atFirst.get('/dashboard/api/keys')).json(), { data: [{ name: 'ci' }] })
  t.match((await atFirst.send('PUT', '/dashboard/api/session/tenant', { tenant: 'globex' })).json(), { tenant: 'globex' })
  t.match((await atSecond.get('/dashboard/api/session')).json(), { tenant: 'globex' })
  t.match((await atSecond.get('/dashboard/api/keys')).json(), { data: [] })
  await atSecond.send('POST', '/dashboard/api/sign-out')
  t.equal((await atFirst.get('/dashboard/api/session')).statusCode, 401)
}))
