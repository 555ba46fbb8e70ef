import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { wellFormed } from '../../src/domain/api-keys.ts'
import { deriveKeys, formatDerivedKeys } from '../../src/domain/derived-keys.ts'
import { keyVersion, plan } from '../contracts/store/acme.ts'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { signIn, type Browser } from './dashboard-browser.ts'

/** A Plan of a tenant, and a key of that plan or of another one. */
const planAndKey = (namespace: string, plan: string, key: string, keysPlan = plan) => `
apiVersion: tollgate.dev/v1alpha1
kind: Plan
metadata: { name: ${plan}, namespace: ${namespace} }
spec: { product: Coding, coding: { sessionWindow: { tokens: 1000 }, weeklyWindow: { tokens: 5000 } } }
---
apiVersion: tollgate.dev/v1alpha1
kind: ApiKey
metadata: { name: ${key}, namespace: ${namespace} }
spec: { planRef: { name: ${keysPlan} } }
`
/** A second tenant beside `demo`. */
const GLOBEX = planAndKey('globex', 'coder', 'secret-project')

async function openOffice(t: Test, more = '', logged?: string[]) {
  const plans = await mkdtemp(join(tmpdir(), 'tollgate-plans-'))
  await cp(join(import.meta.dirname, '../../plans'), plans, { recursive: true })
  if (more !== '') await writeFile(join(plans, 'more.yaml'), more)
  const program = await openEmbeddedProgram(t, { env: { RESOURCES_URL: `files:${plans}` }, ...(logged ? { logged } : {}) })
  t.teardown(() => rm(plans, { recursive: true }))
  return { ...program, plans, browser: await signIn(program.app) }
}

type Key = { name: string; state: string; revision: string; reason: string | null }

function untilKey(browser: Browser, name: string, satisfies: (key: Key) => boolean): Promise<Key> {
  return eventually(`the key ${name}`, async () => {
    const key = (await browser.get(`/dashboard/api/keys/${name}`)).json() as Key
    return satisfies(key) ? key : null
  })
}

const isActive = ({ state }: Key) => state === 'Active'

t.test('a key is issued as a manifest of its own, works once it is revealed, rotates, is suspended and revoked', async (t) => {
  const { app, browser, plans } = await openOffice(t)
  const issued = await browser.send('POST', '/dashboard/api/keys', { name: 'laptop', plan: 'coder', limit: { weekly_tokens: 1000 } })
  t.match(issued, { statusCode: 201 })
  t.match(issued.json(), { name: 'laptop', plan: 'coder', product: 'Coding', limit: { weekly_tokens: 1000 }, rotation_revision: 0, last_used_at: null })
  t.match(await readFile(join(plans, 'apikey.demo.laptop.yaml'), 'utf8'), /kind: ApiKey[^]*name: laptop[^]*weeklyTokens: 1000/)

  const first = await untilKey(browser, 'laptop', isActive)
  const reveal = async () => (await browser.send('POST', '/dashboard/api/keys/laptop/reveal')).json().key as string
  const old = await reveal()
  t.ok(wellFormed(old))
  const ask = async (raw: string) => (await app.inject({ url: '/v1/models', headers: { authorization: `Bearer ${raw}` } })).statusCode
  t.equal(await ask(old), 200)

  const rotate = (revision: string) => browser.send('POST', '/dashboard/api/keys/laptop/rotate', { revision })
  t.equal((await rotate(first.revision)).statusCode, 200)
  t.match((await rotate(first.revision)).json(), { status: 409, error: { code: 'conflict' } }, 'the revision is an old one')
  const rotated = await untilKey(browser, 'laptop', (key) => isActive(key) && (key as Key & { overlap_until: string | null }).overlap_until !== null)
  const fresh = await reveal()
  t.not(fresh, old)
  t.same([await ask(old), await ask(fresh)], [200, 200], 'both work during the overlap')

  t.match((await browser.send('POST', '/dashboard/api/keys/laptop/suspend', { revision: rotated.revision })).json(), { state: 'Suspended' })
  await eventually('the suspension', async () => ((await ask(fresh)) === 403 ? true : null))
  t.match((await browser.send('POST', '/dashboard/api/keys/laptop/reveal')).json(), { error: { code: 'key_suspended' } })
  const suspended = await untilKey(browser, 'laptop', ({ state }) => state === 'Suspended')
  t.equal((await browser.send('POST', '/dashboard/api/keys/laptop/resume', { revision: suspended.revision })).statusCode, 200)
  await eventually('the resumption', async () => ((await ask(fresh)) === 200 ? true : null))
  const resumed = await untilKey(browser, 'laptop', isActive)
  t.match((await browser.send('POST', '/dashboard/api/keys/laptop/revoke', { revision: resumed.revision })).json(), { state: 'Revoked' })
  await eventually('the revocation', async () => ((await ask(fresh)) === 401 ? true : null))
  const revoked = await untilKey(browser, 'laptop', ({ state }) => state === 'Revoked')
  t.equal((await browser.send('POST', '/dashboard/api/keys/laptop/reveal')).statusCode, 404)
  t.equal((await browser.send('POST', '/dashboard/api/keys/laptop/resume', { revision: revoked.revision })).statusCode, 400, 'revoked is final')
})

