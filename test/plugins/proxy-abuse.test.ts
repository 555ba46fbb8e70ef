/** Pass-through routes under hostile requests and talkative services. */
import { connect } from 'node:net'
import t from 'tap'
import { openService } from '../fakes/service.ts'
import { openProxyProgram } from './proxy-program.ts'

/** Headers by which services learn from a proxy who a person is, and spellings that some servers read as them. */
const CLAIMS = ['X-Forwarded-User', 'X-Forwarded-Email', 'X-Forwarded-Groups', 'Remote-User', 'Remote_Groups', 'X_Forwarded_User', 'X_SVC_Tenant', 'X.SVC.Plan', 'X-Auth-Request-User', 'X-Remote-User', 'X-WebAuth-User', 'X-MS-Client-Principal-Name', 'Cf-Access-Authenticated-User-Email', 'SSL-Client-S-DN', 'True-Client-IP', 'X-Client-IP', 'X-Rewrite-Path', 'Impersonate-User', 'Impersonate_Group', 'X-Consumer-Username', 'X-Anonymous-Consumer', 'X-Credential-Identifier', 'X-Userinfo', 'X-Endpoint-API-UserInfo', 'X-Apigateway-Api-Userinfo', 'X-ARR-ClientCert']

const route = { product: 'Coding', tokensPerRequest: 10, prefix: '/tools' }

/** Sends bytes as they are; resolves with everything that came back. */
function raw(port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(text))
    let received = ''
    socket.on('data', (part) => (received += part)).on('close', () => resolve(received)).on('error', reject)
  })
}

