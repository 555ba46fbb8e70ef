/** Credential plugins: what they get, what is kept of their answers, and how they fail. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openKubeconfig } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig.ts'
import { base64, bearer, kubeconfig, V1 } from './kubeconfig-document.ts'

const PATH = process.env['PATH'] ?? ''
const SECRET = 'hunter2'

/** What the plugin of a kubeconfig issues, as sent to the API server. */
function issuer(exec: object, environment: Record<string, string>, timeoutMs?: number, cluster: object = {}) {
  const { read } = openKubeconfig([{ path: '/etc/config', text: JSON.stringify(kubeconfig(cluster, { exec: { apiVersion: V1, ...exec } })) }], environment, timeoutMs)
  return async (isRefused: boolean) => {
    const { tls, headers } = await read(isRefused)
    return { authorization: headers['authorization'] ?? null, cert: tls.cert ?? null, key: tls.key ?? null }
  }
}

/** A plugin that records what it was given, and prints what `answer` has. */
function plugin(t: Test, status: object, more: object = {}) {
  const folder = t.testdir({
    plugin: '#!/bin/sh\ncat >stdin\necho "$A" "$B" "$@" >>runs\necho "$KUBERNETES_EXEC_INFO" >info\ncat answer\n',
    answer: JSON.stringify({ apiVersion: V1, kind: 'ExecCredential', status }),
  })
  chmodSync(join(folder, 'plugin'), 0o755)
  const at = (name: string) => join(folder, name)
  const exec = { command: 'sh', args: ['-c', `cd '${folder}' && exec ./plugin "$@"`, 'sh', SECRET], env: [{ name: 'A', value: 'a' }], ...more }
  const issue = issuer(exec, { PATH, A: 'of the process', B: 'b' }, undefined, { server: 'https://h', 'certificate-authority-data': base64('PEM') })
  const runs = () => readFileSync(at('runs'), 'utf8').trim().split('\n')
  return { issue, runs, info: () => JSON.parse(readFileSync(at('info'), 'utf8')), answers: (next: object) => writeFileSync(at('answer'), JSON.stringify({ apiVersion: V1, status: next })) }
}

t.test('a credential plugin gets its arguments, the environment and the cluster, and what it issued is kept', async (t) => {
  for (const apiVersion of [V1, `${V1}beta1`]) {
    const { issue, runs, info, answers } = plugin(t, { token: 'one' }, { apiVersion, provideClusterInfo: true })
    t.same(await issue(false), { authorization: 'Bearer one', cert: null, key: null })
    t.same(runs(), [`a b ${SECRET}`])
    t.same(info(), { apiVersion, kind: 'ExecCredential', spec: { cluster: { server: 'https://h', 'certificate-authority-data': base64('PEM') }, interactive: false } })
    answers({ clientCertificateData: 'CERT', clientKeyData: 'KEY' })
    const anew = { authorization: null, cert: 'CERT', key: 'KEY' }
    t.match(await issue(false), { authorization: 'Bearer one' })
    t.same(await issue(true), anew, 'what was refused is issued anew')
    t.same(await issue(false), anew)
    t.equal(runs().length, 2)
    answers({ token: 'two', clientCertificateData: 'CERT', clientKeyData: 'KEY' })
    t.same(await issue(true), { ...anew, authorization: 'Bearer two' }, 'a token beside a certificate')
  }
})

t.test('what a plugin issued is issued anew when it has expired', async (t) => {
  const until = (ms: number) => new Date(Date.now() + ms).toISOString()
  const { issue, runs, answers } = plugin(t, { token: 'one', expirationTimestamp: until(-1) })
  await issue(false)
  answers({ token: 'two', expirationTimestamp: until(3600_000) })
  t.match(await issue(false), { authorization: 'Bearer two' })
  t.match(await issue(false), { authorization: 'Bearer two' })
  t.equal(runs().length, 2)
})

t.test('a failed plugin is named, without its input or its output', async (t) => {
  const shell = (script: string, more: object = {}) => ({ command: 'sh', args: ['-c', script, SECRET], installHint: 'Get it from example.com', ...more })
  const failed = /plugin sh failed, or issued nothing within 30 s: run it by hand to see why\.$/
  const CASES: [object, RegExp][] = [
    [shell(`echo ${SECRET}; echo ${SECRET} >&2; exit 7`), failed],
    [shell('', { command: 'there-is-none' }), /plugin there-is-none was not found: Get it from example\.com\.$/],
    [shell('', { command: '/etc' }), /plugin \/etc failed, or issued nothing/],
    [shell('', { args: [`${SECRET}\0`] }), failed],
    [shell('kill -9 $$'), failed],
    [shell(`echo ${SECRET}; sleep 5 & sleep 5`), /issued nothing within 0\.3 s/],
    [shell('yes hunter2'), failed],
    [shell('yes hunter2 >&2'), failed],
    [shell(`echo ${SECRET}`), failed],
    [shell('echo null'), /issued neither/],
    [shell(`echo '{"apiVersion":"${V1}"}'`), failed],
    [shell(`echo '{"apiVersion":"${V1}","status":{"username":"${SECRET}","clientKeyData":"k"}}'`), /issued neither a token nor a certificate with its key\.$/],
  ]
  for (const [exec, wanted] of CASES) {
    const issue = issuer(exec, { PATH }, String(wanted).includes('0\\.3') ? 300 : undefined)
    for (const isRefused of [false, true]) {
      const { message, cause } = (await issue(isRefused).then((issued) => new Error(JSON.stringify(issued)), (error: unknown) => error)) as Error
      t.match(message, wanted)
      t.notMatch(`${message} ${String(cause)}`, SECRET)
    }
  }
})

t.test('a plugin that hangs is killed, and the next one may do better', async (t) => {
  const folder = t.testdir({ plugin: `#!/bin/sh\ncd "$(dirname "$0")"\nif [ ! -e pid ]; then echo $$ >pid; exec sleep 600; fi\necho '{"apiVersion":"${V1}","status":{"token":"one"}}'\n` })
  chmodSync(join(folder, 'plugin'), 0o755)
  const issue = issuer({ command: join(folder, 'plugin') }, { PATH }, 1000)
  await t.rejects(issue(false), { message: /issued nothing within 1 s/ })
  t.throws(() => process.kill(Number(readFileSync(join(folder, 'pid'), 'utf8')), 0), { code: 'ESRCH' })
  t.match(await issue(false), { authorization: 'Bearer one' })
})

t.test('of many requests whose credentials are refused, one after the other, the first runs the plugin, and a plugin that then fails takes nothing from the others', async (t) => {
  const now = performance.now.bind(performance)
  let skippedMs = 0
  t.intercept(performance, 'now', { value: () => now() + skippedMs })
  const answer = (token: string) => JSON.stringify({ apiVersion: V1, status: { token, expirationTimestamp: new Date(Date.now() - 1).toISOString() } })
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
  // It has expired, so another is requested; until the server refuses this one, it is used.
  writeFileSync(join(folder, 'answer'), 'no answer')
  skippedMs += 31_000
  const held = await credentials.connection()
  t.same(held.headers, { authorization: 'Bearer two' })
  t.equal(runs(), 3)
  await t.rejects(credentials.connection(held), { message: /issued nothing/ })
  writeFileSync(join(folder, 'answer'), answer('three'))
  t.same((await credentials.connection(held)).headers, { authorization: 'Bearer three' })
})