t.test('after a rotation the old key is neither shown nor revealed as the new one: it is revealed once it is made', async (t) => {
  const manifest = (annotations: string) => `
apiVersion: tollgate.dev/v1alpha1
kind: ApiKey
metadata: { name: ci, namespace: demo${annotations} }
spec: { planRef: { name: coder } }
`
  const { app, browser, plans } = await openOffice(t, manifest(''))
  const reveal = async () => (await browser.send('POST', '/dashboard/api/keys/ci/reveal')).json()
  const { revision } = await untilKey(browser, 'ci', isActive)
  const { key: old } = await reveal()
  await writeFile(join(plans, 'more.yaml'), manifest(', annotations: { tollgate.dev/paused: "true" }'))
  const rotated = (await browser.send('POST', '/dashboard/api/keys/ci/rotate', { revision })).json()
  t.match(rotated, { state: 'Active', rotation_revision: 0, message: /^The new key is not made yet/ })
  t.match(await reveal(), { status: 409, error: { code: 'conflict', message: /^The new key is not made yet/ } })
  await writeFile(join(plans, 'more.yaml'), (await readFile(join(plans, 'more.yaml'), 'utf8')).replace('"true"', '"false"'))
  const made = await untilKey(browser, 'ci', (key) => (key as Key & { rotation_revision: number }).rotation_revision === 1)
  t.match(made, { state: 'Active', message: null })
  t.not((await reveal()).key, old)

  // The cluster was restored from a backup: the store has later versions.
  await app.store.mintKey(keyVersion(made.revision.split('.')[0] ?? '', 5, { name: 'ci', tenant: 'demo', subscription: 'demo/coder', product: 'Coding' }))
  t.equal((await browser.send('POST', '/dashboard/api/keys/ci/rotate', { revision: made.revision })).statusCode, 200)
  t.match(await readFile(join(plans, 'more.yaml'), 'utf8'), /rotationRevision: 6/)
})

