/** Slow and silent stores and brokers: the answers that clients get meanwhile and afterwards. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openProxy, type Proxy } from '../fakes/proxy.ts'
import { kafka, ownKafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { burst, outcome, tallied } from './burst.ts'
import { at, chat, get } from './calls.ts'
import { openSite } from './deployment.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import type { Program } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

const MIB = 1024 * 1024
const IMAGE = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }

t.setTimeout(SIDE_TIMEOUT_MS)

async function proxyFor(t: Test, port: number): Promise<Proxy> {
  const proxy = await openProxy()
  t.teardown(() => proxy.close())
  proxy.leadsTo(port)
  return proxy
}

/** A controller, a gateway and a worker over these servers, with a key of each product. */
async function startOver(t: Test, servers: { mongodb: string; brokers: string }): Promise<{ program: Program; media: string; coding: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const site = openSite(servers)
  t.teardown(async () => {
    await site.close()
    await rm(folder, { recursive: true, force: true })
  })
  await declare(folder, 'plans', mediaPlan('studio'), apiKey('media', 'studio'), codingPlan('coder', { requestsPerMinute: 100_000 }), apiKey('coding', 'coder'))
  const program = await site.start({ folder, roles: ['controller', 'gateway', 'worker'], env: { TASK_LEASE_SECONDS: '5' } })
  t.teardown(() => program.kill())
  return { program, media: await program.key('media'), coding: await program.key('coding') }
}

const residentBytes = async ({ opsUrl }: Program): Promise<number> =>
  Number(/^process_resident_memory_bytes (\d+)/m.exec(await (await fetch(`${opsUrl}/metrics`)).text())?.[1])

/** Without a timeout: a sweep finds a claim with an unknown outcome after a minute. */
async function completes(program: Program, key: string, id: unknown): Promise<void> {
  for (;;) {
    const { body } = await get(program, key, `/api/v1/generations/${String(id)}`)
    if (at(body, 'status') === 'completed') return
    if (at(body, 'status') !== 'queued' && at(body, 'status') !== 'processing' && at(body, 'error', 'code') !== 'unavailable') throw new Error(`it is ${JSON.stringify(body)}`)
    await pause(100)
  }
}

t.test('requests succeed with a slow store; a silent one means 503 with Retry-After without memory growth, and service recovers by itself', async (t) => {
  const [store, brokers] = [await mongodb(t), await kafka(t)]
  if (store === null || brokers === null) return
  const address = new URL(store)
  const proxy = await proxyFor(t, Number(address.port))
  address.port = String(proxy.port)
  const { program, media, coding } = await startOver(t, { mongodb: String(address), brokers })
  t.equal((await chat(program, coding)).status, 200)

  proxy.delay(500)
  t.equal((await chat(program, coding)).status, 200)
  const slow = await outcome(program, media, '/api/v1/generations', IMAGE)
  t.equal(slow.status, 202)

  proxy.blackHole()
  const beforeBytes = await residentBytes(program)
  const body = { model: 'svc-code', messages: [{ role: 'user', content: 'Hello'.repeat(2000) }] }
  const refused = await burst(200, 200, (index) =>
    index % 2 === 0 ? outcome(program, coding, '/v1/chat/completions', body) : outcome(program, media, '/api/v1/generations', IMAGE),
  )
  t.same(tallied(refused), { '503 unavailable': 200 })
  t.ok(refused.every(({ headers }) => Number(headers.get('retry-after')) > 0))
  const grownBytes = (await residentBytes(program)) - beforeBytes
  t.ok(grownBytes < 200 * MIB, `${Math.round(grownBytes / MIB)} MiB more`)

  proxy.delay(0)
  proxy.pass()
  await eventually('service', async () => ((await chat(program, coding)).status === 200 ? true : null))
  await completes(program, media, at(slow.body, 'id'))
  // Tasks of those 503 were rolled back or never existed: none stays queued for ever.
  const { status, body: made } = await outcome(program, media, '/api/v1/generations', IMAGE)
  t.equal(status, 202)
  await completes(program, media, at(made, 'id'))
})

t.test('with a slow or silent broker tasks are accepted and run, and the broker is used again once it answers', async (t) => {
  const store = await mongodb(t)
  const proxy = await proxyFor(t, 0)
  const broker = store === null ? null : await ownKafka(t, { advertised: proxy.port })
  if (store === null || broker === null) return
  proxy.leadsTo(Number(broker.brokers.split(':')[1]))
  const { program, media } = await startOver(t, { mongodb: store, brokers: `127.0.0.1:${proxy.port}` })
  const run = async (): Promise<void> => {
    const { status, body } = await outcome(program, media, '/api/v1/generations', IMAGE)
    t.equal(status, 202)
    await completes(program, media, at(body, 'id'))
  }
  const brokerSays = (wanted: boolean) =>
    eventually(wanted ? 'the broker to be in order' : 'the broker to be missed', async () => {
      const { checks } = (await (await fetch(`${program.opsUrl}/readyz`)).json()) as { checks: { name: string; degraded?: boolean }[] }
      return (checks.find(({ name }) => name === 'broker')?.degraded !== true) === wanted ? true : null
    })
  await run()
  await brokerSays(true)
  proxy.delay(500)
  await run()
  proxy.blackHole()
  const beforeBytes = await residentBytes(program)
  await run()
  await brokerSays(false)
  const accepted = await burst(30, 10, () => outcome(program, media, '/api/v1/generations', IMAGE))
  t.same(tallied(accepted), { '202': 30 })
  for (const { body } of accepted) await completes(program, media, at(body, 'id'))
  const grownBytes = (await residentBytes(program)) - beforeBytes
  t.ok(grownBytes < 200 * MIB, `${Math.round(grownBytes / MIB)} MiB more`)
  proxy.delay(0)
  proxy.pass()
  await brokerSays(true)
  await run()
})
