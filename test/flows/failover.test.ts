/** Failovers of the store while clients call every flow: what they see (the table in `docs/store.md`), and that nothing is lost or charged twice. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import t, { type Test } from 'tap'
import { seeded } from '../contracts/store/acme.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { FATES, openReplicaSet } from '../fakes/replica-set.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { gatewaysOf } from './burst.ts'
import { all, answer, at, chat, events, get, post, used, type Answer } from './calls.ts'
import { openSite } from './deployment.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { PROGRAM } from './program.ts'
import { run } from './run.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

const UNLIMITED = { requestsPerMinute: 1_000_000 }
const ENV = { USAGE_DAYS: '30', EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_DELAYS_SECONDS: '0,0.5,1,2,4,8', WEBHOOK_TIMEOUT_SECONDS: '2', TASK_LEASE_SECONDS: '5' }
/** One of so many commands is struck on its way, in the seconds before a failover. */
const STRUCK = 12

/** A replica set: the server itself, or one that says that it is in front of it. `stepDown` resolves once there is a primary again. */
async function replicaSet(t: Test): Promise<{ url: string; stepDown(seconds: number): Promise<void>; strike(isOn: boolean): void } | null> {
  const server = await mongodb(t)
  if (server === null) return null
  const client = await new MongoClient(server).connect()
  t.teardown(() => client.close())
  const { setName } = await client.db('admin').command({ hello: 1 })
  const fake = setName === undefined ? await openReplicaSet(server) : null
  if (fake) t.teardown(() => fake.close())
  const random = seeded(11)
  return {
    url: fake?.url ?? server,
    async stepDown(seconds) {
      if (fake) return fake.stepDown(seconds)
      // A member that steps down may close the connection before it answers.
      await client.db('admin').command({ replSetStepDown: seconds, force: true }).catch(() => {})
      await eventually('a primary', () => client.db('admin').command({ ping: 1 }).then(() => true, () => null))
    },
    strike(isOn) {
      fake?.decide(() => (isOn && random() < 1 / STRUCK ? (FATES[Math.floor(random() * FATES.length)] ?? 'passes') : 'passes'))
    },
  }
}