t.test('a key of a plan that is not active is absent, not masked, and its plan says why', async (t) => {
  const { browser, plans } = await openOffice(t)
  const names = async () => (await browser.get('/dashboard/api/keys')).json().data.map(({ name }: Key) => name)
  t.same(await names(), ['coding', 'media'])
  const media = await untilKey(browser, 'media', isActive)
  const manifest = join(plans, 'demo.yaml')
  await writeFile(manifest, (await readFile(manifest, 'utf8')).replace('state: Active # Try', 'state: Suspended # Try'))
  await eventually('the suspension', async () => ((await names()).length === 1 ? true : null))
  const page = await browser.get('/dashboard/api/keys')
  t.match(page.json(), { data: [{ name: 'coding' }], locked: [{ plan: 'studio', product: 'Media', reason: 'PlanSuspended', message: 'The plan is suspended.' }] })
  t.notMatch(page.body, media.revision)
  for (const verb of ['reveal', 'rotate', 'suspend', 'resume', 'revoke']) {
    const answer = await browser.send('POST', `/dashboard/api/keys/media/${verb}`, verb === 'reveal' ? undefined : { revision: media.revision })
    t.match(answer.json(), { status: 404, error: { code: 'not_found' } }, verb)
  }
  t.match((await browser.send('POST', '/dashboard/api/keys', { name: 'more', plan: 'studio' })).json(), { error: { code: 'plan_inactive' } })
  t.match((await browser.get('/dashboard/api/plans')).json().data.find(({ name }: Key) => name === 'studio'), { state: 'Inactive', reason: 'PlanSuspended' })
})

t.test('a session of one tenant sees and changes nothing of another', async (t) => {
  const { browser } = await openOffice(t, GLOBEX)
  t.match((await browser.get('/dashboard/api/session')).json(), { tenant: 'demo', tenants: ['demo', 'globex'] })
  const revisionOf = async () => {
    await browser.send('PUT', '/dashboard/api/session/tenant', { tenant: 'globex' })
    const { revision } = await untilKey(browser, 'secret-project', isActive)
    await browser.send('PUT', '/dashboard/api/session/tenant', { tenant: 'demo' })
    return revision
  }
  const revision = await revisionOf()
  for (const path of ['plans', 'keys', 'usage/coding', 'usage/media']) t.notMatch((await browser.get(`/dashboard/api/${path}`)).body, /globex|secret-project/, path)
  for (const name of ['secret-project', '..%2Fglobex%2Fsecret-project', 'globex%2Fsecret-project', 'demo']) {
    t.ok([400, 404].includes((await browser.get(`/dashboard/api/keys/${name}`)).statusCode), name)
    for (const verb of ['reveal', 'rotate', 'suspend', 'resume', 'revoke']) {
      const answer = await browser.send('POST', `/dashboard/api/keys/${name}/${verb}`, verb === 'reveal' ? undefined : { revision })
      t.ok([400, 404].includes(answer.statusCode), `${verb} ${name}`)
    }
  }
  // The revision of a foreign key beside the name of an own one.
  t.equal((await browser.send('POST', '/dashboard/api/keys/coding/revoke', { revision })).statusCode, 409)
  for (const plan of ['globex/coder', '../globex/coder', 'nothing']) t.ok([400, 404].includes((await browser.get(`/dashboard/api/usage/coding?plan=${encodeURIComponent(plan)}`)).statusCode), plan)
  t.ok((await browser.send('POST', '/dashboard/api/keys', { name: 'x', plan: 'globex' })).statusCode === 400)
})

t.test('the answer to an invalid request names its fault', async (t) => {
  const { browser } = await openOffice(t)
  const post = async (body: object) => (await browser.send('POST', '/dashboard/api/keys', body)).json()
  t.match(await post({}), { status: 400, errors: [{ path: '/name' }, { path: '/plan' }] })
  t.match(await post({ name: 'Not A Name', plan: 'coder' }), { status: 400, errors: [{ path: '/name', message: 'must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit' }] })
  t.match(await post({ name: '../x', plan: 'coder' }), { status: 400, errors: [{ path: '/name' }] })
  t.match(await post({ name: 'a', plan: 'none' }), { status: 400, errors: [{ path: '/plan' }] })
  t.match(await post({ name: 'coding', plan: 'coder' }), { status: 409, error: { code: 'conflict' } })
  t.match(await post({ name: 'a', plan: 'coder', limit: { weekly_tokens: 1, amount_per_period: '1' } }), { status: 400, errors: [{ path: '/limit' }] })
  t.match(await post({ name: 'a', plan: 'coder', expires_at: 'soon' }), { status: 400, errors: [{ path: '/expires_at' }] })
  for (const revision of ['', 'x', '1', '../..', 'a.b']) t.equal((await browser.send('POST', '/dashboard/api/keys/coding/rotate', { revision })).statusCode, 400, revision)
  t.equal((await browser.send('POST', '/dashboard/api/keys/none/reveal')).statusCode, 404)
  for (let n = 1; n < 5; n++) t.match(await post({ name: `k${n}`, plan: 'coder' }), { name: `k${n}` })
  t.match(await post({ name: 'k5', plan: 'coder' }), { status: 409, error: { message: 'The plan has as many keys as it allows: 5. Revoke one first.' } })
})

