/** Each alert fires on a system that is really broken, and the queries of its runbook show what is wrong. Times are shortened. */
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { openReceiver } from '../fakes/receiver.ts'
import { openUpstream, respond } from '../fakes/upstream.ts'
import { answer, chat, post } from '../flows/calls.ts'
import { openSite } from '../flows/deployment.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { start, type Program } from '../flows/program.ts'
import { persistently } from '../flows/systems.ts'
import { client, missing } from '../servers/client.ts'
import { skewed } from '../servers/faketime.ts'
import { KAFKA_NAMES, ownKafka } from '../servers/kafka.ts'
import { MONGODB_NAMES, ownMongodb } from '../servers/mongodb.ts'
import { freePort } from '../servers/process.ts'
import { ownPrometheus } from '../servers/prometheus.ts'
import { folderFor } from '../temporary-folder.ts'
import { answersOf, drill, hostsOf, logHas } from './alert-drill.ts'

const FREE = { requestsPerMinute: 1_000_000 }
const PLANS = [codingPlan('code', FREE), apiKey('code-key', 'code'), mediaPlan('studio', FREE, { maxConcurrentTasks: 50 }), apiKey('studio-key', 'studio')]
const IMAGE = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }

const image = (program: Program, key: string, webhook?: string) => post(program, key, '/api/v1/generations', { ...IMAGE, ...(webhook ? { webhook_url: webhook } : {}) }).then(answer)

t.setTimeout(600_000)
// Each has a system of its own, and waits for Prometheus most of the time.
t.jobs = 3

t.test('an upstream that is down: the alert fires, its queries name the upstream, and the log has the cause', async (t) => {
  if (missing(t, ['prometheus'])) return
  const folder = await folderFor(t)
  const broken = await openUpstream((response) => respond(response, 500, { error: { message: 'broken' } }))
  t.teardown(() => broken.close())
  await writeFile(join(folder, 'upstreams.yaml'), JSON.stringify({ upstreams: [{ name: 'main', baseUrl: `${broken.url}/v1`, model: 'm', wire: 'both', apiKey: 'k' }] }))
  await declare(folder, 'plans', ...PLANS)
  const program = await start({ folder, env: { UPSTREAMS: join(folder, 'upstreams.yaml') } })
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(program))
  if (prometheus === null) return
  const key = await program.key('code-key')
  const said = () => chat(program, key)
  const [breaker] = await drill(t, prometheus, 'TollgateUpstreamDown', said)
  t.match(breaker, /main [12]/)
  const attempts = await eventually('the rate of attempts', async () => (await answersOf(prometheus, 'TollgateUpstreamDown'))[1] || null)
  t.match(attempts, /(main failed|failed main) \d/)
  t.match(await said(), { status: 503, body: { error: { code: 'server_overloaded' } } }, 'what users see')
  t.ok(logHas(program, 'upstream_attempt_failed'))
})

t.test('tasks that no worker takes, and receivers that fail: the alerts fire, and their queries show the kind and the outcome', async (t) => {
  if (missing(t, ['prometheus'])) return
  const folder = await folderFor(t)
  await declare(folder, 'plans', ...PLANS)
  const program = await start({ folder, env: { WORKER_KINDS: 'image', EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_DELAYS_SECONDS: '0,0.2,0.2' } })
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(program))
  if (prometheus === null) return
  const key = await program.key('studio-key')
  t.equal((await post(program, key, '/api/v1/generations', { kind: 'music', prompt: 'rain', duration_seconds: 1 })).status, 202)
  const [oldest, tasks] = await drill(t, prometheus, 'TollgateTasksQueuedTooLong', async () => {}, ['> 1800', '> 3'])
  t.match(oldest, /music \d/)
  t.match(tasks, /(queued music|music queued) 1/)

  const dead = `http://127.0.0.1:${await freePort()}/hook`
  const [attempts] = await drill(t, prometheus, 'TollgateReceiversFailing', () => image(program, key, dead))
  t.match(attempts, /failed/)
})

