/** End-to-end tests of the Coding Plan API: the program as processes, manifests as files, plain HTTP. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { Agent, request, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { all, answer, at, chat, events, get, post, used, type Answer } from './calls.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { PROGRAM, type Exit, type Program } from './program.ts'
import { run } from './run.ts'
import { SIDES, SIDE_TIMEOUT_MS, type Side, type Start } from './sides.ts'
import { openUpstream, type SlowUpstream } from './upstream.ts'

const MESSAGES = [{ role: 'user', content: 'Say hello to the world' }]

async function folderFor(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await mkdir(join(folder, 'plans'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** Declares a plan and a key of that name in a file of that name, and returns the key. */
async function issue(folder: string, program: Program, name: string, spec: Record<string, unknown> = {}, coding: Record<string, unknown> = {}): Promise<string> {
  await declare(folder, name, codingPlan(name, spec, coding), apiKey(`${name}-key`, name))
  return program.key(`${name}-key`)
}

/** Repeats a call until the answer has this status and error code, and returns that answer. */
function answers(call: () => Promise<Answer>, status: number, code?: string): Promise<Answer> {
  let last: Answer | null = null
  return eventually(`an answer ${status} ${code ?? ''}`, async () => {
    last = await call()
    return last.status === status && (code === undefined || at(last.body, 'error', 'code') === code) ? last : null
  }).catch((error: Error) => {
    throw new Error(`${error.message}; the last was ${last?.status} ${JSON.stringify(last?.body)}`, { cause: error })
  })
}

t.setTimeout(SIDE_TIMEOUT_MS)
for (const side of SIDES) {
  t.test(`${side.name}: the Coding Plan API`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
    const start = await side.open(t)
    if (start) await flows(t, side, start)
  })
}

