/** How the API server and a user of it are found, and that a real one is reached as that user. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { RequestOptions } from 'node:https'
import { connect, type AddressInfo } from 'node:net'
import { delimiter, dirname, join } from 'node:path'
import { pipeline } from 'node:stream'
import t, { type Test } from 'tap'
import { openClient } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openExecPlugin } from '../../../src/backends/resources/kubernetes/credentials/exec-plugin.ts'
import { openKubeconfig } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig.ts'
import { findKubeconfigFiles } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig-files.ts'
import type { Exec } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig-schema.ts'
import { openServiceAccount } from '../../../src/backends/resources/kubernetes/credentials/service-account.ts'
import { certify } from '../../egress/certificate.ts'
import { openApi } from '../../servers/kube/api.ts'
import { ownKubernetes } from '../../servers/kubernetes.ts'

const PATH = process.env['PATH'] ?? ''
const SECRET = 'hunter2'
const V1 = 'client.authentication.k8s.io/v1'
/** A plugin that prints a token made of what it was given. */
const PRINTS_ITS_INFO = `#!/bin/sh
printf '{"apiVersion":"%s","status":{"token":"%s"}}' "$(printf '%s' "$KUBERNETES_EXEC_INFO" | sed 's/.*"apiVersion":"\\([^"]*\\)".*/\\1/')" "$A$*/$(printf '%s' "$KUBERNETES_EXEC_INFO" | base64 | tr -d '\\n')"
`
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** A kubeconfig whose current context joins that cluster and that user. */
function kubeconfig(cluster: object, user: object | null, context: object = {}): object {
  return {
    clusters: [{ name: 'c', cluster: { server: 'https://api.example.com:6443', ...cluster } }],
    users: user === null ? null : [{ name: 'u', user }],
    contexts: [{ name: 'x', context: { cluster: 'c', ...(user !== null && { user: 'u' }), ...context } }],
    'current-context': 'x',
  }
}

const read = (...documents: (object | string)[]) => readIn('/etc', {}, ...documents)

const readIn = (folder: string, environment: Record<string, string>, ...documents: (object | string)[]) =>
  openKubeconfig(documents.map((document, at) => ({ path: `${folder}/kube${at}/config`, text: typeof document === 'string' ? document : JSON.stringify(document) })), environment)

const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