t.test('a sealing key that is missing: webhooks wait and the alert fires, and they go out when the line is back', async (t) => {
  if (missing(t, ['prometheus'])) return
  const folder = await folderFor(t)
  const receiver = await openReceiver(t)
  await declare(folder, 'plans', ...PLANS)
  const env = { EGRESS_ALLOW: '127.0.0.1/32' }
  const file = join(folder, 'data/sealing.key')
  const first = await start({ folder, env })
  t.teardown(() => first.kill())
  const key = await first.key('studio-key')
  await first.stop()
  const line = readFileSync(file, 'utf8')
  const newer = `${randomBytes(32).toString('base64')}\n`
  await writeFile(file, `${newer}${line}`)
  // A line that opens no key of the store would make the process not ready.
  await declare(folder, 'plans', ...PLANS, apiKey('newer-key', 'studio'))
  const between = await start({ folder, env })
  t.teardown(() => between.kill())
  await between.key('newer-key')
  await between.stop()
  await writeFile(file, newer)
  const second = await start({ folder, env })
  t.teardown(() => second.kill())
  const prometheus = await ownPrometheus(t, hostsOf(second))
  if (prometheus === null) return
  const [outcomes] = await drill(t, prometheus, 'TollgateSealingKeyMissing', () => image(second, key, `${receiver.url}/hook`))
  t.match(outcomes, /unsigned/)
  t.ok(logHas(second, 'webhook_unsigned'))
  t.same(receiver.received, [])
  await second.stop()
  await writeFile(file, `${readFileSync(file, 'utf8')}${line}`)
  const third = await start({ folder, env })
  t.teardown(() => third.kill())
  t.equal((await image(third, key, `${receiver.url}/late`)).status, 202, 'the key works all the time')
  await receiver.arrived(1)
})

t.test('a store, a broker and a clock that fail: the alerts fire, and their queries name the processes', async (t) => {
  if (missing(t, [...MONGODB_NAMES, ...KAFKA_NAMES, 'libfaketime', 'prometheus'])) return
  const [store, broker, library] = [await ownMongodb(t), await ownKafka(t), client('libfaketime')]
  if (store === null || broker === null || library === null) return
  const site = openSite({ mongodb: store.url, brokers: broker.brokers })
  const folder = await folderFor(t)
  await declare(folder, 'plans', ...PLANS)
  const program = await persistently(() => site.start({ folder, roles: ['controller', 'gateway', 'worker'] }))
  t.teardown(() => program.kill())
  const prometheus = await ownPrometheus(t, hostsOf(...program.processes))
  if (prometheus === null) return
  const key = await program.key('code-key')
  t.equal((await chat(program, key)).status, 200)

  await broker.kill()
  const [missed] = await drill(t, prometheus, 'TollgateBrokerDown', async () => {})
  t.match(missed, / 0/)
  t.equal((await chat(program, key)).status, 200, 'nothing fails without the broker')
  await broker.start()

  await store.kill()
  const [checks] = await drill(t, prometheus, 'TollgateStoreDown', async () => {})
  t.match(checks, / 0/)
  t.match(await chat(program, key), { status: 503, body: { error: { code: 'unavailable' } } }, 'what users see')
  await store.start()
  await eventually('service', async () => ((await chat(program, key)).status === 200 ? true : null))

  const ahead = await start({ folder, role: 'gateway', env: { ...(await site.settings(folder)), PORT: '0', ...skewed(library, 3) } })
  t.teardown(() => ahead.kill())
  const watching = await ownPrometheus(t, hostsOf(ahead))
  if (watching === null) return
  const [skew, clock] = await drill(t, watching, 'TollgateClockSkew', async () => {})
  t.match(skew, /-(2\.\d|3)/, 'a negative value is a process ahead of the store')
  t.match(clock, / 1/, 'it still writes')
})
