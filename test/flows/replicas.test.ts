/** Several replicas of a role: suspension everywhere, fairness between tenants, fencing of stale workers, clock skew. */
import { setTimeout as pause } from 'node:timers/promises'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import t, { type Test } from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { openStore } from '../../src/backends/store/store.ts'
import { task as taskOf } from '../contracts/store/acme.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { messageOf, modern } from '../plugins/mcp-endpoint.ts'
import { need } from '../servers/client.ts'
import { skewed } from '../servers/faketime.ts'
import { burst, gatewaysOf, outcome, tallied } from './burst.ts'
import { at, chat, get, type Json } from './calls.ts'
import { siteFor, type Site } from './deployment.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { launch, PROGRAM, type Process, type Program } from './program.ts'
import { run } from './run.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

const IMAGE = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }
/** The task as stored. */
const SMALL = { prompt: 'a lighthouse', width: 64, height: 64, durationMs: null, seed: null, format: 'png' }
/** Long enough to be stopped during the run. */
const FILM = { kind: 'video', prompt: 'a lighthouse', size: '1280x720', duration_seconds: 3 }

t.setTimeout(SIDE_TIMEOUT_MS)

type Options = { roles: Role[]; env?: Record<string, string>; manifests?: object[] }
type Started = { site: Site; folder: string; program: Program; join(role: Role, env?: Record<string, string>): Promise<Process> }

/** A deployment with a plan and a key of each product. Null if the test is skipped. */
async function startFor(t: Test, { roles, env = {}, manifests = [] }: Options): Promise<Started | null> {
  const place = await siteFor(t)
  if (place === null) return null
  const { site, folder } = place
  await declare(folder, 'studio', mediaPlan('studio'), apiKey('media', 'studio'), ...manifests)
  await declare(folder, 'coder', codingPlan('coder'), apiKey('coding', 'coder'))
  const program = await site.start({ folder, roles, env })
  t.teardown(() => program.kill())
  return {
    site,
    folder,
    program,
    async join(role, more = {}) {
      const one = await site.join(folder, role, { ...env, ...more })
      t.teardown(() => one.kill())
      return one
    },
  }
}

/** Resolves when the task is in this state. Rejects once it has ended in another. */
function reaches(program: Program, key: string, task: Json, status: string): Promise<Json> {
  const look = async () => {
    const { body } = await get(program, key, `/api/v1/generations/${String(at(task, 'id'))}`)
    const now = String(at(body, 'status'))
    if (now !== status && ['completed', 'failed', 'canceled'].includes(now)) throw new Error(`it does not become ${status}: ${JSON.stringify(body)}`)
    return now === status ? body : null
  }
  return eventually(`a task to be ${status}`, look, SIDE_TIMEOUT_MS)
}

t.test('MCP needs no affinity: a task made at one gateway is waited for, read and canceled at another', async (t) => {
  const started = await startFor(t, { roles: ['controller', 'gateway', 'gateway', 'worker'] })
  if (!started) return
  const key = await started.program.key('media')
  const urls = gatewaysOf(started.program).map(({ url }) => `${url}/mcp`)
  const [here, there] = await Promise.all(
    urls.map(async (url) => {
      const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode: 'auto' } })
      await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${key}` } } }))
      t.teardown(() => client.close())
      return (name: string, args: Record<string, unknown>) => client.callTool({ name, arguments: args }).then(({ structuredContent }) => structuredContent as Record<string, unknown>)
    }),
  )
  if (!here || !there) throw new Error('two gateways are needed')
  const { kind: _image, ...image } = IMAGE
  const { id } = await here('generate_image', image)
  t.match(await there('get_task', { task_id: id, wait_seconds: 45 }), { id, status: 'completed', actual_cost: '0.0400' })
  t.same(await here('list_tasks', {}), await there('list_tasks', {}))
  const { kind: _video, ...film } = FILM
  const running = await there('generate_video', film)
  t.match(await here('cancel_task', { task_id: running['id'] }), { id: running['id'], status: 'canceled' })
  t.match(await there('get_task', { task_id: running['id'] }), { status: 'canceled' })
  t.same(await here('get_usage', {}), await there('get_usage', {}))

  const declared = { extensions: { 'io.modelcontextprotocol/tasks': {} } }
  const send = async (url: string | undefined, method: string, params: Record<string, unknown>) => {
    const [message, headers] = modern(method, params, declared)
    return (await messageOf(await fetch(url ?? '', { method: 'POST', headers: { ...headers, authorization: `Bearer ${key}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream' }, body: JSON.stringify(message) }))).result
  }
  const handle = await send(urls[0], 'tools/call', { name: 'generate_video', arguments: film })
  t.match(handle, { resultType: 'task', status: 'working' })
  t.match(await send(urls[1], 'tasks/get', { taskId: handle?.['taskId'] }), { taskId: handle?.['taskId'] })
  await send(urls[1], 'tasks/cancel', { taskId: handle?.['taskId'] })
  t.match(await send(urls[0], 'tasks/get', { taskId: handle?.['taskId'] }), { status: 'cancelled' })
})

