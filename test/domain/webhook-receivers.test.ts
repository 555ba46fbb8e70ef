/** The sample receivers of `docs/webhooks`, each as a process of its own. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { envelope, failedData, refundedData, signatureHeaders, type Signing } from '../../src/domain/webhooks.ts'
import { lacksGo, go } from '../servers/go.ts'

const FOLDER = join(import.meta.dirname, '../../docs/webhooks')
const MINUTE_MS = 60_000

const taskId = '019ab000-0000-7000-8000-000000000001'
const apiKey = 'svc_live_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM'

/** What is sent at a time: the receivers compare it with their clocks. */
function messages(at: number): { failed: string; refunded: string; signing: Signing } {
  const failed = envelope('task.failed', at, failedData({ taskId, error: { code: 'provider_error', message: 'The media could not be made – über.' }, estimatedMicro: 40_000, refundMicro: 40_000, attempts: 3, createdAt: at, failedAt: at }))
  const refunded = envelope('task.refunded', at, refundedData({ taskId, refundMicro: 40_000, newBalanceMicro: 1 }))
  return { failed, refunded, signing: { event: 'task.failed', body: failed, apiKey, keyVersionId: 'key-2', brand: 'SVC', messageId: `${taskId}.task.failed`, atMs: at } }
}

const NO_PYTHON = spawnSync('python3', ['--version']).status === 0 ? false : 'python3 is not on the PATH'

t.test('the sample receivers verify both signatures and detect duplicates', async (t) => {
  await t.test('Node', (t) => tryReceiver(t, process.execPath, [join(FOLDER, 'receiver.mjs')]))
  await t.test('Python', { skip: NO_PYTHON }, (t) => tryReceiver(t, 'python3', [join(FOLDER, 'receiver.py')]))
  const lacking = await lacksGo()
  await t.test('Go', { skip: lacking ?? false }, async (t) => {
    const program = join(t.testdir(), 'receiver')
    await go(['build', '-o', program, join(FOLDER, 'receiver.go')], FOLDER)
    await tryReceiver(t, program, [])
  })
})

t.test('the sample receivers compare signatures by a constant-time function alone', async (t) => {
  const python = (answer: 'True' | 'False') => `import hmac, runpy, sys; hmac.compare_digest = lambda a, b: ${answer}; runpy.run_path(sys.argv[1], run_name='__main__')`
  const node = (answer: boolean) => `import crypto from 'node:crypto'; import { syncBuiltinESMExports } from 'node:module'; crypto.timingSafeEqual = () => ${answer}; syncBuiltinESMExports(); await import(process.argv[1])`
  const statuses = async (t: Test, command: string, args: string[]) => {
    const send = await openSample(t, command, args)
    const { failed, signing } = messages(Date.now())
    const headers = signatureHeaders(signing)
    const wrong = { ...headers, 'X-SVC-Signature': `sha256=${'0'.repeat(64)}` }
    return [(await send(failed, headers))[0], (await send(failed.replace(taskId, 'another'), wrong))[0]]
  }
  await t.test('Node', async (t) => {
    const file = join(FOLDER, 'receiver.mjs')
    t.same(await statuses(t, process.execPath, ['--input-type=module', '-e', node(false), file]), [401, 401])
    t.same(await statuses(t, process.execPath, ['--input-type=module', '-e', node(true), file]), [200, 200])
  })
  await t.test('Python', { skip: NO_PYTHON }, async (t) => {
    const file = join(FOLDER, 'receiver.py')
    t.same(await statuses(t, 'python3', ['-c', python('False'), file]), [401, 401])
    t.same(await statuses(t, 'python3', ['-c', python('True'), file]), [200, 200])
  })
})

/** Starts a sample receiver. Returns a function that sends to it and resolves with the status and text of the answer. */
async function openSample(t: Test, command: string, args: string[]): Promise<(body: string, headers: Record<string, string>) => Promise<[number, string]>> {
  const child = spawn(command, args, { env: { PATH: process.env['PATH'], SVC_API_KEY: apiKey, PORT: '0' }, stdio: ['ignore', 'pipe', 'ignore'] })
  t.teardown(async () => {
    child.kill()
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  })
  const lines = createInterface({ input: child.stdout })
  const [line] = (await once(lines, 'line')) as [string]
  const url = `http://127.0.0.1:${line.split(' ').at(-1)}`
  return async (body, headers) => {
    const response = await fetch(url, { method: 'POST', body, headers })
    return [response.status, await response.text()]
  }
}

async function tryReceiver(t: Test, command: string, args: string[]): Promise<void> {
  const send = await openSample(t, command, args)
  const at = Date.now()
  const { failed, refunded, signing } = messages(at)
  const headers = signatureHeaders(signing)
  const without = (name: string) => Object.fromEntries(Object.entries(headers).filter(([header]) => header !== name))
  const refused = [401, '']
  t.same(await send(failed, {}), refused, 'no signature')
  for (const name of ['X-SVC-Signature', 'webhook-signature', 'webhook-timestamp', 'webhook-id']) t.same(await send(failed, without(name)), refused, `without ${name}`)
  t.same(await send(failed, { ...headers, 'X-SVC-Signature': 'sha256=00' }), refused, 'another signature')
  t.same(await send(failed, { ...headers, 'webhook-signature': headers['webhook-signature']?.replace('v1,', 'v1,A') ?? '' }), refused, 'another Standard Webhooks signature')
  t.same(await send(failed, signatureHeaders({ ...signing, apiKey: 'other' })), refused, 'another key')
  t.same(await send(failed.replace('0.04', '9.04'), headers), refused, 'another body')
  for (const minutes of [-10, 10]) t.same(await send(failed, signatureHeaders({ ...signing, atMs: at + minutes * MINUTE_MS })), refused, 'a recorded request')
  t.same(await send(failed, { ...headers, 'webhook-timestamp': 'now' }), refused, 'no timestamp')
  t.equal((await send('x'.repeat(1024 * 1024 + 1), headers).catch(() => [413]))[0], 413, 'a body that is too large')

  t.same(await send(failed, headers), [200, 'handled'])
  t.same(await send(failed, signatureHeaders({ ...signing, atMs: at + MINUTE_MS })), [200, 'duplicate'])
  const second = signatureHeaders({ ...signing, event: 'task.refunded', body: refunded, messageId: `${taskId}.task.refunded` })
  t.same(await send(refunded, { ...second, 'webhook-signature': `v1,AAAA ${second['webhook-signature']}` }), [200, 'handled'], 'the second event of the same task, beside a signature of another key')
}
