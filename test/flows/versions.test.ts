/**
 * Processes of the earlier version and of this one side by side on one store and one broker, for each role, under load: the earlier ones alone, both, this version's alone, and
 * back, and forward again. Requests of one plan go to gateways of both versions in turn. At the end, a gateway, a worker
 * and a dispatcher of the earlier version are killed one after another, and then those of this one; no controller is.
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { IMAGE_PRICE, LOAD_PLANS, settled } from '../drills/load.ts'
import { openSteps } from '../drills/steps.ts'
import { openReceiver, verifies } from '../fakes/receiver.ts'
import { all, answer, at, chat, events, get, post, used, type Json } from './calls.ts'
import { siteFor } from './deployment.ts'
import { COMMON_ENGINES, earlierVersion } from './earlier.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { PROGRAM, whole, type Process } from './program.ts'
import { run } from './run.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'
import { persistently } from './systems.ts'

type Version = 'earlier' | 'present'
/** `isKilled`: what it was asked last may be done or not. */
type Running = Process & { version: Version; isKilled: boolean }

/** A busy plan is admitted by leases, and charges make usage records: the earlier version may know neither. A gateway that stops serves what was sent before it left the load balancer. */
const ENV = { USAGE_DAYS: '30', EGRESS_ALLOW: '127.0.0.1/32', WORKER_SLOTS: '2', DRAIN_DELAY_SECONDS: '1', SHUTDOWN_SECONDS: '120' }
const CODERS = 4
const ORDER_PAUSE_MS = 250
/** Without it, clients and processes on the same cores only make each other wait. */
const CODE_PAUSE_MS = 100
/** Orders just before a kill: some of them are begun, and some wait. */
const BURST = 6

/** Manifests in a folder have one controller at a time. */
const OTHERS = ['gateway', 'worker', 'dispatcher'] as const

/** What a process has done, by its metrics. */
const WORK: Partial<Record<Role, RegExp>> = {
  gateway: /^tollgate_http_requests_total\{.*code="20\d".*\} (\d+)/gm,
  worker: /^tollgate_task_run_seconds_count\{.*outcome="completed".*\} (\d+)/gm,
  dispatcher: /^tollgate_webhook_deliveries_total\{.*outcome="delivered".*\} (\d+)/gm,
}

t.setTimeout(SIDE_TIMEOUT_MS)