t.test('after the first refusal of a suspended plan or a revoked key every gateway refuses it', async (t) => {
  const started = await startFor(t, { roles: ['controller', 'gateway', 'gateway', 'gateway'] })
  if (!started) return
  const { program, folder } = started
  const [first, ...others] = gatewaysOf(program)
  if (!first) throw new Error('no gateway')
  const keys = { coding: await program.key('coding'), media: await program.key('media') }
  const ask = {
    coding: async (gateway: Program) => (await chat(gateway, keys.coding)).status,
    media: async (gateway: Program) => (await outcome(gateway, keys.media, '/api/v1/generations', IMAGE)).status,
  }
  for (const gateway of [first, ...others]) t.same([await ask.coding(gateway), await ask.media(gateway)], [200, 202], 'all know the keys')

  const becomes = async (status: number) => {
    for (const product of ['coding', 'media'] as const) {
      await eventually(`the first ${status}`, async () => ((await ask[product](first)) === status ? true : null))
      for (const gateway of others) t.equal(await ask[product](gateway), status, product)
    }
  }
  const write = async (state: Record<string, string>, key: Record<string, string>) => {
    await declare(folder, 'coder', codingPlan('coder', state), apiKey('coding', 'coder', key))
    await declare(folder, 'studio', mediaPlan('studio', state), apiKey('media', 'studio', key))
  }
  await write({ state: 'Suspended' }, {})
  await becomes(403)
  await write({}, {})
  for (const gateway of [first, ...others]) await eventually('service', async () => ((await ask.coding(gateway)) === 200 ? true : null))
  await write({}, { state: 'Revoked' })
  await becomes(401)
})

t.test("the single task of a tenant waits for at most one run behind ten tenants with 200 tasks each", async (t) => {
  const tenants = Array.from({ length: 10 }, (_, n) => `tenant-${n}`)
  const plans = tenants.map((namespace) => ({ ...mediaPlan('backlog', { requestsPerMinute: 1_000_000 }, { maxQueuedTasks: 200, maxConcurrentTasks: 100 }), metadata: { name: 'backlog', namespace } }))
  const started = await startFor(t, { roles: ['controller', 'gateway'], manifests: plans })
  if (!started) return
  const { site, folder, program } = started
  const key = await program.key('media')
  const store = await openStore((await site.settings(folder))['STORE_URL'] ?? '')
  t.teardown(() => store.close())
  for (const [n, tenant] of tenants.entries()) {
    const subscription = `${tenant}/backlog`
    const { keysVersion } = await eventually('the plan', () => store.subscription(subscription))
    const facts = { tenant, subscription, state: 'queued', createdAt: Date.now(), sweepAt: null, webhookUrl: null, kind: 'image', input: SMALL } as const
    const queued = Array.from({ length: 200 }, (_, i) => taskOf(n * 1000 + i, facts))
    // The rest only fill the queue until the test ends.
    await Promise.all(queued.slice(0, 20).map((one) => store.createTask(one)))
    const held = await Promise.all(queued.map(({ id, estimatedCost: amount }) => store.change(subscription, { op: 'hold', task: id, kind: 'image', amount, keyId: 'none', keyCap: null, keysVersion }, Date.now())))
    t.ok(held.every(({ outcome }) => outcome === 'held'), tenant)
  }
  await started.join('worker', { WORKER_SLOTS: '1' })
  const ran = async () => {
    const tasks = await Promise.all(tenants.map((tenant) => store.tasks(tenant, { object: 'generation', kind: null, status: null, createdAfter: null, createdBefore: null }, null, 1000)))
    return tasks.flat().filter(({ startedAt }) => startedAt !== null).map(({ startedAt }) => startedAt ?? 0)
  }
  // Until each tenant had its first run: from then on a tenant that was never served is next.
  while ((await ran()).length <= tenants.length) await pause(500)
  const { body: single } = await outcome(program, key, '/api/v1/generations', IMAGE)
  const queuedAt = Date.now()
  await reaches(program, key, single, 'completed')
  const mine = await store.task('acme', String(at(single, 'id')))
  const before = (await ran()).filter((startedAt) => startedAt > queuedAt && startedAt < (mine?.startedAt ?? 0))
  // One may have been claimed at that time, and start afterwards.
  t.ok(before.length <= 1, `${before.length} of others began while it waited`)
})