t.test('an ambiguous path, an absolute target and a smuggled body do not reach the service', async (t) => {
  const service = await openService(t)
  const { port, coding, usedTokens } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const send = async (target: string, headers = '', body = '', method = 'GET') =>
    Number((await raw(port, `${method} ${target} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer ${coding}\r\nConnection: close\r\n${headers}\r\n${body}`)).split(' ')[1])
  for (const target of ['/tools/../v1/usage', '/tools/%2e%2e/x', '/tools/.%2E/x', '/tools/a/./b', '/tools/..%2fx', '/tools/a%2Fb', '/tools/a%5cb', '/tools/a\\..\\b', '/tools//x', '/tools/%00', '/tools/%zz']) {
    t.equal(await send(target), 400, target)
  }
  for (const target of ['http://evil.example/tools/x', '//tools/x', '/tools%2fx', '/x/../tools']) t.equal(await send(target), 404, target)
  t.equal(await send('/tools', 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\nGET /tools/smuggled HTTP/1.1\r\n\r\n', 'POST'), 400)
  t.equal(await send('/tools', 'Transfer-Encoding: xchunked\r\n', 'x', 'POST'), 400)
  t.equal(await send('/tools', 'Content-Length: 4\r\nContent-Length: 5\r\n', 'xxxxx', 'POST'), 400)
  t.equal(await send('/tools', 'Content-Length: 5\r\n', 'xxxxx'), 400, 'GET with a body')
  t.same(service.seen, [])
  t.equal(await usedTokens(), 0)
})

t.test("a client's credentials, hop-by-hop headers and claims about itself do not reach the service", async (t) => {
  const service = await openService(t)
  const { port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url, headers: { Authorization: 'Basic c2VydmljZQ==', 'X-Team': 'gateway' } }])
  const headers = ['Cookie: session=1', 'Proxy-Authorization: Basic eA==', 'X-Api-Key: k', 'Connection: close, X-Secret-Hop', 'X-Secret-Hop: 1', 'Keep-Alive: timeout=5', 'TE: trailers', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk', 'X-Forwarded-For: 1.2.3.4', 'X-Forwarded-Host: evil', 'Forwarded: for=1.2.3.4', 'X-Real-IP: 1.2.3.4', 'X-SVC-Tenant: victim', 'X-SVC-Anything: 1', 'X-Team: mine', 'X_Team: mine', 'X.Team: mine', 'X_Request_Id: mine', 'X-Original-URL: /admin', 'Expect: 100-continue', 'X-Kept: yes', ...CLAIMS.map((name) => `${name}: victim`), `Api-Key: ${coding}`, `X-Token: Bearer ${coding}`, `X-Escaped: %73${coding.slice(1)}`, `X-Basic: Basic ${Buffer.from(`me:${coding}`).toString('base64')}`]
  const answer = await raw(port, `POST /tools HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer ${coding}\r\n${headers.join('\r\n')}\r\nContent-Length: 2\r\n\r\nhi`)
  t.match(answer, /HTTP\/1.1 200/)
  const sent = service.seen[0]?.headers ?? {}
  t.match(sent, { authorization: 'Basic c2VydmljZQ==', 'x-team': 'gateway', 'x-kept': 'yes', 'x-svc-tenant': 'demo', 'x-forwarded-for': '127.0.0.1', 'x-forwarded-host': 'gateway', 'content-length': '2' })
  for (const name of ['cookie', 'proxy-authorization', 'x-api-key', 'x-secret-hop', 'te', 'upgrade', 'http2-settings', 'forwarded', 'x-real-ip', 'x-svc-anything', 'x-original-url', 'expect', 'api-key', 'x-token', 'x-escaped', 'x-basic', 'x_team', 'x.team', 'x_request_id', ...CLAIMS.map((name) => name.toLowerCase())]) t.notOk(name in sent, name)
  t.notMatch(JSON.stringify(sent), coding)
})

t.test("a service's cookies, credentials, policies and name do not reach the client", async (t) => {
  const service = await openService(t, {
    answer: (_request, response) => {
      response.writeHead(200, {
        'set-cookie': ['a=1', 'b=2'], server: 'internal/1.0', 'x-powered-by': 'secret', via: '1.1 internal', 'www-authenticate': 'Basic', 'strict-transport-security': 'max-age=1', 'clear-site-data': '"*"',
        'alt-svc': 'h3=":443"', connection: 'close, x-hop', 'x-hop': '1', 'x-request-id': 'theirs', 'x_svc_tenant': 'theirs', 'x-ratelimit-limit-tokens': '1', 'x-codex-primary-used-percent': '100', 'x-kept': 'yes',
      })
      response.end('done')
    },
  })
  const { call } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const answer = await call('/tools')
  const got = Object.fromEntries(answer.headers)
  t.match(got, { 'x-kept': 'yes', 'x-ratelimit-limit-tokens': '500000' })
  t.not(got['x-request-id'], 'theirs')
  t.not(got['x-codex-primary-used-percent'], '100')
  for (const name of ['set-cookie', 'server', 'x-powered-by', 'via', 'www-authenticate', 'strict-transport-security', 'clear-site-data', 'alt-svc', 'x-hop', 'x_svc_tenant']) t.notOk(name in got, name)
})

t.test('a redirect leads back through the gateway, and is not followed', async (t) => {
  const locations = ['/base/next?a=1', 'next', 'https://elsewhere.example/x', '/outside']
  const service = await openService(t, { answer: (request, response) => void response.writeHead(302, { location: locations[Number(request.url?.slice(-1))] ?? `${service.url}/base/abs#f` }).end() })
  const { call } = await openProxyProgram(t, [{ ...route, upstream: service.url, rewritePrefix: '/base' }])
  const found = []
  for (const i of [0, 1, 2, 3, 4]) found.push((await call(`/tools/${i}`)).headers.get('location'))
  t.same(found, ['/tools/next?a=1', 'next', 'https://elsewhere.example/x', null, '/tools/abs#f'])
})

t.test("a client's key in the query goes, and a path with it is refused", async (t) => {
  const service = await openService(t)
  const { call, coding, usedTokens } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const escaped = `%73${coding.slice(1)}`
  for (const query of [`?a=1&key=${coding}&b=%20`, `?a=1&key=x${escaped}&b=%20`, `?a=1&${coding}&b=%20`]) t.equal((await call(`/tools/x${query}`)).status, 200)
  t.equal((await call(`/tools/x?key=${coding}`)).status, 200)
  for (const path of [`/tools/${coding}`, `/tools/${escaped}/x`]) t.match(await (await call(path)).json(), { error: { code: 'invalid_request' } })
  t.same(service.seen.map(({ url }) => url), ['/x?a=1&b=%20', '/x?a=1&b=%20', '/x?a=1&b=%20', '/x'])
  t.equal(await usedTokens(), 40)
})

t.test('no location, link or refresh leads around the gateway', async (t) => {
  const answers: Record<string, string | string[]>[] = []
  const service = await openService(t, { answer: (request, response) => void response.writeHead(200, answers[Number(request.url?.split('/').at(-1))]).end() })
  const { host, port, hostname } = new URL(service.url)
  const cases: [sent: Record<string, string | string[]>, got: Record<string, string>][] = []
  for (const name of ['location', 'content-location']) {
    for (const target of [`https://${host}/base/x`, `http://${hostname}:1/base/x`, `//${hostname}:1/base/x`, `/\\${hostname}:1/x`, `ht\ttp://${hostname}:1/base/x`, `HTTP://${hostname}.:${port}/x`, `ws://${host}/base/x`])
      cases.push([{ [name]: target }, {}])
    cases.push([{ [name]: [`${service.url}/base/x`, `${service.url}/base/y`] }, {}])
    cases.push([{ [name]: `http://user:secret@${host}/base/x?a` }, { [name]: '/tools/x?a' }])
  }
  cases.push(
    [{ link: `<${service.url}/base/p?page=2>; rel="next", <p?page=1>; rel="first"` }, { link: '</tools/p?page=2>; rel="next", <p?page=1>; rel="first"' }],
    [{ link: ['</base/a>; rel=a', `<${service.url}/base/b>; rel=b`] }, { link: '</tools/a>; rel=a, </tools/b>; rel=b' }],
    [{ link: '<https://elsewhere.example/a>; title="a <b>, c"' }, { link: '<https://elsewhere.example/a>; title="a <b>, c"' }],
    [{ link: `<https://${host}/base/x>; rel=a, </base/y>; rel=b` }, {}],
    [{ link: `</base/x>; anchor="http://${hostname}:1/x"` }, {}],
    [{ link: `</outside>; rel=a` }, {}],
    [{ refresh: `5; url=${service.url}/base/x` }, {}],
    [{ 'x-svc-limit': 'theirs' }, {}],
  )
  answers.push(...cases.map(([sent]) => sent))
  const { call } = await openProxyProgram(t, [{ ...route, upstream: service.url, rewritePrefix: '/base' }])
  for (const [i, [sent, got]] of cases.entries()) {
    const { headers } = await call(`/tools/${i}`)
    const found = ['location', 'content-location', 'link', 'refresh', 'x-svc-limit'].flatMap((name) => (headers.has(name) ? [[name, headers.get(name)]] : []))
    t.same(Object.fromEntries(found), got, JSON.stringify(sent))
  }
})

t.test('a path of more than 200 characters is passed on', async (t) => {
  const service = await openService(t)
  const { call } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  t.equal((await call(`/tools/${'x'.repeat(1000)}`)).status, 200)
})