t.test('a kubeconfig says which cluster, which user and which namespace', async (t) => {
  const folder = t.testdir({ kube0: { 'ca.crt': 'CA', 'u.crt': 'CERT', token: 'of the file\n', bin: { plugin: PRINTS_ITS_INFO } } })
  const at = (name: string) => join(folder, 'kube0', name)
  chmodSync(at('bin/plugin'), 0o755)
  const nobody = { server: new URL('https://api.example.com:6443'), proxy: null, namespace: null, tls: {}, headers: {} }
  const CASES: [string, Parameters<typeof kubeconfig>, object][] = [
    ['a server, no user', [{}, null], nobody],
    ['a path before all others', [{ server: 'https://h/k8s/clusters/a/' }, null], { ...nobody, server: new URL('https://h/k8s/clusters/a/') }],
    ['the namespace', [{}, {}, { namespace: ' acme ' }], { ...nobody, namespace: 'acme' }],
    ['an authority, beside the file', [{ 'certificate-authority': 'ca.crt' }, {}], { ...nobody, tls: { ca: 'CA' } }],
    ['an authority without a user', [{ 'certificate-authority': 'ca.crt' }, null], { ...nobody, tls: { ca: 'CA' } }],
    ['an absolute path', [{ 'certificate-authority': at('ca.crt') }, {}], { ...nobody, tls: { ca: 'CA' } }],
    ['data stand before a file', [{ 'certificate-authority': 'ca.crt', 'certificate-authority-data': base64('PEM') }, {}], { ...nobody, tls: { ca: 'PEM' } }],
    ['no check, another name, a proxy', [{ 'insecure-skip-tls-verify': true, 'tls-server-name': 'n', 'proxy-url': 'http://p:3128' }, {}], { ...nobody, tls: { rejectUnauthorized: false, servername: 'n' }, proxy: 'http://p:3128' }],
    ['plain HTTP, where it is said', [{ server: 'http://h', 'insecure-skip-tls-verify': true }, {}], { ...nobody, server: new URL('http://h'), tls: { rejectUnauthorized: false } }],
    ['a token', [{}, { token: SECRET }], { ...nobody, headers: bearer(SECRET) }],
    ['a token in a file', [{}, { token: SECRET, tokenFile: 'token' }], { ...nobody, headers: bearer('of the file') }],
    ['a certificate', [{}, { 'client-certificate': 'u.crt', 'client-key-data': base64('KEY') }], { ...nobody, tls: { cert: 'CERT', key: 'KEY' } }],
    ['a name and a password', [{}, { username: 'a', password: SECRET }], { ...nobody, headers: { authorization: `Basic ${base64(`a:${SECRET}`)}` } }],
    ['a name without a password', [{}, { username: 'a' }], { ...nobody, headers: { authorization: `Basic ${base64('a:')}` } }],
    ['somebody else', [{}, { token: SECRET, as: 'jane' }], { ...nobody, headers: { ...bearer(SECRET), 'impersonate-user': 'jane' } }],
    ['what kubectl writes for nothing', [{ 'tls-server-name': '', 'proxy-url': null }, { token: '', as: '', exec: null, 'auth-provider': null, 'as-groups': null }], nobody],
    ['a plugin of PATH', [{}, { exec: { apiVersion: V1, command: 'plugin', args: null, env: null } }], { ...nobody, headers: bearer(`/${base64(JSON.stringify({ apiVersion: V1, kind: 'ExecCredential', spec: { interactive: false } }))}`) }],
    ['a plugin that is not needed', [{}, { token: SECRET, exec: { apiVersion: V1, command: './no-such-plugin' } }], { ...nobody, headers: bearer(SECRET) }],
  ]
  for (const [name, given, wanted] of CASES) {
    const { read, ...access } = readIn(folder, { PATH: `${at('bin')}${delimiter}${PATH}` }, kubeconfig(...given))
    t.same({ ...access, ...(await read(false)) }, wanted, name)
  }

  const cluster = { 'certificate-authority': 'ca.crt', 'tls-server-name': 'n', extensions: [{ name: 'client.authentication.k8s.io/exec', extension: { audience: 'a' } }] }
  const exec = { apiVersion: `${V1}beta1`, command: './bin/plugin', args: ['-v'], env: [{ name: 'A', value: 'b' }], provideClusterInfo: true, interactiveMode: 'IfAvailable', installHint: 'h' }
  const { authorization = '' } = (await readIn(folder, { PATH }, kubeconfig(cluster, { exec })).read(false)).headers
  const [told = '', info = ''] = authorization.slice('Bearer '.length).split('/')
  t.equal(told, 'b-v', 'a plugin beside the file')
  const spec = { cluster: { server: 'https://api.example.com:6443', 'tls-server-name': 'n', 'certificate-authority-data': base64('CA'), config: { audience: 'a' } }, interactive: false }
  t.same(JSON.parse(Buffer.from(info, 'base64').toString()), { apiVersion: `${V1}beta1`, kind: 'ExecCredential', spec }, 'which is told of the cluster')
})

t.test('of several kubeconfigs the first wins, name by name, and paths are beside the file that names them', async (t) => {
  const folder = t.testdir({ kube0: { token: 'first' }, kube1: { 'ca.crt': 'second' } })
  const first = { users: [{ name: 'u', user: { tokenFile: 'token' } }], 'current-context': '' }
  const second = kubeconfig({ 'certificate-authority': 'ca.crt' }, { token: SECRET }, { namespace: 'second' })
  const third = { ...kubeconfig({ server: 'https://third' }, {}, { namespace: 'third' }), 'current-context': 'other' }
  const { server, namespace, read: readNow } = readIn(folder, {}, first, second, third)
  t.same([server.host, namespace], ['api.example.com:6443', 'second'])
  t.same(await readNow(false), { tls: { ca: 'second' }, headers: bearer('first') })
  t.match(read('', second), { namespace: 'second' }, 'an empty file says nothing')
  t.match(read(third, kubeconfig({}, {}), { contexts: [{ name: 'other', context: { cluster: 'c', namespace: 'other' } }] }), { namespace: 'other' }, 'the first current-context wins')
})