t.test('a worker that was frozen during a run, and resumes after its lease expired, neither ends nor charges the task', async (t) => {
  const started = await startFor(t, { roles: ['controller', 'gateway'], env: { TASK_LEASE_SECONDS: '3' } })
  if (!started) return
  const { program, join: joinAs } = started
  const key = await program.key('media')
  const stopped = await joinAs('worker')
  const { body: film } = await outcome(program, key, '/api/v1/generations', FILM)
  await reaches(program, key, film, 'processing')
  process.kill(stopped.pid, 'SIGSTOP')
  const other = await joinAs('worker')
  const done = await reaches(program, key, film, 'completed')
  const { burned } = (await get(program, key, '/api/v1/usage')).body as { burned: string }
  t.equal(burned, at(done, 'actual_cost'))
  await other.stop()
  process.kill(stopped.pid, 'SIGCONT')
  // It runs the next one, which proves that it has resumed.
  const { body: image } = await outcome(program, key, '/api/v1/generations', IMAGE)
  const next = await reaches(program, key, image, 'completed')
  t.notOk(stopped.log.some((line) => line.includes(String(at(film, 'id'))) && line.includes('"outcome":"completed"')), 'the run came to nothing')
  const { body: now } = await get(program, key, `/api/v1/generations/${String(at(film, 'id'))}`)
  t.equal(at(now, 'completed_at'), at(done, 'completed_at'))
  t.equal(at(now, 'actual_cost'), at(done, 'actual_cost'))
  t.match((await get(program, key, '/api/v1/usage')).body, { held: '0.0000', burned: (Number(burned) + Number(at(next, 'actual_cost'))).toFixed(4) })
})

t.test('replicas with ten seconds of clock skew are not ready and write nothing; the others serve, charge and deliver', async (t) => {
  const library = need(t, 'libfaketime')
  if (library === null) return
  const receiver = await openReceiver(t)
  const started = await startFor(t, { roles: ['controller', 'gateway', 'worker', 'dispatcher'], env: { EGRESS_ALLOW: '127.0.0.1/32' } })
  if (!started) return
  const { site, folder, program } = started
  const settings = { ...(await site.settings(folder)), EGRESS_ALLOW: '127.0.0.1/32', PORT: '0' }
  const ahead = (['gateway', 'worker', 'dispatcher'] as const).map((role) => ({ role, ...launch({ folder, role, env: { ...settings, ...skewed(library, 10) } }) }))
  t.teardown(() => Promise.all(ahead.map((one) => one.kill())))
  for (const { role, opsUrl } of ahead) {
    const url = await opsUrl
    const clock = await eventually(`the clock check of the ${role}`, async () => {
      const { checks } = (await (await fetch(`${url}/readyz`)).json()) as { checks: { name: string; ok: boolean; detail: string }[] }
      return checks.find(({ name }) => name === 'clock') ?? null
    })
    t.match(clock, { ok: false, detail: /differs from the store's by \d+\.\d s/ }, role)
  }
  const keys = { media: await program.key('media'), coding: await program.key('coding') }
  const created = await burst(40, 4, () => outcome(program, keys.media, '/api/v1/generations', { ...IMAGE, webhook_url: `${receiver.url}/hook` }))
  t.same(tallied(created), { '202': 40 })
  const chats = await burst(20, 4, () => chat(program, keys.coding))
  t.ok(chats.every(({ status }) => status === 200))
  const done = []
  for (const { body } of created) done.push(await reaches(program, keys.media, body, 'completed'))
  const charged = done.reduce<number>((sum, task) => sum + Number(at(task, 'actual_cost')), 0)
  t.match((await get(program, keys.media, '/api/v1/usage')).body, { held: '0.0000', burned: charged.toFixed(4) })
  const delivered = () => new Set(receiver.received.map(({ rawBody }) => at(JSON.parse(String(rawBody)), 'data', 'task_id')))
  while (delivered().size < created.length) await receiver.arrived(receiver.received.length + 1)

  const places = [...program.processes.map((one) => ({ ...one, seconds: 0 })), ...ahead.map((one) => ({ ...one, seconds: -10 }))]
  for (const { role, opsUrl, log, seconds } of places) {
    const metrics = await (await fetch(`${await opsUrl}/metrics`)).text()
    const seen = Number(/^tollgate_clock_skew_seconds (\S+)/m.exec(metrics)?.[1])
    t.ok(Math.abs(seen - seconds) < 4, `${role}: ${seen}`)
    t.equal(log.some((line) => line.includes('"event":"clock_skew"')), seconds !== 0, role)
    const wrote = /^tollgate_store_duration_seconds_count\{verb="(change|moveTask|relay|claimDeliveries|takeLease|heartbeat)",outcome="answered"\} [1-9]/m.test(metrics)
    t.equal(wrote, seconds === 0, `${role} wrote`)
  }
  const verified = await run(process.execPath, [PROGRAM, 'verify'], { cwd: folder, env: await site.settings(folder) })
  t.equal(verified.code, 0, verified.stdout)
})
