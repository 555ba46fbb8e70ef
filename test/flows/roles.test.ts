/** Roles as separate processes: outages of their servers, stop and kill, and several processes of a role. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb, ownMongodb } from '../servers/mongodb.ts'
import { answer, at, chat, get, post, type Json } from './calls.ts'
import { openSite, type Site } from './deployment.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { launch, type Process, type Program } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

/** A folder with a plan and a key of each product, and a deployment on the servers; `store` is a private server. Null if the test is skipped. */
async function siteFor(t: Test, store?: string): Promise<{ site: Site; folder: string } | null> {
  const [url, brokers] = [store ?? (await mongodb(t)), await kafka(t)]
  if (url === null || brokers === null) return null
  const site = openSite({ mongodb: url, brokers })
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await declare(folder, 'plans', mediaPlan('studio'), apiKey('media', 'studio'), codingPlan('coder'), apiKey('coding', 'coder'))
  t.teardown(async () => {
    if (store === undefined) await site.close()
    await rm(folder, { recursive: true, force: true })
  })
  return { site, folder }
}

async function startFor(t: Test, site: Site, folder: string, roles: Role[], env: Record<string, string> = {}): Promise<Program> {
  const program = await site.start({ folder, roles, env })
  t.teardown(() => program.kill())
  return program
}

async function joinFor(t: Test, site: Site, folder: string, role: Role, env: Record<string, string> = {}): Promise<Process> {
  const one = await site.join(folder, role, env)
  t.teardown(() => one.kill())
  return one
}

async function readiness(opsUrl: string): Promise<{ status: number; readyz: Json; check: (name: string) => Json }> {
  const response = await fetch(`${opsUrl}/readyz`)
  const readyz = (await response.json()) as { checks: { name: string }[] }
  return { status: response.status, readyz, check: (name) => readyz.checks.find((check) => check.name === name) }
}

const create = async (program: Program, key: string, body: object) => (await answer(await post(program, key, '/api/v1/generations', body))).body
const record = async (program: Program, key: string, task: Json) => (await get(program, key, `/api/v1/generations/${String(at(task, 'id'))}`)).body
const reaches = (program: Program, key: string, task: Json, status: string) =>
  eventually(`the task to be ${status}`, async () => {
    const now = await record(program, key, task)
    return at(now, 'status') === status ? now : null
  })

const IMAGE = { kind: 'image', prompt: 'a lighthouse', size: '64x64' }
/** Long enough to be interrupted. */
const FILM = { kind: 'video', prompt: 'a lighthouse', size: '1280x720', duration_seconds: 3 }

