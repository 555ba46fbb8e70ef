/** Credential plugins: what they get, what is kept of their answers, and how they fail. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import type { RequestOptions } from 'node:https'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openCredentials } from '../../../src/backends/resources/kubernetes/credentials/credentials.ts'
import { openExecPlugin } from '../../../src/backends/resources/kubernetes/credentials/exec-plugin.ts'
import type { Exec } from '../../../src/backends/resources/kubernetes/credentials/kubeconfig-schema.ts'
import { base64, bearer, kubeconfig, V1 } from './kubeconfig-document.ts'

const PATH = process.env['PATH'] ?? ''
const SECRET = 'hunter2'

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

t.test('a failed plugin is named with its exit code, without its input or its output', async (t) => {
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
  // It expires soon, so another is requested; this one is valid meanwhile.
  writeFileSync(join(folder, 'answer'), 'no answer')
  skippedMs += 31_000
  const held = await credentials.connection()
  t.same(held.headers, { authorization: 'Bearer two' })
  t.equal(runs(), 3)
  await t.rejects(credentials.connection(held), { message: /printed no JSON/ })
  writeFileSync(join(folder, 'answer'), answer('three'))
  t.same((await credentials.connection(held)).headers, { authorization: 'Bearer three' })
})
