/** A request is found by its id: in the log lines of a running program, and as `tollgate trace` tells it from the store. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { runCommand } from '../../src/bootstrap/commands.ts'
import { readConfig } from '../../src/config/config.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { at, chat, post } from './calls.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { PROGRAM, start, type Program } from './program.ts'
import { run } from './run.ts'

type Line = Record<string, unknown>
const linesOf = (program: Program): Line[] => program.log.flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : []))
const PROMPT = 'a very private lighthouse'

t.test('every line of a request has its id, tenant and plan, those of its task as well, and trace tells the story of both', async (t) => {
  const folder = t.testdir({})
  const receiver = await openReceiver(t)
  const broken = await openReceiver(t)
  broken.always(() => ({ status: 500 }))
  receiver.next({ status: 503 })
  await declare(folder, 'acme', codingPlan('coder'), mediaPlan('studio'), apiKey('code', 'coder'), apiKey('media', 'studio'))
  await writeFile(join(folder, 'upstreams.yaml'), JSON.stringify({ upstreams: [
    { name: 'main', baseUrl: `${broken.url}/v1`, model: 'm', wire: 'chat', priority: 1, retry: { attempts: 1 } },
    { name: 'spare', baseUrl: 'echo:', wire: 'both', priority: 2 },
  ] }))
  const program = await start({ folder, env: { UPSTREAMS: join(folder, 'upstreams.yaml'), EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_DELAYS_SECONDS: '0,0.2' } })
  t.teardown(() => program.kill())
  const trace = (...args: string[]) => run(process.execPath, [PROGRAM, 'trace', ...args], { cwd: folder, env: program.env })
  const { config } = readConfig(program.env, undefined, 'inspect')
  const story = async (...args: string[]) => {
    const { output: stdout, exitCode: code } = await runCommand(config, ['trace', ...args], Date.now, async () => {})
    return { stdout, code }
  }

  const answered = await chat(program, await program.key('code'))
  t.equal(answered.status, 200)
  const reqId = answered.headers.get('x-request-id')
  const coding = await eventually('the line of the request', async () => {
    const lines = linesOf(program).filter((line) => line['reqId'] === reqId)
    return lines.some(({ msg }) => msg === 'request') ? lines : null
  })
  t.match(coding.find(({ event }) => event === 'upstream_attempt_failed'), { reqId, tenant: 'acme', plan: 'coder', upstream: 'main' })
  for (const line of coding) t.match(line, { reqId, tenant: 'acme', plan: 'coder' }, String(line['msg']))

  broken.next((_request, response) => {
    const delta = { role: 'assistant', content: 'Hi' }
    const chunk = { id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: null }] }
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(`data: ${JSON.stringify(chunk)}\n\n`, () => response.destroy())
  })
  const streamed = await post(program, await program.key('code'), '/v1/chat/completions', { model: 'svc-code', stream: true, messages: [{ role: 'user', content: PROMPT }] })
  const cutId = String(streamed.headers.get('x-request-id'))
  t.match(await streamed.text(), /"code":"server_overloaded"/)
  const cut = await eventually('the line of the stream', async () => linesOf(program).find(({ msg, reqId }) => msg === 'request' && reqId === cutId) ?? null)
  t.match(cut, { status: 200, code: 'server_overloaded', complete: true }, 'a stream that broke off says so')

  const body = { kind: 'image', prompt: PROMPT, size: '64x64', n: 2, webhook_url: `${receiver.url}/hook?token=s3cret` }
  const create = async (headers: Record<string, string> = {}) => {
    const response = await post(program, await program.key('media'), '/api/v1/generations', body, undefined, headers)
    t.equal(response.status, 202)
    return { id: String(at(await response.json(), 'id')), request: String(response.headers.get('x-request-id')) }
  }
  const made = await create()
  await receiver.arrived(2)
  const facts = { taskId: made.id, reqId: made.request, tenant: 'acme' }
  const lines = await eventually('the lines of the task', async () => {
    const lines = linesOf(program).filter(({ taskId }) => taskId === made.id)
    return lines.filter(({ msg }) => msg === 'webhook attempt').length === 2 ? lines : null
  })
  t.match(lines.find(({ msg }) => msg === 'request'), { ...facts, plan: 'studio', status: 202 })
  t.match(lines.find(({ msg }) => msg === 'task ran'), { ...facts, plan: 'studio' })
  for (const line of lines) t.match(line, facts, String(line['msg']))
  const twice = program.log.filter((line) => line.startsWith('{') && line.split('"plan":').length > 2)
  t.same(twice, [], 'no line has a member twice')

  const told = await trace(made.id)
  t.equal(told.code, 0, told.stderr)
  t.match(told.stdout, new RegExp(`^Task ${made.id} \\(image\\) of plan acme/studio, key \\S+, made by request ${made.request}: completed, attempts: 1, lost leases: 0\n`))
  for (const step of [/Z {2}accepted, \d\.\d+ held$/m, /first run begun/, /completed(, image\/png of \d+ bytes, kept until \S+){2}, \d\.\d+ charged/, /webhook task\.completed to 127\.0\.0\.1:\d+, attempt 1: 503 .*after \d+ ms/, /attempt 2: 204 after/, /now: webhook task\.completed is delivered$/m]) t.match(told.stdout, step)
  t.equal((await story(made.request)).stdout, told.stdout, 'by the request as well')
  t.notMatch(told.stdout, /lighthouse|s3cret|\/hook/, 'without what the tenant wrote')
  const json = await story(made.request, '--json')
  t.match(JSON.parse(json.stdout), { tasks: [{ id: made.id, requestId: made.request, isHeld: false, deliveries: [{ state: 'delivered' }] }], reservation: null })
  t.notMatch(json.stdout, /lighthouse|s3cret/)

  const chosen = await create({ 'x-request-id': 'build-7' })
  const unknown = await story('build-7')
  t.equal(unknown.code, 1)
  t.match(unknown.stdout, /--days <n> looks through the tasks of the last n days/)
  t.match((await story('build-7', '--days', '1')).stdout, `Task ${chosen.id} (image)`)
  // At the latest then it is in the store.
  await program.stop()
  const request = await story(String(reqId))
  t.match(request.stdout, /^A request of plan acme\/coder with key \S+ at \S+Z: 200 after \d+ ms, [1-9]\d* tokens charged\. Its attempts at upstreams are in the logs: search them for "reqId":"/)
  t.match(JSON.parse((await story(String(reqId), '--json')).stdout), { tasks: [], reservation: null, request: { requestId: reqId, status: 200, code: null } })
  t.match((await story(cutId)).stdout, /: 200 server_overloaded after \d+ ms/)
  t.match(await story(String(reqId).replace(/.$/, (last) => (last === '0' ? '1' : '0'))), { code: 1, stdout: /only in the logs: search them for "reqId":"/ })
  t.match(await trace('two words'), { code: 1, stderr: /trace with the id of a request or a task/ })
})
