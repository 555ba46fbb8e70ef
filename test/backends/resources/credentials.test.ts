/** Credentials of pods and of rotated files, and that a real API server knows their user. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream'
import t, { type Test } from 'tap'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openServiceAccount } from '../../../src/backends/resources/kubernetes/credentials/service-account.ts'
import { certify } from '../../egress/certificate.ts'
import { openApi } from '../../servers/kube/api.ts'
import { ownKubernetes } from '../../servers/kubernetes.ts'
import { bearer, kubeconfig, V1 } from './kubeconfig-document.ts'
import { userNameOf } from './user-name.ts'

const PATH = process.env['PATH'] ?? ''
const SECRET = 'hunter2'

t.test('a pod is its ServiceAccount, also where addresses are IPv6', async (t) => {
  const folder = t.testdir({ token: `${SECRET}\n`, 'ca.crt': 'PEM', namespace: 'acme\n' })
  const inside = (host: string) => ({ KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: '443' })
  const account = await openServiceAccount(inside('10.0.0.1'), folder)
  t.match(account, { server: new URL('https://10.0.0.1'), proxy: null, namespace: 'acme' })
  t.same(await account?.read(false), { tls: { ca: 'PEM' }, headers: bearer(SECRET) })
  t.match(await openServiceAccount(inside('fd00::1'), folder), { server: new URL('https://[fd00::1]') })
  t.equal(await openServiceAccount({}, folder), null)
  t.equal(await openServiceAccount(inside('10.0.0.1'), join(folder, 'none')), null)
})

t.test('in a pod nothing of the client library is loaded, and with a kubeconfig it is', async (t) => {
  const folder = t.testdir({ token: SECRET, 'ca.crt': certify(['127.0.0.1'], new Date()).cert, config: JSON.stringify(kubeconfig({}, {})) })
  const adapter = join(import.meta.dirname, '../../../src/backends/resources/kubernetes')
  const script = `
    import { registerHooks } from 'node:module'
    const packages = new Set()
    registerHooks({ resolve(specifier, context, next) {
      const found = next(specifier, context)
      const [, name] = found.url.match(/.*node_modules\\/((?:@[^/]+\\/)?[^/]+)/) ?? []
      if (name) packages.add(name)
      return found
    } })
    const [, folder, kubeconfig] = process.argv
    await import(${JSON.stringify(join(adapter, 'kubernetes.ts'))})
    const { openCredentials } = await import(${JSON.stringify(join(adapter, 'credentials/credentials.ts'))})
    const credentials = await openCredentials(kubeconfig || null, { KUBERNETES_SERVICE_HOST: '127.0.0.1', KUBERNETES_SERVICE_PORT: '6443' }, folder)
    const { headers } = await credentials.connection()
    await credentials.close()
    console.log(JSON.stringify({ headers, packages: [...packages] }))`
  const loaded = (config: string) => JSON.parse(execFileSync(process.execPath, ['--input-type=module', '-e', script, folder, config], { encoding: 'utf8' }))
  const pod = loaded('')
  t.same(pod.headers, bearer(SECRET))
  t.ok(pod.packages.includes('undici'))
  t.same(pod.packages.filter((name: string) => /kubernetes|openid|oauth|jose|js-yaml|ajv|hpagent|socks|^ws$/.test(name)), [])
  t.ok(['@kubernetes/client-node', 'openid-client'].every((name) => loaded(join(folder, 'config')).packages.includes(name)))
})

t.test('tokens and certificates are read again after half a minute, and at once when they were refused; connections are kept while certificates are the same', async (t) => {
  const now = performance.now.bind(performance)
  let skippedMs = 0
  t.intercept(performance, 'now', { value: () => now() + skippedMs })
  const [one, two] = [certify(['127.0.0.1'], new Date()), certify(['127.0.0.1'], new Date())]
  const folder = t.testdir({ config: JSON.stringify(kubeconfig({ 'certificate-authority': 'ca.crt' }, { tokenFile: 'token' })), 'ca.crt': one.cert, token: 'one\n' })
  const put = (name: string, text: string) => {
    writeFileSync(join(folder, 'next'), text)
    renameSync(join(folder, 'next'), join(folder, name))
  }
  const credentials = await openCredentials(join(folder, 'config'), {})
  t.teardown(() => credentials.close())
  const first = await credentials.connection()
  t.same(first.headers, { authorization: 'Bearer one' })
  put('token', 'two\n')
  t.same((await credentials.connection()).headers, { authorization: 'Bearer one' })
  const second = await credentials.connection(first)
  t.same(second.headers, { authorization: 'Bearer two' })
  t.equal(second.dispatcher, first.dispatcher)
  put('token', 'another')
  t.equal(await credentials.connection(first), second, 'whose refusal comes later has what was read since')
  put('token', 'three\n')
  put('ca.crt', two.cert)
  t.equal((await credentials.connection()).dispatcher, first.dispatcher)
  skippedMs += 31_000
  const later = await credentials.connection()
  t.same(later.headers, { authorization: 'Bearer three' })
  t.not(later.dispatcher, first.dispatcher)
  put('token', '\n')
  skippedMs += 31_000
  t.equal(await credentials.connection(), later, 'what was not refused is good until another is there')
  await t.rejects(credentials.connection(later), { message: /token is empty: put the credential there/ })
  await t.rejects(credentials.connection(), { message: /token is empty/ }, 'what was refused is not used again')
  put('token', 'four')
  t.same((await credentials.connection()).headers, { authorization: 'Bearer four' }, 'a failure is not kept')
})

/** An HTTP proxy that tunnels (CONNECT), and where to. */
async function openTunnel(t: Test): Promise<{ url: string; seen: string[] }> {
  const seen: string[] = []
  const server = createServer().listen(0, '127.0.0.1')
  server.on('connect', ({ url = '' }, client) => {
    seen.push(url)
    const onward = connect(Number(url.split(':')[1]), '127.0.0.1', () => client.write('HTTP/1.1 200 OK\r\n\r\n'))
    pipeline(client, onward, client, () => {})
  })
  await once(server, 'listening')
  t.teardown(() => new Promise((resolve) => server.close(resolve)))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen }
}