t.test('a tenant has at most 500 ApiKeys, revoked ones included: the dashboard issues no more', async (t) => {
  const revoked = (n: number) => `{ apiVersion: tollgate.dev/v1alpha1, kind: ApiKey, metadata: { name: k${n}, namespace: demo }, spec: { planRef: { name: none }, state: Revoked } }`
  const { browser } = await openOffice(t, Array.from({ length: 497 }, (_, n) => revoked(n)).join('\n---\n'))
  const post = async (name: string) => (await browser.send('POST', '/dashboard/api/keys', { name, plan: 'coder' })).json()
  t.match(await post('last'), { name: 'last' })
  t.match(await post('more'), { status: 409, error: { code: 'conflict', message: 'You have as many keys as you may have: 500, revoked ones included. Ask whoever operates the service to delete some.' } })
})

t.test('no key is in a list, a manifest or a log line; a reveal is logged by the id of the key and the person', async (t) => {
  const logged: string[] = []
  const { browser, plans } = await openOffice(t, '', logged)
  await untilKey(browser, 'coding', isActive)
  const raw = (await browser.send('POST', '/dashboard/api/keys/coding/reveal')).json().key as string
  t.ok(wellFormed(raw))
  const seen = [...logged]
  for (const path of ['keys', 'keys/coding', 'plans', 'usage/coding', 'session']) seen.push((await browser.get(`/dashboard/api/${path}`)).body)
  for (const file of await readdir(plans)) seen.push(await readFile(join(plans, file), 'utf8'))
  t.notOk(seen.join('\n').includes(raw.slice(-20)))
  const line = logged.map((text) => JSON.parse(text)).find(({ event }) => event === 'key_revealed')
  t.match(line, { msg: 'API key revealed', keyId: /-0$/, user: 'local', tenant: 'demo' })
  const secret = browser.cookies.get('tollgate_session') ?? 'none'
  t.notOk(logged.join('\n').includes(secret), 'nor is a session')
})

t.test('a gateway of its own shows keys and changes none, unless it may: then it is ready without the API server, which it asks only when somebody needs it', async (t) => {
  for (const managed of ['false', 'true']) {
    const kubeconfig = join(t.testdir({ kubeconfig: JSON.stringify({ clusters: [{ name: 'c', cluster: { server: 'http://127.0.0.1:1', 'insecure-skip-tls-verify': true } }], users: [{ name: 'u', user: { token: 'x' } }], contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }], 'current-context': 'x' }) }), 'kubeconfig')
    const env = { DASHBOARD: 'local', DASHBOARD_KEY_MANAGEMENT: managed, RESOURCES_URL: `kubernetes:?kubeconfig=${kubeconfig}` }
    const { app } = await openEmbeddedProgram(t, { role: 'gateway', env })
    await app.store.change('acme/code', plan({ plan: { uid: 'p', createdAt: app.clock(), generation: 1 } }), app.clock())
    await app.store.mintKey(keyVersion('k1', 0, { state: 'active', subscription: 'acme/code', product: 'Coding', name: 'ci', tenant: 'acme' }))
    const browser = await signIn(app)
    t.match((await browser.get('/dashboard/api/session')).json(), { tenant: 'acme', key_management: { allowed: managed === 'true' } })
    t.match((await browser.get('/dashboard/api/keys')).json(), { data: [{ name: 'ci', state: 'Active', revision: null }] })
    const code = managed === 'true' ? 'unavailable' : 'key_management_off'
    t.match((await browser.send('POST', '/dashboard/api/keys', { name: 'laptop', plan: 'code' })).json(), { error: { code } }, managed)
    t.match((await browser.send('POST', '/dashboard/api/keys/ci/revoke', { revision: 'k1.1' })).json(), { error: { code } }, managed)
  }
})