t.test('a file of the kubeconfig that cannot be read is named', async (t) => {
  const folder = t.testdir({ kube0: { folder: {} } })
  await t.rejects(readIn(folder, {}, kubeconfig({ 'certificate-authority': 'ca.crt' }, {})).read(false), { message: /^RESOURCES_URL: .*kube0\/ca\.crt is not there: put it there, or correct what names it\.$/ })
  await t.rejects(readIn(folder, {}, kubeconfig({}, { 'client-certificate': 'folder', 'client-key': 'folder' })).read(false), { message: /kube0\/folder has to be a regular file/ })
  await t.rejects(readIn(folder, {}, kubeconfig({}, { tokenFile: 'token' })).read(false), { message: /kube0\/token is not there: put it there/ })
})

t.test('YAML is read as kubectl reads it', async (t) => {
  const text = `
defaults: &defaults { insecure-skip-tls-verify: yes }
clusters: [{ name: c, cluster: { <<: *defaults, server: https://h } }]
contexts: [{ name: x, context: { cluster: c } }]
current-context: x`
  t.match(await read(text).read(false), { tls: { rejectUnauthorized: false } })
})

t.test('what cannot be used is refused in one sentence that says what to do and shows no secret', async (t) => {
  const exec = (members: object) => kubeconfig({}, { token: SECRET, exec: { apiVersion: V1, command: 'p', args: [SECRET], ...members } })
  const CASES: [string, object | string, RegExp][] = [
    ['no YAML', `users:\n- name: u\n  user: {token: ${SECRET}\n`, /\/etc\/kube0\/config is no YAML: correct it from line \d on/],
    ['a stray text', `a: b\n${SECRET}`, /is no YAML/],
    ['aliases of aliases', `a: &a [${SECRET}, ${SECRET}]\nb: &b [${'*a,'.repeat(99)}]\nc: [${'*b,'.repeat(99)}]`, /is no YAML/],
    ['an alias of itself', `a: &a { b: *a, c: ${SECRET} }`, /is no YAML/],
    ['no map', `- ${SECRET}`, /is no kubeconfig: it has to be a map/],
    ['no context', { ...kubeconfig({}, { token: SECRET }), 'current-context': null }, /has no current-context: choose one/],
    ['a context that is not there', { ...kubeconfig({}, { token: SECRET }), 'current-context': 'other' }, /names the context other and does not have it/],
    ['a cluster that is not there', kubeconfig({}, {}, { cluster: 'other' }), /names the cluster other and does not have it/],
    ['a user that is not there', kubeconfig({}, {}, { user: 'other' }), /names the user other and does not have it/],
    ['no server', kubeconfig({ server: '' }, { token: SECRET }), /cluster c of the kubeconfig cannot be used: server must not be empty\.$/],
    ['a server without a scheme', kubeconfig({ server: 'host:6443' }, {}), /its server must begin with https:\/\//],
    ['an authority that is not to be asked', kubeconfig({ 'insecure-skip-tls-verify': true, 'certificate-authority': 'ca.crt' }, { token: SECRET }), /it has both insecure-skip-tls-verify and a certificate-authority: leave one of them out/],
    ['plain HTTP', kubeconfig({ server: 'http://host' }, { token: SECRET }), /its server has no TLS: use https:\/\/, or set insecure-skip-tls-verify/],
    ['SOCKS', kubeconfig({ 'proxy-url': `socks5://u:${SECRET}@p` }, {}), /its proxy-url is not supported: it may be http or https/],
    ['a number for a token', kubeconfig({}, { token: 42 }), /user u of the kubeconfig cannot be used: token must be a string\.$/],
    ['a text for a flag', kubeconfig({ 'insecure-skip-tls-verify': 'maybe' }, {}), /insecure-skip-tls-verify must be true or false/],
    ['a certificate alone', kubeconfig({}, { 'client-certificate': 'a', token: SECRET }), /give both/],
    ['a plugin of old', kubeconfig({}, { 'auth-provider': { name: 'gcp', config: { 'access-token': SECRET } } }), /user u of the kubeconfig cannot be used: auth-provider\.name must be "oidc"/],
    ['groups of somebody else', kubeconfig({}, { as: 'jane', 'as-groups': ['g'] }), /as-groups is not supported: use as alone/],
    ['an unknown version', exec({ apiVersion: 'client.authentication.k8s.io/v1alpha1' }), /user u of the kubeconfig cannot be used: exec\.apiVersion must be one of client\.authentication\.k8s\.io\/v1, client\.authentication\.k8s\.io\/v1beta1\.$/],
    ['a plugin that asks', exec({ interactiveMode: 'Always' }), /exec\.interactiveMode must be one of Never, IfAvailable/],
    ['no command', exec({ command: null }), /exec\.command must be a string/],
    ['args that are none', exec({ args: SECRET }), /exec\.args must be a list/],
    ['a number among the args', exec({ args: [SECRET, 7] }), /exec\.args\[1\] must be a string/],
    ['env without a name', exec({ env: [{ value: SECRET }] }), /exec\.env\[0\]\.name is required/],
    ['a provider without an issuer', kubeconfig({}, { 'auth-provider': { name: 'oidc', config: { 'client-id': 'c', 'refresh-token': SECRET } } }), /auth-provider\.config\.idp-issuer-url is required/],
    ['an issuer without TLS', kubeconfig({}, { 'auth-provider': { name: 'oidc', config: { 'client-id': 'c', 'idp-issuer-url': 'http://issuer', 'refresh-token': SECRET } } }), /idp-issuer-url must begin with https:\/\//],
    ['exec that is none', kubeconfig({}, { exec: SECRET }), /exec must be an object/],
  ]
  for (const [name, document, wanted] of CASES) {
    try {
      read(document)
      t.fail(name)
    } catch (error) {
      const { message, cause } = error as Error
      t.match(message, wanted, name)
      t.match(message, /^RESOURCES_URL: [^\n]+\.$/, name)
      t.notMatch(`${message} ${String(cause)}`, SECRET, name)
    }
  }
})

t.test('a kubeconfig is the one that is given, else those of KUBECONFIG, else that of the home', async (t) => {
  const root = t.testdir({ given: 'given', a: 'a', b: 'b', '.kube': { config: 'own' }, empty: {}, large: 'x'.repeat(1024 * 1024 + 1) })
  const at = (name: string) => join(root, name)
  const found = async (given: string | null, environment: Record<string, string>) => (await findKubeconfigFiles(given && at(given), environment)).map(({ text }) => text)
  const list = (...names: string[]) => ({ HOME: root, KUBECONFIG: names.map((name) => name && at(name)).join(delimiter) })
  t.same(await found('given', list('a')), ['given'])
  t.same(await found(null, list('a', '', 'missing', 'b')), ['a', 'b'])
  t.same(await found(null, { HOME: root }), ['own'])
  t.same(await found(null, { HOME: root, KUBECONFIG: '' }), ['own'])
  t.same(await found(null, { HOME: at('empty') }), [])
  t.same(await found(null, {}), [])
  await t.rejects(found(null, list('missing', 'too')), { message: /^RESOURCES_URL: there is no kubeconfig at .*missing or .*too: put one there, or correct KUBECONFIG\.$/ })
  await t.rejects(found('missing', {}), { message: /put one there, or correct kubeconfig=…\.$/ })
  await t.rejects(found('large', {}), { message: /large has to be a regular file of at most 1 MiB\.$/ })
  await t.rejects(found('empty', {}), { message: /empty has to be a regular file/ })
  execFileSync('mkfifo', [at('pipe')])
  await t.rejects(found('pipe', {}), { message: /pipe has to be a regular file/ })
  await t.rejects(openCredentials(null, {}, at('empty')), { message: /^RESOURCES_URL: nothing says where the API server is: name a kubeconfig/ })
})

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

/** What a plugin issues for the cluster with that authority. */
function issuer(...of: Parameters<typeof openExecPlugin>) {
  const authenticate = openExecPlugin(...of)
  return async (isRefused: boolean, ca: string | null) => {
    const options: RequestOptions & { headers: Record<string, string> } = { headers: {}, ...(ca !== null && { ca }) }
    await authenticate(options, isRefused)
    return { authorization: options.headers['Authorization'] ?? null, cert: options.cert ?? null, key: options.key ?? null }
  }
}

/** A plugin that records what it was given, and prints what `answer` has. */
function plugin(t: Test, answer: object, cluster: object | null = null, apiVersion: Exec['apiVersion'] = V1) {
  const folder = t.testdir({
    plugin: '#!/bin/sh\ncat >stdin\necho "$A" "$B" "$@" >>runs\necho "$KUBERNETES_EXEC_INFO" >info\ncat answer\n',
    answer: JSON.stringify({ apiVersion, kind: 'ExecCredential', ...answer }),
  })
  chmodSync(join(folder, 'plugin'), 0o755)
  const at = (name: string) => join(folder, name)
  const exec: Exec = { apiVersion, command: 'sh', args: ['-c', `cd '${folder}' && exec ./plugin "$@"`, 'sh', SECRET], env: [{ name: 'A', value: 'a' }] }
  const issue = issuer(exec, cluster, { PATH, A: 'of the process', B: 'b' })
  const runs = () => readFileSync(at('runs'), 'utf8').trim().split('\n')
  return { issue, runs, info: () => JSON.parse(readFileSync(at('info'), 'utf8')), answers: (status: object) => writeFileSync(at('answer'), JSON.stringify({ apiVersion, status })) }
}

t.test('a credential plugin gets its arguments, the environment and the cluster, and what it issued is kept', async (t) => {
  for (const apiVersion of [V1, `${V1}beta1`] as const) {
    const { issue, runs, info, answers } = plugin(t, { status: { token: 'one' } }, { server: 'https://h' }, apiVersion)
    t.same(await issue(false, 'PEM'), { authorization: 'Bearer one', cert: null, key: null })
    t.same(runs(), [`a b ${SECRET}`])
    t.same(info(), { apiVersion, kind: 'ExecCredential', spec: { cluster: { server: 'https://h', 'certificate-authority-data': base64('PEM') }, interactive: false } })
    answers({ clientCertificateData: 'CERT', clientKeyData: 'KEY' })
    const anew = { authorization: null, cert: 'CERT', key: 'KEY' }
    t.match(await issue(false, 'PEM'), { authorization: 'Bearer one' })
    t.same(await issue(true, 'PEM'), anew, 'what was refused is issued anew')
    t.same(await issue(false, 'PEM'), anew)
    t.equal(runs().length, 2)
    answers({ token: 'two', clientCertificateData: 'CERT', clientKeyData: 'KEY' })
    t.same(await issue(true, 'PEM'), { ...anew, authorization: 'Bearer two' }, 'a token beside a certificate')
  }
})

t.test('what a plugin issued is issued anew shortly before it expires', async (t) => {
  const until = (ms: number) => new Date(Date.now() + ms).toISOString()
  const { issue, runs, answers } = plugin(t, { status: { token: 'one', expirationTimestamp: until(30_000) } })
  await issue(false, null)
  answers({ token: 'two', expirationTimestamp: until(3600_000) })
  t.match(await issue(false, null), { authorization: 'Bearer two' })
  t.match(await issue(false, null), { authorization: 'Bearer two' })
  t.equal(runs().length, 2)
})

t.test('a plugin that fails is named, with its exit code, and nothing that it was told or printed is shown', async (t) => {
  const shell = (script: string, more: Partial<Exec> = {}): Exec => ({ apiVersion: V1, command: 'sh', args: ['-c', script, SECRET], installHint: 'Get it\n  from example.com', ...more })
  const CASES: [Exec, RegExp][] = [
    [shell(`echo ${SECRET}; echo ${SECRET} >&2; exit 7`), /plugin sh ended with exit code 7: run it by hand to see why\.$/],
    [shell('', { command: 'there-is-none' }), /plugin there-is-none was not found: Get it from example\.com\.$/],
    [shell('', { command: '/etc' }), /plugin \/etc could not run \(EACCES\)\.$/],
    [shell('', { args: [`${SECRET}\0`] }), /plugin sh could not run \(ERR_INVALID_ARG_VALUE\)\.$/],
    [shell('kill -9 $$'), /could not run \(SIGKILL\)\.$/],
    [shell(`echo ${SECRET}; sleep 5 & sleep 5`), /had not ended after 0\.3 s\.$/],
    [shell('yes hunter2'), /printed more than 1 MiB\.$/],
    [shell('yes hunter2 >&2'), /printed more than 1 MiB\.$/],
    [shell(`echo ${SECRET}`), /printed no JSON\.$/],
    [shell('echo null'), /another version/],
    [shell(`echo '{"apiVersion":"${V1}beta1","status":{"token":"${SECRET}"}}'`), /another version than client\.authentication\.k8s\.io\/v1\.$/],
    [shell(`echo '{"apiVersion":"${V1}"}'`), /issued neither a token nor a certificate with its key\.$/],
    [shell(`echo '{"apiVersion":"${V1}","status":{"token":"${SECRET}","clientKeyData":"k"}}'`), /issued neither/],
  ]
  for (const [exec, wanted] of CASES) {
    const issue = issuer(exec, null, { PATH }, String(wanted).includes('0\\.3') ? 300 : undefined)
    for (const isRefused of [false, true]) {
      const { message, cause } = (await issue(isRefused, null).then((issued) => new Error(JSON.stringify(issued)), (error: unknown) => error)) as Error
      t.match(message, wanted)
      t.notMatch(`${message} ${String(cause)}`, SECRET)
    }
  }
})

t.test('a plugin that hangs is killed, and the next one may do better', async (t) => {
  const folder = t.testdir({ plugin: `#!/bin/sh\ncd "$(dirname "$0")"\nif [ ! -e pid ]; then echo $$ >pid; exec sleep 600; fi\necho '{"apiVersion":"${V1}","status":{"token":"one"}}'\n` })
  chmodSync(join(folder, 'plugin'), 0o755)
  const issue = issuer({ apiVersion: V1, command: join(folder, 'plugin') }, null, { PATH }, 1000)
  await t.rejects(issue(false, null), { message: /had not ended after 1 s\.$/ })
  t.throws(() => process.kill(Number(readFileSync(join(folder, 'pid'), 'utf8')), 0), { code: 'ESRCH' })
  t.match(await issue(false, null), { authorization: 'Bearer one' })
})

t.test('of many requests whose credentials are refused, one after the other, the first runs the plugin, and a plugin that then fails takes nothing from the others', async (t) => {
  const now = performance.now.bind(performance)
  let skippedMs = 0
  t.intercept(performance, 'now', { value: () => now() + skippedMs })
  const answer = (token: string) => JSON.stringify({ apiVersion: V1, status: { token, expirationTimestamp: new Date(Date.now() + 10_000).toISOString() } })
  const exec = { apiVersion: V1, command: './plugin', interactiveMode: 'Never' }
  const folder = t.testdir({ config: JSON.stringify(kubeconfig({}, { exec })), plugin: '#!/bin/sh\ncd "$(dirname "$0")" && echo run >>runs && cat answer\n', answer: answer('one') })
  chmodSync(join(folder, 'plugin'), 0o755)
  const runs = () => readFileSync(join(folder, 'runs'), 'utf8').trim().split('\n').length
  const credentials = await openCredentials(join(folder, 'config'), { PATH })
  t.teardown(() => credentials.close())
  const first = await credentials.connection()
  writeFileSync(join(folder, 'answer'), answer('two'))
  const together = await Promise.all([credentials.connection(first), credentials.connection(first)])
  t.same(together.map(({ headers }) => headers), [bearer('two'), bearer('two')])
  for (const _ of ['late', 'very late']) t.same((await credentials.connection(first)).headers, { authorization: 'Bearer two' })
  t.equal(runs(), 2)
  // It expires soon, so that another is asked for; this one is good meanwhile.
  writeFileSync(join(folder, 'answer'), 'no answer')
  skippedMs += 31_000
  const held = await credentials.connection()
  t.same(held.headers, { authorization: 'Bearer two' })
  t.equal(runs(), 3)
  await t.rejects(credentials.connection(held), { message: /printed no JSON/ })
  writeFileSync(join(folder, 'answer'), answer('three'))
  t.same((await credentials.connection(held)).headers, { authorization: 'Bearer three' })
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
  await t.rejects(credentials.connection(later), { message: /token is empty: it has to hold a token\.$/ })
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
    return nameOf(at('config'), { PATH })
  }
  async function nameOf(...of: Parameters<typeof openCredentials>): Promise<string> {
    const credentials = await openCredentials(...of)
    try {
      const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }
      const { body } = await openClient(credentials).request<{ status?: { userInfo: { username: string } } }>('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', { body: review })
      return body.status?.userInfo.username ?? String(body.message)
    } finally {
      await credentials.close()
    }
  }

  const certificate = { 'client-certificate': pki('admin.crt'), 'client-key': pki('admin.key') }
  const issued = { clientCertificateData: readFileSync(pki('admin.crt'), 'utf8'), clientKeyData: readFileSync(pki('admin.key'), 'utf8') }
  writeFileSync(at('issued.json'), JSON.stringify({ apiVersion: V1, status: issued }))
  t.equal(await nameOf(plane.kubeconfig, {}), 'admin')
  t.equal(await nameOf(null, { KUBECONFIG: plane.kubeconfig }), 'admin')
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
  t.equal(await nameOf(null, { KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port }, pod), 'system:serviceaccount:default:pod')
})
