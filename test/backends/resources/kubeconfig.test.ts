/** Which cluster and user a kubeconfig names, and what is refused of one. */
import { execFileSync } from 'node:child_process'
import { chmodSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import t from 'tap'
import { findKubeconfigs, openCredentials, type ApiAccess } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openKubeconfig } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig.ts'
import { base64, bearer, kubeconfig, V1 } from './kubeconfig-document.ts'

const PATH = process.env['PATH'] ?? ''
const SECRET = 'hunter2'
/** A plugin that prints a token made of what it was given. */
const PRINTS_ITS_INFO = `#!/bin/sh
printf '{"apiVersion":"%s","status":{"token":"%s"}}' "$(printf '%s' "$KUBERNETES_EXEC_INFO" | sed 's/.*"apiVersion":"\\([^"]*\\)".*/\\1/')" "$A$*/$(printf '%s' "$KUBERNETES_EXEC_INFO" | base64 | tr -d '\\n')"
`

const read = (...documents: (object | string)[]) => readIn('/etc', {}, ...documents)

const readIn = (folder: string, environment: Record<string, string>, ...documents: (object | string)[]) =>
  openKubeconfig(documents.map((document, at) => ({ path: `${folder}/kube${at}/config`, text: typeof document === 'string' ? document : JSON.stringify(document) })), environment)

/** Without what is not set, and with texts for bytes. */
async function readAccess(access: ApiAccess): Promise<Awaited<ReturnType<ApiAccess['read']>>> {
  const { tls, headers } = await access.read(false)
  return { tls: JSON.parse(JSON.stringify(tls, (_, value) => (value?.type === 'Buffer' ? Buffer.from(value).toString() : value))), headers }
}

t.test('a kubeconfig says which cluster, which user and which namespace', async (t) => {
  const folder = t.testdir({ kube0: { 'ca.crt': 'CA', 'u.crt': 'CERT', token: 'of the file\n', bin: { plugin: PRINTS_ITS_INFO } } })
  const at = (name: string) => join(folder, 'kube0', name)
  chmodSync(at('bin/plugin'), 0o755)
  const nobody = { server: new URL('https://api.example.com:6443'), proxy: null, namespace: null, tls: {}, headers: {} }
  const CASES: [string, Parameters<typeof kubeconfig>, object][] = [
    ['a server, no user', [{}, null], nobody],
    ['a path before all others', [{ server: 'https://h/k8s/clusters/a/' }, null], { ...nobody, server: new URL('https://h/k8s/clusters/a') }],
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
    t.same({ ...access, ...(await readAccess({ ...access, read })) }, wanted, name)
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
  const access = readIn(folder, {}, first, second, third)
  t.same([access.server.host, access.namespace], ['api.example.com:6443', 'second'])
  t.same(await readAccess(access), { tls: { ca: 'second' }, headers: bearer('first') })
  t.match(read('', second), { namespace: 'second' }, 'an empty file says nothing')
  t.match(read(third, kubeconfig({}, {}), { contexts: [{ name: 'other', context: { cluster: 'c', namespace: 'other' } }] }), { namespace: 'other' }, 'the first current-context wins')
})

t.test('a file of the kubeconfig that cannot be read is named', async (t) => {
  const folder = t.testdir({ kube0: { folder: {} } })
  await t.rejects(readIn(folder, {}, kubeconfig({ 'certificate-authority': 'ca.crt' }, {})).read(false), { message: /^RESOURCES_URL: .*kube0\/ca\.crt is not there: put the credential there/ })
  await t.rejects(readIn(folder, {}, kubeconfig({}, { 'client-certificate': 'folder', 'client-key': 'folder' })).read(false), { message: /kube0\/folder has to be a regular file of at most 1 MiB/ })
  await t.rejects(readIn(folder, {}, kubeconfig({}, { tokenFile: 'token' })).read(false), { message: /kube0\/token is not there: put the credential there/ })
})

t.test('a credential of the wrong type is refused when it is used, without its value', async (t) => {
  await t.rejects(read(kubeconfig({}, { 'client-certificate-data': [SECRET], 'client-key-data': 42 })).read(false), { message: /^RESOURCES_URL: a credential of the kubeconfig cannot be read \(ERR_INVALID_ARG_TYPE\): correct it\.$/ })
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
    ['no YAML', `users:\n- name: u\n  user: {token: ${SECRET}\n`, /\/etc\/kube0\/config is no kubeconfig in YAML: correct it from line \d on/],
    ['a stray text', `a: b\n${SECRET}`, /is no kubeconfig in YAML/],
    ['aliases of aliases', `a: &a [${SECRET}, ${SECRET}]\nb: &b [${'*a,'.repeat(99)}]\nc: [${'*b,'.repeat(99)}]`, /is no kubeconfig in YAML/],
    ['an alias of itself', `a: &a { b: *a, c: ${SECRET} }`, /is no kubeconfig in YAML/],
    ['no map', `- ${SECRET}`, /has no current-context/],
    ['no context', { ...kubeconfig({}, { token: SECRET }), 'current-context': null }, /has no current-context: choose one/],
    ['a context that is not there', { ...kubeconfig({}, { token: SECRET }), 'current-context': 'other' }, /names the context other and has no valid one/],
    ['a cluster that is not there', kubeconfig({}, {}, { cluster: 'other' }), /names the cluster other and has no valid one/],
    ['a user that is not there', kubeconfig({}, {}, { user: 'other' }), /names the user other and has no valid one/],
    ['no server', kubeconfig({ server: '' }, { token: SECRET }), /names the cluster c and has no valid one/],
    ['a server without a scheme', kubeconfig({ server: 'host:6443' }, {}), /its server must begin with https:\/\//],
    ['an authority that is not to be asked', kubeconfig({ 'insecure-skip-tls-verify': true, 'certificate-authority': 'ca.crt' }, { token: SECRET }), /it has both insecure-skip-tls-verify and a certificate-authority: leave one of them out/],
    ['plain HTTP', kubeconfig({ server: 'http://host' }, { token: SECRET }), /its server has no TLS: use https:\/\/, or set insecure-skip-tls-verify/],
    ['SOCKS', kubeconfig({ 'proxy-url': `socks5://u:${SECRET}@p` }, {}), /its proxy-url is not supported: it must be http or https/],
    ['a certificate alone', kubeconfig({}, { 'client-certificate': 'a', token: SECRET }), /give both/],
    ['a plugin of old', kubeconfig({}, { 'auth-provider': { name: 'gcp', config: { 'access-token': SECRET } } }), /the context x of the kubeconfig cannot be used: auth-provider is not supported: use exec/],
    ['groups of somebody else', kubeconfig({}, { as: 'jane', 'as-groups': ['g'] }), /as-groups is not supported: use as alone/],
    ['an unknown version', exec({ apiVersion: 'client.authentication.k8s.io/v1alpha1' }), /exec\.apiVersion must be client\.authentication\.k8s\.io\/v1 or v1beta1\.$/],
    ['a plugin that asks', exec({ interactiveMode: 'Always' }), /exec\.interactiveMode must be Never or IfAvailable/],
    ['no command', exec({ command: null }), /exec\.command is missing/],
    ['exec that is none', kubeconfig({}, { exec: SECRET }), /exec\.apiVersion must be/],
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
  const found = async (given: string | null, environment: Record<string, string>) => (await findKubeconfigs(given && at(given), environment)).map(({ text }) => text)
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