t.test('a real API server knows us by certificate, token, file, plugin and ServiceAccount, and is itself known by its authority', async (t) => {
  const plane = await ownKubernetes(t)
  if (!plane) return
  const api = await openApi(plane.kubeconfig)
  t.teardown(() => api.close())
  const folder = t.testdir({ token: `${api.token}\n` })
  const at = (name: string) => join(folder, name)
  const pki = (name: string) => join(dirname(plane.kubeconfig), name)
  const ca = { server: api.server, 'certificate-authority': pki('ca.crt') }

  async function whoAmI(cluster: object, user: object): Promise<string> {
    writeFileSync(at('config'), JSON.stringify(kubeconfig(cluster, user)))
    return userNameOf(at('config'), { PATH })
  }

  const certificate = { 'client-certificate': pki('admin.crt'), 'client-key': pki('admin.key') }
  const issued = { clientCertificateData: readFileSync(pki('admin.crt'), 'utf8'), clientKeyData: readFileSync(pki('admin.key'), 'utf8') }
  writeFileSync(at('issued.json'), JSON.stringify({ apiVersion: V1, status: issued }))
  t.equal(await userNameOf(plane.kubeconfig, {}), 'admin')
  t.equal(await userNameOf(null, { KUBECONFIG: plane.kubeconfig }), 'admin')
  t.equal(await whoAmI(ca, { token: api.token }), 'admin')
  t.equal(await whoAmI(ca, { token: 'wrong', tokenFile: at('token') }), 'admin')
  t.equal(await whoAmI(ca, certificate), 'admin-by-certificate')
  t.equal(await whoAmI(ca, { exec: { apiVersion: V1, command: 'cat', args: [at('issued.json')] } }), 'admin-by-certificate')
  t.equal(await whoAmI(ca, { ...certificate, as: 'jane' }), 'jane')
  t.equal(await whoAmI({ server: api.server, 'insecure-skip-tls-verify': true }, { token: api.token }), 'admin')
  t.equal(await whoAmI({ ...ca, 'tls-server-name': 'kubernetes.default.svc' }, { token: api.token }), 'admin')
  await t.rejects(whoAmI({ ...ca, 'tls-server-name': 'example.com' }, { token: api.token }))
  await t.rejects(whoAmI({ server: api.server }, { token: api.token }), 'an authority that nobody named')
  await t.rejects(whoAmI(ca, { token: 'wrong' }))

  const proxy = await openTunnel(t)
  t.equal(await whoAmI({ ...ca, 'proxy-url': proxy.url }, certificate), 'admin-by-certificate')
  t.same(proxy.seen, [new URL(api.server).host], 'by way of the proxy')

  const account = '/api/v1/namespaces/default/serviceaccounts'
  await api.request('POST', account, { metadata: { name: 'pod' } })
  const { body } = await api.request('POST', `${account}/pod/token`, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} })
  const pod = t.testdir({ token: body.status.token, 'ca.crt': readFileSync(pki('ca.crt'), 'utf8'), namespace: 'default' })
  const { hostname, port } = new URL(api.server)
  t.equal(await userNameOf(null, { KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port }, pod), 'system:serviceaccount:default:pod')
})