t.test('versions side by side: no request fails, keys change at all gateways, and every task and token is charged once and recorded by those that record', async (t) => {
  const [place, earlier] = [await siteFor(t), await earlierVersion(t)]
  if (place === null || earlier === null) return
  const { site, folder } = place
  const { step, end } = openSteps(t)
  const receiver = await openReceiver(t)

  const env = { ...ENV, PORT: '0', ENGINES: join(folder, 'common.yaml') }
  await writeFile(env.ENGINES, COMMON_ENGINES)
  const fleet: Record<Version, Running[]> = { earlier: [], present: [] }
  const everyone: Running[] = []
  const processes = () => [...fleet.earlier, ...fleet.present]
  const gateways = () => processes().filter(({ role }) => role === 'gateway')
  t.teardown(() => Promise.all(processes().map((one) => one.kill())))

  async function add(version: Version, ...roles: Role[]): Promise<void> {
    const root = version === 'earlier' ? earlier?.root : undefined
    const start = async (role: Role): Promise<void> => {
      const one = Object.assign(await persistently(() => site.join(folder, role, env, root)), { version, isKilled: false })
      fleet[version].push(one)
      everyone.push(one)
    }
    await Promise.all(roles.map(start))
  }
  /** A gateway leaves the load balancer before it stops. */
  async function remove(version: Version, ...roles: Role[]): Promise<void> {
    const leaving = fleet[version].filter(({ role }) => roles.includes(role))
    fleet[version] = fleet[version].filter(({ role }) => !roles.includes(role))
    await Promise.all(leaving.map(async (one) => t.same(await one.stop(), { code: 0, signal: null }, `a clean stop of the ${version} ${one.role}`)))
  }

  /** SIGKILL of one that has worked, amid its work; another one of its version takes its place. */
  async function kill(version: Version, role: Role, n: number): Promise<void> {
    const one = fleet[version].find((each) => each.role === role)
    const [gateway] = fleet[version === 'earlier' ? 'present' : 'earlier'].filter((each) => each.role === 'gateway')
    if (!one || !gateway) throw new Error(`there is no ${version} ${role}, or no gateway of the other version`)
    await eventually(`work of the ${version} ${role}`, async () => ((await workOf(one)) > 0 ? true : null))
    await Promise.all(Array.from({ length: BURST }, (_, i) => order(gateway, 1_000_000 + n * BURST + i)))
    one.isKilled = true
    fleet[version] = fleet[version].filter((each) => each !== one)
    await one.kill()
    await add(version, role)
  }

  const declared = (revision: number) => [
    ...LOAD_PLANS,
    apiKey('rotated', 'coder', { rotationRevision: revision }),
    codingPlan('paused', { state: revision % 2 === 0 ? 'Active' : 'Suspended' }),
    apiKey('paused', 'paused'),
    apiKey(`new-${revision}`, 'coder'),
  ]
  await declare(folder, 'plans', ...declared(0))
  await step(`start of the earlier version, ${earlier.commit}`, () => add('earlier', 'controller', ...OTHERS))
  const secrets = whole(gateways(), (await site.settings(folder))['DATA_DIR'] ?? `${folder}/data`)
  const [media, coding, paused] = [await secrets.key('media'), await secrets.key('coding'), await secrets.key('paused')]

  /** Coding requests by the version that served them, and the tokens of all. */
  const served: Record<Version, number> = { earlier: 0, present: 0 }
  let tokens = 0
  /** Of one request. */
  let most = 0
  const tasks = new Set<string>()
  const failed: string[] = []
  let isOver = false
  t.teardown(() => (isOver = true))

  function count({ version }: Running, usage: Json): void {
    served[version]++
    const total = Number(at(usage, 'total_tokens'))
    tokens += total
    most = Math.max(most, total)
  }
  async function talk(gateway: Running, key: string): Promise<number> {
    const answered = await chat(gateway, key)
    if (answered.status === 200) count(gateway, at(answered.body, 'usage'))
    return answered.status
  }
  async function listen(gateway: Running, key: string): Promise<void> {
    const messages = [{ role: 'user', content: 'Count.' }]
    const response = await post(gateway, key, '/v1/chat/completions', { model: 'svc-code', stream: true, stream_options: { include_usage: true }, messages })
    const seen = await all(events(response))
    const usage = seen.map(({ data }) => at(data, 'usage')).find((one) => typeof one === 'object' && one !== null)
    if (seen.at(-1)?.data !== '[DONE]' || !usage) throw new Error(`a stream (${response.status}) ended with ${JSON.stringify(seen.at(-1))}`)
    count(gateway, usage)
  }
  async function order(gateway: Running, n: number): Promise<void> {
    const body = { kind: 'image', prompt: `order ${n}`, size: '64x64', webhook_url: `${receiver.url}/hook` }
    const accepted = await answer(await post(gateway, media, '/api/v1/generations', body, undefined, { 'idempotency-key': `order-${n}` }))
    // 200 where a killed gateway had accepted it.
    if (accepted.status !== 202 && accepted.status !== 200) throw new Error(`an order was answered ${accepted.status}: ${JSON.stringify(accepted.body)}`)
    tasks.add(String(at(accepted.body, 'id')))
  }
  async function repeat(call: (gateway: Running, n: number) => Promise<unknown>, first: number, pauseMs: number): Promise<void> {
    for (let n = first; !isOver; n++) {
      const gateway = gateways()[n % gateways().length]
      if (!gateway) throw new Error('no gateway is there')
      await call(gateway, n).catch((error: unknown) => {
        if (gateway.isKilled) n-- // Again, at another one.
        else failed.push(`${gateway.version}: ${String(error)} ${String((error as Error).cause ?? '')}`)
      })
      await pause(pauseMs)
    }
  }
  const code = async (gateway: Running, n: number) => {
    if (n % 2 === 0) return listen(gateway, coding)
    const status = await talk(gateway, coding)
    if (status !== 200) throw new Error(`a chat was answered ${status}`)
  }
  const begin = () => Promise.all([...Array.from({ length: CODERS }, (_, n) => repeat(code, n, CODE_PAUSE_MS)), repeat(order, tasks.size, ORDER_PAUSE_MS)])
  const load = begin()

  let revision = 0
  let rotated = await secrets.key('rotated')
  let last = await secrets.key('new-0')
  /** Keys are issued, rotated and deleted and a plan changes its state, for all gateways; and every process has worked. */
  async function proven(): Promise<void> {
    const before = await Promise.all(processes().map(workOf))
    await declare(folder, 'plans', ...declared(++revision))
    const isLater = async (key: string | null) => (key !== null && key !== rotated ? key : null)
    rotated = await eventually('the rotation', async () => isLater(await secrets.keyNow('rotated')))
    const fresh = await eventually('a new key', () => secrets.keyNow(`new-${revision}`))
    for (const gateway of gateways()) {
      const answers = async (key: string, status: number) => eventually(`${status} from the ${gateway.version} gateway`, async () => ((await talk(gateway, key)) === status ? true : null))
      await answers(rotated, 200)
      await answers(fresh, 200)
      await answers(last, 401)
      await answers(paused, revision % 2 === 0 ? 200 : 403)
    }
    last = fresh
    for (const [n, one] of processes().entries()) await eventually(`work of the ${one.version} ${one.role}`, async () => (!(one.role in WORK) || (await workOf(one)) > (before[n] ?? 0) ? true : null))
    t.same(failed, [])
  }

  await step('the earlier version alone', proven)
  for (const [joining, leaving] of [['present', 'earlier'], ['earlier', 'present'], ['present', 'earlier']] as const) {
    await step(`processes of the ${joining} version join`, () => add(joining, ...OTHERS))
    await step(`both versions, with the ${leaving} controller`, proven)
    await remove(leaving, 'controller')
    await add(joining, 'controller')
    await step(`both versions, with the ${joining} controller`, proven)
    await step(`those of the ${leaving} version leave`, () => remove(leaving, ...OTHERS))
    await step(`the ${joining} version alone`, proven)
  }
  isOver = true
  await load
  t.comment(`${served.earlier} coding requests of the earlier version, ${served.present} of this one, ${tasks.size} tasks`)
  t.same(failed, [])

  const [gateway] = gateways()
  if (!gateway) return
  t.equal(await settled(gateway, media), (tasks.size * IMAGE_PRICE).toFixed(4), 'every task was made and charged once')
  const totals = await Promise.all([coding, paused].map((key) => used(gateway, key)))
  t.equal(totals.reduce((sum, { weekly }) => sum + weekly, 0), tokens, 'every token was charged once')

  const told = () => receiver.received.map(({ rawBody }) => String(at(JSON.parse(String(rawBody)), 'data', 'task_id')))
  await eventually('the webhooks', async () => (new Set(told()).size === tasks.size ? true : null))
  t.same(told().toSorted(), [...tasks].toSorted(), 'one webhook for each task')
  for (const webhook of receiver.received) if (!(await verifies(webhook, media))) t.fail(`the signature of ${String(webhook.rawBody)}`)

  const command = (...args: string[]) => run(process.execPath, [PROGRAM, ...args], { cwd: folder, env: gateway.env })
  const recorded = (await command('usage', 'export')).stdout.split('\n').filter((line) => line.startsWith('{')).map((line): Json => JSON.parse(line))
  const ids = (member: string) => recorded.flatMap((one) => at(one, 'data', member) ?? []).map(String)
  const lines = everyone.filter(({ version, role }) => version === 'present' && role === 'gateway').flatMap(({ log }) => log)
  // A request that a lease admitted just before its plan was suspended is answered 403 and charged nothing.
  const charged = lines.filter((line) => line.includes('"charged"')).map((line): Json => JSON.parse(line)).filter((line) => Number(at(line, 'charged')) > 0)
  const reservations = charged.map((line) => String(at(line, 'reservation')))
  t.equal(reservations.length, served.present)
  t.same(ids('request').toSorted(), reservations.toSorted(), 'one usage record for each coding request of this version')
  t.ok(ids('task').length > 0 && ids('task').every((id) => tasks.has(id)) && new Set(ids('task')).size === ids('task').length, 'at most one usage record for each task')
  const verified = async () => {
    const { code, stdout, stderr } = await command('verify')
    t.equal(code, 0, `${stdout}${stderr}`.slice(0, 2000))
  }
  await verified()

  await step('processes of the earlier version join once more', () => add('earlier', ...OTHERS))
  let kills = 0
  for (const roles of [['worker', 'dispatcher'], ['gateway']] as const) {
    isOver = false
    const rest = begin()
    for (const version of ['earlier', 'present'] as const) for (const role of roles) await step(`a kill of the ${version} ${role}`, () => kill(version, role, kills++))
    isOver = true
    await rest
    t.same(failed, [])
    const [left] = gateways()
    if (!left) return
    t.equal(await settled(left, media), (tasks.size * IMAGE_PRICE).toFixed(4), 'every task was made and charged once, whoever was killed')
    await eventually('the webhooks', async () => (new Set(told()).size === tasks.size ? true : null))
    // What a killed gateway had in flight, one request of each coder, is charged as it was reserved, if it was: with the output rounded up to a power of two.
    const limit = tokens + everyone.filter(({ role, isKilled }) => isKilled && role === 'gateway').length * CODERS * 2 * most
    await eventually(`${tokens} to ${limit} tokens to be charged or reserved`, async () => {
      const sessions = await Promise.all([coding, paused].map(async (key) => at((await get(left, key, '/v1/usage')).body, 'session')))
      const counted = sessions.reduce<number>((sum, session) => sum + Number(at(session, 'used')) + Number(at(session, 'reserved')), 0)
      return tokens <= counted && counted <= limit ? counted : null
    })
  }
  await verified()
  end()
})

/** How much a process has done so far; 0 of a controller. */
async function workOf({ role, opsUrl }: Process): Promise<number> {
  const pattern = WORK[role]
  if (!pattern) return 0
  const text = await (await fetch(`${opsUrl}/metrics`)).text()
  return [...text.matchAll(pattern)].reduce((sum, [, number]) => sum + Number(number), 0)
}