t.test('a failover costs clients a wait or a 503, and nothing is lost or charged twice', async (t) => {
  const [set, brokers] = [await replicaSet(t), await kafka(t)]
  if (set === null || brokers === null) return
  const receiver = await openReceiver(t)
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const site = openSite({ mongodb: set.url, brokers })
  t.teardown(async () => {
    await site.close()
    await rm(folder, { recursive: true, force: true })
  })
  const coding = { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 } }
  const coder = codingPlan('coder', UNLIMITED, coding)
  await declare(folder, 'plans', mediaPlan('studio', UNLIMITED), apiKey('media', 'studio'), coder, apiKey('coding', 'coder'))
  const program = await site.start({ folder, env: ENV, roles: ['controller', 'gateway', 'gateway', 'worker', 'dispatcher'] })
  t.teardown(() => program.kill())
  const gateways = gatewaysOf(program)
  const keys = { media: await program.key('media'), coding: await program.key('coding') }

  /** Restarts a leading controller that could not renew its lease and ended, as its supervisor does. */
  const supervise = async () => {
    const at = program.processes.findIndex(({ role, log }) => role === 'controller' && log.some((line) => line.includes('controller_lease_lost')))
    if (at < 0) return
    await program.processes[at]?.stop()
    program.processes[at] = await site.join(folder, 'controller', ENV)
  }

  const orders = new Map<number, string>()
  let ordered = 0
  let answered = 0
  let calls = 0
  const gateway = () => gateways[calls++ % gateways.length] ?? program
  /** Repeated with its Idempotency-Key until it is confirmed. */
  const order = async (n: number): Promise<Answer> => {
    const body = { kind: 'image', prompt: `order ${n}`, size: '32x32', webhook_url: `${receiver.url}/hook` }
    const seen = await answer(await post(gateway(), keys.media, '/api/v1/generations', body, undefined, { 'idempotency-key': `order-${n}` }))
    if (seen.status === 202 || seen.status === 200) orders.set(n, String(at(seen.body, 'id')))
    return seen
  }
  const flows: Record<string, () => Promise<Answer>> = {
    'chat request': async () => {
      const seen = await chat(gateway(), keys.coding)
      if (seen.status === 200) answered++
      return seen
    },
    'order of an image': () => order([...Array(ordered).keys()].find((n) => !orders.has(n)) ?? ordered++),
    'list of tasks': () => get(gateway(), keys.media, '/api/v1/generations?limit=5'),
    'usage of a plan': () => get(gateway(), keys.coding, '/v1/usage'),
  }

  /** What clients of each flow see while there is no primary for so long. */
  async function failOver(seconds: number): Promise<Map<string, { statuses: Map<number, number>; longestMs: number }>> {
    const seen = new Map(Object.keys(flows).map((name) => [name, { statuses: new Map<number, number>(), longestMs: 0 }]))
    let isOver = false
    const calling = Object.entries(flows).map(async ([name, call]) => {
      const row = seen.get(name) ?? { statuses: new Map<number, number>(), longestMs: 0 }
      while (!isOver) {
        const since = performance.now()
        const { status, headers } = await call()
        row.longestMs = Math.max(row.longestMs, performance.now() - since)
        row.statuses.set(status, (row.statuses.get(status) ?? 0) + 1)
        if (status === 503) t.ok(Number(headers.get('retry-after')) > 0, `${name}: 503 says when to come again`)
        await pause(20)
      }
    })
    set?.strike(true)
    await pause(500)
    await set?.stepDown(seconds)
    set?.strike(false)
    isOver = true
    await Promise.all(calling)
    for (const [name, { statuses, longestMs }] of seen)
      t.comment(`${seconds} s without a primary, ${name}: ${[...statuses].map(([status, count]) => `${status} × ${count}`).join(', ')}, ${Math.round(longestMs)} ms at most`)
    return seen
  }

  // A stream that is open meanwhile, and a key that is made.
  for (const [seconds, spare] of [[1, 'first'], [10, 'second']] as const) {
    const stream = await post(gateway(), keys.coding, '/v1/chat/completions', { model: 'svc-code', stream: true, stream_options: { include_usage: true }, messages: [{ role: 'user', content: '[[wait:200]] Hello' }] })
    const streamed = all(events(stream))
    await declare(folder, spare, apiKey(spare, 'coder'))
    for (const [name, { statuses }] of await failOver(seconds))
      t.same([...statuses.keys()].filter((status) => ![200, 202, 503].includes(status)), [], name)
    const parts = await streamed
    t.equal(parts.at(-1)?.data, '[DONE]', 'an open stream goes on')
    answered++
    for (const [name, call] of Object.entries(flows)) await eventually(name, async () => ((await call()).status < 300 ? true : null))
    await eventually(`the key ${spare}`, async () => {
      await supervise()
      return program.keyNow(spare)
    })
    const key = await program.key(spare)
    for (const one of gateways) await eventually('the new key', async () => ((await chat(one, key)).status === 200 ? ++answered : null))
  }

  const pending = async () => (await Promise.all([...orders.values()].map((id) => get(program, keys.media, `/api/v1/generations/${id}`)))).filter(({ body }) => at(body, 'status') !== 'completed')
  await eventually('the end of every task', async () => ((await pending()).length === 0 ? true : null))
  t.equal(new Set(orders.values()).size, orders.size)
  const { body } = await get(program, keys.media, '/api/v1/usage')
  t.match(body, { held: '0.0000', burned: (0.04 * ordered).toFixed(4) }, `${ordered} orders are ${ordered} tasks, each charged once`)
  await eventually('every webhook', async () => {
    const delivered = new Set(receiver.received.map(({ rawBody }) => String(at(JSON.parse(String(rawBody)), 'data', 'task_id'))))
    return [...orders.values()].every((id) => delivered.has(id)) ? true : null
  })
  const { weekly } = await used(program, keys.coding)
  for (const one of program.processes) {
    const { code } = await one.stop()
    // The leading controller may find only now that it could not renew its lease.
    t.ok(code === 0 || (one.role === 'controller' && one.log.some((line) => line.includes('controller_lease_lost'))), one.role)
  }
  const tollgate = async (...command: string[]) => run(process.execPath, [PROGRAM, ...command], { cwd: folder, env: { ...ENV, DATA_DIR: join(folder, 'data'), ...(await site.settings(folder)) } })
  const charges = (await tollgate('usage', 'export')).stdout.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line).data as { task?: string; charged_tokens?: number; estimated?: boolean })
  const tokens = charges.filter(({ task }) => task === undefined)
  t.equal(tokens.filter(({ estimated }) => !estimated).length, answered, `each of ${answered} answered requests is charged once`)
  t.equal(tokens.reduce((sum, { charged_tokens = 0 }) => sum + charged_tokens, 0), weekly)
  t.comment(`${tokens.length - answered} requests without an answer are charged by estimates`)
  t.same(charges.flatMap(({ task }) => task ?? []).sort(), [...orders.values()].sort(), 'each task is charged once')
  const verified = await tollgate('verify')
  t.equal(verified.code, 0, verified.stdout + verified.stderr)
})
