/** `auth-provider: oidc` of a kubeconfig, against an issuer on loopback, and a real API server that trusts it. */
import { readFileSync, writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream'
import t, { type Test } from 'tap'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openKubeconfig } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig.ts'
import { openOidcProvider } from '../../../src/backends/resources/kubernetes/credentials/oidc-provider.ts'
import { CLIENT_ID, openIssuer, type Issuer } from '../../fakes/issuer.ts'
import { ownKubernetes } from '../../servers/kubernetes.ts'
import { userNameOf } from './user-name.ts'

const SECRET = 'hunter2'

/** The `config` of the auth-provider. */
const configOf = (issuer: Issuer, more: object = {}) => ({ 'idp-issuer-url': issuer.url, 'client-id': CLIENT_ID, 'refresh-token': issuer.refreshToken(), ...more })

function kubeconfig(config: object, cluster: object = {}): string {
  return JSON.stringify({
    clusters: [{ name: 'c', cluster: { server: 'https://api.example.com:6443', ...cluster } }],
    users: [{ name: 'u', user: { 'auth-provider': { name: 'oidc', config } } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  })
}

/** Reads the authorization header as the API client gets it; the issuer's authority lies beside the kubeconfig. */
function openReader(t: Test, issuer: Issuer, config: object) {
  const folder = t.testdir({ 'issuer.crt': issuer.ca })
  const { read } = openKubeconfig([{ path: join(folder, 'config'), text: kubeconfig({ 'idp-certificate-authority': 'issuer.crt', ...config }) }], {})
  return async (isRefused = false) => (await read(isRefused)).headers['authorization']
}

t.test('the written id-token is used while it is good; then tokens are refreshed, each time with the refresh token of the last answer', async (t) => {
  const issuer = await openIssuer(t, { expiresIn: 50 })
  const written = issuer.idToken(3600)
  t.equal(await openReader(t, issuer, configOf(issuer, { 'id-token': written }))(), `Bearer ${written}`)
  t.equal(issuer.refreshes.length, 0)
  for (const [name, idToken] of Object.entries({ expired: issuer.idToken(-10), 'about to expire': issuer.idToken(50), missing: null, 'no JWT': SECRET, 'no JSON': 'a.b.c' })) {
    const seen = issuer.refreshes.length
    const read = openReader(t, issuer, configOf(issuer, { 'id-token': idToken }))
    const [first, second] = [await read(), await read()]
    t.match(first, /^Bearer [\w-]+\.[\w-]+\.[\w-]+$/, name)
    t.not(first, `Bearer ${idToken}`)
    t.ok(second)
    t.equal(issuer.refreshes.length, seen + 2, 'the issuer takes no refresh token twice')
  }
  const last = issuer.idToken(30)
  t.equal(await openReader(t, issuer, { ...configOf(issuer, { 'id-token': last }), 'refresh-token': null })(), `Bearer ${last}`, 'the last one is good to its end')
})

t.test('a refreshed token is kept until it is refused, and then refreshed once for all', async (t) => {
  const issuer = await openIssuer(t)
  const folder = t.testdir({ 'issuer.crt': issuer.ca, config: kubeconfig(configOf(issuer, { 'idp-certificate-authority': 'issuer.crt' })) })
  const credentials = await openCredentials(join(folder, 'config'), {})
  t.teardown(() => credentials.close())
  const first = await credentials.connection()
  t.equal(await credentials.connection(), first)
  t.equal(issuer.refreshes.length, 1)
  const unavailable = (response: ServerResponse) => void response.writeHead(503).end()
  issuer.next(unavailable, unavailable)
  await t.rejects(credentials.connection(first))
  await t.rejects(credentials.connection(), 'what was refused is not used again')
  const [second, third] = await Promise.all([credentials.connection(first), credentials.connection(first)])
  t.not(second.headers['authorization'], first.headers['authorization'])
  t.equal(second, third)
  t.equal(issuer.refreshes.length, 4)
})

t.test('the client authenticates by the method that the issuer supports', async (t) => {
  const basic = `Basic ${Buffer.from(`${CLIENT_ID}:${SECRET}`).toString('base64')}`
  const CASES: [string[] | undefined, string | null, object][] = [
    [undefined, SECRET, { authorization: basic, parameters: { client_secret: undefined } }],
    [['client_secret_post', 'client_secret_basic'], SECRET, { authorization: basic, parameters: { client_secret: undefined } }],
    [['client_secret_post'], SECRET, { authorization: undefined, parameters: { client_id: CLIENT_ID, client_secret: SECRET } }],
    [['none'], null, { authorization: undefined, parameters: { client_id: CLIENT_ID, client_secret: undefined } }],
    [undefined, '', { authorization: undefined, parameters: { client_id: CLIENT_ID, client_secret: undefined } }],
  ]
  for (const [authMethods, secret, wanted] of CASES) {
    const issuer = await openIssuer(t, authMethods && { authMethods })
    const data = Buffer.from(issuer.ca).toString('base64')
    t.ok(await openReader(t, issuer, configOf(issuer, { 'client-secret': secret, 'idp-certificate-authority': null, 'idp-certificate-authority-data': data }))())
    t.match(issuer.refreshes, [wanted], `${authMethods} ${secret}`)
  }
})

t.test('a failed refresh is reported in one sentence without any token', async (t) => {
  const issuer = await openIssuer(t)
  const other = await openIssuer(t)
  const json = (status: number, body: object) => (response: ServerResponse) => void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  function* endless() {
    for (;;) yield ' '.repeat(65_536)
  }
  const good = configOf(issuer, { 'refresh-token': SECRET, 'client-secret': SECRET })
  const CASES: [RegExp, object, string, ((response: ServerResponse) => void)?][] = [
    [/\(invalid_grant\): check the auth-provider, or sign in again\.$/, good, issuer.ca],
    [/\(no id_token\)/, good, issuer.ca, json(200, { access_token: SECRET, token_type: 'Bearer' })],
    [/\(no valid answer\)|\(OAUTH_\w+\)/, good, issuer.ca, json(400, { error: `${SECRET} ${SECRET}!` })],
    [/\(OAUTH_\w+\)/, good, issuer.ca, json(200, { access_token: SECRET, token_type: 'Bearer', id_token: SECRET })],
    [/\(OAUTH_\w+\)/, good, issuer.ca, (response) => void response.writeHead(200, { 'content-type': 'application/json' }).end(SECRET)],
    [/\(OAUTH_TIMEOUT\)/, good, issuer.ca, () => {}],
    [/\(OAUTH_PARSE_ERROR\)/, good, issuer.ca, (response) => pipeline(endless, response.writeHead(200, { 'content-type': 'application/json' }), () => {})],
    [/\(DEPTH_ZERO_SELF_SIGNED_CERT\)/, good, other.ca],
    [/127\.0\.0\.1:1 did not refresh/, { ...good, 'idp-issuer-url': 'https://127.0.0.1:1' }, issuer.ca],
    [/has expired or is refused, and there is no refresh-token: sign in again\.$/, { ...good, 'refresh-token': null, 'id-token': issuer.idToken(-10) }, issuer.ca],
  ]
  for (const [wanted, config, ca, answer] of CASES) {
    if (answer) issuer.next(answer)
    const issue = openOidcProvider(config as never, async () => ca, 1)
    const { message, cause } = (await issue({ headers: {} }, false).then(() => new Error('issued'), (error: unknown) => error)) as Error
    t.match(message, wanted)
    t.match(message, /^RESOURCES_URL: [^\n]+\.$/)
    t.notMatch(`${message} ${String(cause)}`, SECRET)
  }
})

t.test('a real API server that trusts the issuer knows us by the id-token, and by a refreshed one when it refuses the written one', async (t) => {
  const issuer = await openIssuer(t)
  const folder = t.testdir({ 'issuer.crt': issuer.ca })
  const flags = [`--oidc-issuer-url=${issuer.url}`, `--oidc-client-id=${CLIENT_ID}`, `--oidc-ca-file=${join(folder, 'issuer.crt')}`, '--oidc-username-prefix=oidc:']
  const plane = await ownKubernetes(t, flags)
  if (!plane) return
  const { clusters } = JSON.parse(readFileSync(plane.kubeconfig, 'utf8'))
  const { server } = clusters[0].cluster
  const cluster = { server, 'certificate-authority': join(dirname(plane.kubeconfig), 'ca.crt') }

  async function whoAmI(config: object): Promise<string> {
    writeFileSync(join(folder, 'config'), kubeconfig({ 'idp-certificate-authority': 'issuer.crt', ...config }, cluster))
    return userNameOf(join(folder, 'config'), {})
  }

  t.equal(await whoAmI(configOf(issuer, { 'id-token': issuer.idToken(3600, 'john') })), 'oidc:john')
  t.equal(await whoAmI(configOf(issuer)), 'oidc:jane')
  // Its signature is of another key.
  const forged = (await openIssuer(t)).idToken(3600)
  t.equal(await whoAmI(configOf(issuer, { 'id-token': forged })), 'oidc:jane')
})