t.test('a role that waits for its store is alive and not ready, reports the wait without the password, and serves once the store is reachable', async (t) => {
  const store = await ownMongodb(t)
  if (store === null) return
  const { site, folder } = (await siteFor(t, store.url)) ?? {}
  if (!site || !folder) return
  const settings = await site.settings(folder)
  await store.kill()
  const starting = (['gateway', 'worker', 'dispatcher', 'controller'] as const).map((role) => {
    const one = launch({ folder, role, env: settings })
    t.teardown(() => one.kill())
    return one
  })
  for (const one of starting) {
    const opsUrl = await one.opsUrl
    t.equal((await fetch(`${opsUrl}/livez`)).status, 200)
    const { status, check } = await eventually('what it waits for', async () => {
      const seen = await readiness(opsUrl)
      return String(at(seen.check('store'), 'detail')).startsWith('waiting') ? seen : null
    })
    t.equal(status, 503)
    t.match(check('store'), { ok: false, detail: /ECONNREFUSED/ })
    const metrics = await (await fetch(`${opsUrl}/metrics`)).text()
    for (const line of [/^tollgate_build_info\{role="\w+",/m, /^tollgate_check_ok\{check="program"\} 0$/m, /^tollgate_check_ok\{check="store"\} 0$/m]) t.match(metrics, line)
    await eventually('the log to say so', async () => (one.log.some((line) => line.includes('"event":"backend_unavailable"') && line.includes('mongodb://')) ? true : null))
  }
  const named = launch({ folder, role: 'gateway', env: { ...settings, STORE_URL: settings['STORE_URL']?.replace('//', '//keeper:hunter2@') ?? '' } })
  t.teardown(() => named.kill())
  const opsUrl = await named.opsUrl
  const { readyz } = await eventually('what it waits for', async () => {
    const seen = await readiness(opsUrl)
    return String(at(seen.check('store'), 'detail')).startsWith('waiting') && named.log.some((line) => line.includes('"event":"backend_unavailable"') && line.includes('mongodb://')) ? seen : null
  })
  t.notMatch([JSON.stringify(readyz), ...named.log].join('\n'), /hunter2/)
  await named.kill()
  await store.start()
  for (const { ready } of starting) t.equal((await readiness((await ready).opsUrl)).status, 200)
})

t.test('a stopped worker hands its task back without using an attempt, and the next one runs it', async (t) => {
  const { site, folder } = (await siteFor(t)) ?? {}
  if (!site || !folder) return
  const program = await startFor(t, site, folder, ['controller', 'gateway'])
  const first = await joinFor(t, site, folder, 'worker', { SHUTDOWN_SECONDS: '0' })
  const key = await program.key('media')
  const task = await create(program, key, FILM)
  await reaches(program, key, task, 'processing')
  t.same(await first.stop(), { code: 0, signal: null })
  t.match(await record(program, key, task), { attempts: 0, completed_at: null })
  await joinFor(t, site, folder, 'worker')
  await eventually('the next run', async () => (at(await record(program, key, task), 'attempts') === 1 ? true : null))
})

t.test('a stopped dispatcher hands its delivery back, and the next one sends it as the same attempt', async (t) => {
  const { site, folder } = (await siteFor(t)) ?? {}
  if (!site || !folder) return
  const receiver = await openReceiver(t)
  receiver.next('never')
  const env = { EGRESS_ALLOW: '127.0.0.1/32' }
  const program = await startFor(t, site, folder, ['controller', 'gateway', 'worker'], env)
  const first = await joinFor(t, site, folder, 'dispatcher', { ...env, SHUTDOWN_SECONDS: '0' })
  const key = await program.key('media')
  const task = await create(program, key, { ...IMAGE, webhook_url: `${receiver.url}/hook` })
  await receiver.arrived(1)
  t.same(await first.stop(), { code: 0, signal: null })
  await joinFor(t, site, folder, 'dispatcher', env)
  await receiver.arrived(2)
  const attempts = await eventually('the attempt to be written down', async () => {
    const { body } = await get(program, key, `/api/v1/generations/${String(at(task, 'id'))}/deliveries`)
    const made = at(body, 'data', 0, 'attempts') as Json[] | undefined
    return made && made.length > 0 ? made : null
  })
  t.equal(attempts.length, 1)
  t.match(attempts[0], { status_code: 204 })
})

t.test('of two controllers one leads; the other is alive, reports that it stands by, and takes over when the leader exits', async (t) => {
  const { site, folder } = (await siteFor(t)) ?? {}
  if (!site || !folder) return
  const program = await startFor(t, site, folder, ['controller', 'gateway'])
  const key = await program.key('coding')
  const settings = await site.settings(folder)
  const place = join(folder, 'second')
  await mkdir(place)
  const second = launch({ folder: place, role: 'controller', env: { ...settings, RESOURCES_URL: `files:${join(folder, 'plans')}` } })
  t.teardown(() => second.kill())
  const { status } = await eventually('the second to wait', async () => {
    const seen = await readiness(await second.opsUrl)
    return /another controller holds it/.test(JSON.stringify(seen.readyz)) ? seen : null
  })
  t.equal(status, 503)
  await program.processes.find(({ role }) => role === 'controller')?.stop()
  await second.ready
  t.equal((await chat(program, key)).status, 200, 'no key was taken away')
  await declare(folder, 'plans', mediaPlan('studio'), apiKey('media', 'studio'), codingPlan('coder', { state: 'Suspended' }), apiKey('coding', 'coder'))
  await eventually('the suspension', async () => ((await chat(program, key)).status === 403 ? true : null))
})