t.test('a gateway with derived keys shows keys and reveals none', async (t) => {
  const file = join(t.testdir({ 'derived.keys': formatDerivedKeys(deriveKeys([Buffer.alloc(32, 1)])) }), 'derived.keys')
  const { app } = await openEmbeddedProgram(t, { role: 'gateway', derivedKeysFile: file, env: { DASHBOARD: 'local' } })
  await app.store.change('acme/code', plan({ plan: { uid: 'p', createdAt: app.clock(), generation: 1 } }), app.clock())
  await app.store.mintKey(keyVersion('k1', 0, { state: 'active', subscription: 'acme/code', product: 'Coding', name: 'ci', tenant: 'acme' }))
  const browser = await signIn(app)
  t.match((await browser.get('/dashboard/api/session')).json(), { key_reveal: false })
  t.match((await browser.get('/dashboard/api/keys')).json(), { data: [{ name: 'ci', state: 'Active' }] })
  t.match((await browser.send('POST', '/dashboard/api/keys/ci/reveal')).json(), { error: { code: 'key_management_off', message: /Secret/ } })
})

t.test('what a key used before it was moved to another plan stays under its name', async (t) => {
  const manifest = (keysPlan: string) => planAndKey('demo', 'other', 'mover', keysPlan)
  const { app, browser, plans } = await openOffice(t, manifest('coder'))
  await untilKey(browser, 'mover', isActive)
  const { key } = (await browser.send('POST', '/dashboard/api/keys/mover/reveal')).json()
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
  const answer = await fetch(`${address}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] }) })
  t.equal(answer.status, 200)
  await answer.json()
  const read = async (path: string) => (await browser.get(`/dashboard/api/usage/coding${path}`)).json()
  await eventually('the settlement', async () => ((await read('?plan=coder')).keys?.[0]?.used > 0 ? true : null))
  await eventually('the request', async () => ((await read('/requests?plan=coder')).data.length > 0 ? true : null))
  await writeFile(join(plans, 'more.yaml'), manifest('other'))
  await untilKey(browser, 'mover', (key) => (key as Key & { plan: string }).plan === 'other')
  await eventually('the move', async () => ((await app.store.keysOf('demo/other')).length > 0 ? true : null))
  t.match((await read('?plan=coder')).keys, [{ name: 'mover' }])
  t.match((await read('/requests?plan=coder&key=mover')).data, [{ key: 'mover' }])
})

t.test('the usage of keys that were removed is one entry', async (t) => {
  const { app, browser, plans } = await openOffice(t)
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  for (const name of ['first', 'second']) {
    await browser.send('POST', '/dashboard/api/keys', { name, plan: 'coder' })
    await untilKey(browser, name, isActive)
    const { key } = (await browser.send('POST', `/dashboard/api/keys/${name}/reveal`)).json()
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const answer = await fetch(`${address}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] }) })
    t.equal(answer.status, 200)
    await answer.json()
  }
  const keys = async (): Promise<{ name: string | null; used: number }[]> => (await browser.get('/dashboard/api/usage/coding')).json().keys
  const used = await eventually('the settlements', async () => {
    const found = await keys()
    return found.length === 2 && found.every(({ used }) => used > 0) ? found.map(({ used }) => used) : null
  })
  for (const name of ['first', 'second']) await rm(join(plans, `apikey.demo.${name}.yaml`))
  const removed = await eventually('the removal', async () => {
    const found = await keys()
    return found.every(({ name }) => name === null) ? found : null
  })
  t.same(removed, [{ name: null, used: used.reduce((sum, each) => sum + each, 0), refusals: 0 }])
})