async function flows(t: Test, side: Side, start: Start): Promise<void> {
  const shared = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await declare(shared, 'first', codingPlan('first'), apiKey('first-key', 'first'))
  const program = await startFor(t, shared)
  t.teardown(() => rm(shared, { recursive: true, force: true }))

  async function startFor(t: Test, folder: string, env: Record<string, string> = {}): Promise<Program> {
    const program = await start({ folder, env, roles: ['controller', 'gateway'] })
    t.teardown(() => program.kill())
    return program
  }

  t.test('a chat completion is answered as JSON and as a stream, and both are charged', async (t) => {
    const key = await program.key('first-key')
    const before = await used(program, key)
    const whole = await answer(await post(program, key, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES }))
    t.match(whole, { status: 200, body: { object: 'chat.completion', model: 'svc-code', choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: String } }] } })
    const tokens = Number(at(whole.body, 'usage', 'total_tokens'))
    t.ok(tokens > 0)
    t.equal((await used(program, key)).session, before.session + tokens)
    t.match(whole.headers.get('x-ratelimit-limit-tokens'), /^\d+$/)
    t.match(whole.headers.get('x-codex-primary-used-percent'), /^\d/)

    const response = await post(program, key, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true, stream_options: { include_usage: true } })
    t.match(response.headers.get('content-type'), 'text/event-stream')
    const seen = await all(events(response))
    t.equal(seen.at(-1)?.data, '[DONE]')
    const chunks = seen.slice(0, -1).map(({ data }) => data)
    t.equal(chunks.map((chunk) => at(chunk, 'choices', 0, 'delta', 'content') ?? '').join(''), at(whole.body, 'choices', 0, 'message', 'content'))
    for (const chunk of chunks) t.equal(at(chunk, 'model'), 'svc-code')
    const streamed = Number(at(chunks.at(-1), 'usage', 'total_tokens'))
    t.equal((await used(program, key)).session, before.session + tokens + streamed)
    t.equal((await used(program, key)).weekly, before.weekly + tokens + streamed)
  })

  t.test('every endpoint refuses an invalid key', async (t) => {
    t.match(await answer(await fetch(`${program.url}/v1/models`)), { status: 401, body: { error: { code: 'invalid_api_key' } } })
    t.match(await chat(program, 'svc_live_wrong'), { status: 401, body: { error: { code: 'invalid_api_key' } } })
  })

  t.test('a Coding plan unlocks the Coding Plan API key and the usage view only while it is active', async (t) => {
    const sell = (state: string) => declare(shared, 'sold', codingPlan('sold', { state }), apiKey('sold-key', 'sold'), apiKey('sold-seen', 'first'))
    await sell('Suspended')
    await program.key('sold-seen')
    t.equal(await program.keyNow('sold-key'), null, 'no key before the plan is paid')
    await sell('Active')
    const key = await program.key('sold-key')
    t.equal((await chat(program, key)).status, 200)
    const { session, weekly } = await used(program, key)
    t.ok(session > 0 && weekly === session, 'both windows count')
    await sell('Suspended')
    await eventually('the Secret to go', async () => ((await program.keyNow('sold-key')) === null ? true : null))
    await answers(() => chat(program, key), 403, 'plan_inactive')
    await sell('Active')
    await answers(() => chat(program, key), 200)
    t.equal(await program.key('sold-key'), key, 'the same key works again')
  })

  t.test('rewriting a manifest in place never revokes a key, not even for a moment', async (t) => {
    const key = await issue(shared, program, 'rewritten')
    for (let round = 0; round < 40; round++) {
      await declare(shared, 'rewritten', codingPlan('rewritten', { displayName: `Round ${round}` }), apiKey('rewritten-key', 'rewritten'))
      t.equal((await get(program, key, '/v1/usage')).status, 200)
    }
    t.equal(await program.keyNow('rewritten-key'), key)
  })

  t.test('health and metrics are on the operations listener only', async (t) => {
    t.equal((await fetch(`${program.opsUrl}/livez`)).status, 200)
    t.equal((await fetch(`${program.opsUrl}/readyz`)).status, 200)
    const metrics = await fetch(`${program.opsUrl}/metrics`)
    t.match(metrics.headers.get('content-type'), 'text/plain')
    t.match(await metrics.text(), /^# HELP /m)
    for (const path of ['/livez', '/readyz', '/metrics']) t.equal((await fetch(`${program.url}${path}`)).status, 404)
  })

  t.test('a killed program restarts with its usage and its keys; nothing of it is in the way, but what runs is', async (t) => {
    const key = await issue(shared, program, 'kept')
    for (let i = 0; i < 5; i++) t.equal((await chat(program, key)).status, 200)
    const before = await used(program, key)
    t.same(await program.kill(), { code: null, signal: 'SIGKILL' })
    const upstream = await openUpstream()
    t.teardown(() => upstream.close())
    const file = join(shared, 'upstreams.yaml')
    await writeFile(file, JSON.stringify({ upstreams: [{ name: 'slow', baseUrl: upstream.url, apiKey: 'none', model: 'slow-1', wire: 'chat' }] }))
    const env = { UPSTREAMS: file, SHUTDOWN_SECONDS: '600', DRAIN_DELAY_SECONDS: '10' }
    const restarted = await startFor(t, shared, env)
    t.same(await used(restarted, key), before)
    t.equal(await restarted.keyNow('kept-key'), key)
    if (side.name === 'embedded') await t.test('a second program on the same folder is refused with an error, and verify works beside the first', beside)
    await t.test('SIGTERM lets a stream end; no new connection is accepted, and none with a request in flight is closed', (t) => drains(t, restarted, key, upstream))
    const last = await startFor(t, shared)
    t.equal((await used(last, key)).session, before.session + upstream.totalTokens)
    t.same(await last.stop(), { code: 0, signal: null })
  })

  async function beside(t: Test): Promise<void> {
    const env = { PORT: '0', OPS_PORT: '0', DATA_DIR: join(shared, 'data') }
    const [second, verified] = await Promise.all([[], ['verify']].map((args) => run(process.execPath, [PROGRAM, ...args], { cwd: shared, env })))
    t.match(second, { code: 1, stderr: /^DATA_DIR was ".*"; it must be one that no other running program uses: .*\n$/ })
    t.match(verified, { code: 0, stderr: '' })
  }

  async function drains(t: Test, program: Program, key: string, upstream: SlowUpstream): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const ask = (path: string, body?: object) =>
      new Promise<IncomingMessage>((resolve, reject) => {
        const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
        request(`${program.url}${path}`, { agent, method: body ? 'POST' : 'GET', headers }, resolve).on('error', reject).end(body && JSON.stringify(body))
      })
    const stream = await ask('/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true })
    t.equal(stream.headers.connection, 'keep-alive')
    let exit: Exit | null = null
    void program.stop().then((seen) => (exit = seen))
    await eventually('not ready', async () => ((await fetch(`${program.opsUrl}/readyz`)).status === 503 ? true : null))
    t.equal((await fetch(`${program.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).headers.get('connection'), 'close', 'while it is still in service')
    t.equal((await fetch(`${program.opsUrl}/livez`)).status, 200)
    await eventually('no new connection', () => fetch(`${program.url}/v1/models`).then(() => null, () => true))
    upstream.finish()
    t.match(String(Buffer.concat(await stream.toArray())), /"content":"Hello"[^]*\[DONE\]/)
    // The time in which a client notices that the stream has ended.
    await pause(50)
    const next = await ask('/v1/usage')
    t.same([next.statusCode, next.headers.connection], [200, 'close'], 'on the connection of the stream')
    next.resume()
    t.same(await eventually('the exit', async () => exit), { code: 0, signal: null })
  }
}

t.test('a start that cannot succeed prints the reason in one sentence and exits with 1', async (t) => {
  const folder = await folderFor(t)
  await mkdir(join(folder, 'data'))
  await writeFile(join(folder, 'data/tollgate.db'), 'no database'.repeat(100))
  const damaged = await run(process.execPath, [PROGRAM], { cwd: folder, env: { PORT: '0', OPS_PORT: '0' } })
  t.match(damaged.stderr, /^The store .*tollgate\.db .*\n$/)
  t.equal(damaged.code, 1)
  const nonsense = await run(process.execPath, [PROGRAM], { cwd: folder, env: { PORT: 'many', OPS_PORT: '0' } })
  t.match(nonsense.stderr, /^PORT was "many"; it must be .*\n$/)
  t.equal(nonsense.code, 1)
})

t.test('verify refuses a missing store, and does not create it', async (t) => {
  const folder = await folderFor(t)
  const verified = await run(process.execPath, [PROGRAM, 'verify'], { cwd: folder, env: { DATA_DIR: join(folder, 'typo') } })
  t.match(verified.stderr, /^There is no store at .*typo\/tollgate\.db: STORE_URL, .*\n$/)
  t.same([verified.code, verified.stdout], [1, ''])
  t.notOk((await readdir(folder)).includes('typo'))
})
