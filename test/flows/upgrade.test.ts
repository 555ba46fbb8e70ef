/** An upgrade from the version that the changelog names, a roll-back and another upgrade, under load, with data of every kind: nothing is lost, nothing is charged twice, and `verify` finds nothing. */
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { emptyDatabase } from '../backends/store/empty-store.ts'
import { LOAD_PLANS, IMAGE_PRICE, settled } from '../drills/load.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { openLoad } from '../pods/load.ts'
import { mongodb } from '../servers/mongodb.ts'
import { freePort } from '../servers/process.ts'
import { answer, at, chat, get, post, type Caller, type Json } from './calls.ts'
import { COMMON_ENGINES, earlierVersion } from './earlier.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan, withdraw } from './manifests.ts'
import { PROGRAM, start } from './program.ts'
import { run } from './run.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

const PATHS = ['/api/v1/generations', '/api/v1/operations']

async function create(program: Caller, key: string, body: object, headers: Record<string, string> = {}): Promise<string> {
  const { status, body: record } = await answer(await post(program, key, '/api/v1/generations', { prompt: 'a lighthouse', kind: 'image', size: '64x64', ...body }, undefined, headers))
  if (status !== 202) throw new Error(`a creation was answered ${status}: ${JSON.stringify(record)}`)
  return String(at(record, 'id'))
}

/** Whatever a tenant can read of its past, without what goes on and without links, whose signatures are of the time. */
async function pastOf(program: Caller, key: string, tasks: readonly string[]): Promise<Json> {
  const records = await Promise.all(tasks.map(async (id) => (await get(program, key, `${PATHS[0]}/${id}`)).body))
  const deliveries = await Promise.all(tasks.map(async (id) => at((await get(program, key, `${PATHS[0]}/${id}/deliveries`)).body, 'data')))
  return JSON.parse(JSON.stringify({ records, deliveries }), (name, value) => (name.endsWith('_url') && name !== 'webhook_url' ? 'a link' : value))
}

type Place = { name: string; settings(t: Test, folder: string): Promise<Record<string, string> | null> }

const PLACES: Place[] = [
  { name: 'SQLite', settings: async () => ({}) },
  {
    name: 'MongoDB',
    async settings(t, folder) {
      const server = await mongodb(t)
      if (server === null) return null
      const file = (name: string) => join(folder, name)
      await writeFile(file('sealing.key'), `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 })
      await writeFile(file('engines.yaml'), COMMON_ENGINES)
      await writeFile(file('upstreams.yaml'), 'upstreams: [{ name: echo, baseUrl: "echo:", wire: both }]\n')
      return { STORE_URL: (await emptyDatabase(t, server)).url, FILES_URL: 'gridfs:', SEALING_KEY_FILE: file('sealing.key'), ENGINES: file('engines.yaml'), UPSTREAMS: file('upstreams.yaml') }
    },
  },
]

for (const { name, settings } of PLACES) {
  t.test(`${name}: upgrade, roll-back and upgrade under load keep every record, charge each task once, and verify finds nothing`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
    const folder = t.testdir({})
    const own = await settings(t, folder)
    const version = own && (await earlierVersion(t))
    if (own === null || version === null) return
    const { root: earlier, rollsBack } = version
    const receiver = await openReceiver(t)
    receiver.always(({ path }) => ({ status: path === '/broken' ? 500 : 204 }))
    await declare(folder, 'plans', ...LOAD_PLANS, apiKey('rotated', 'coder'), apiKey('revoked', 'coder'))
    await declare(folder, 'later', mediaPlan('past'), apiKey('past', 'past'), codingPlan('asleep'), apiKey('asleep', 'asleep'))
    const port = String(await freePort())
    const env = { ...own, PORT: port, PUBLIC_URL: `http://127.0.0.1:${port}`, EGRESS_ALLOW: '127.0.0.1/32', WEBHOOK_DELAYS_SECONDS: '0,3600' }
    const started = async (root?: string) => {
      const program = await start({ folder, env, ...(root === undefined ? {} : { root }) })
      t.teardown(() => program.kill())
      return program
    }

    let program = await started(earlier)
    const keys = { media: await program.key('media'), coding: await program.key('coding') }
    const [past, asleep, rotated] = await Promise.all(['past', 'asleep', 'rotated'].map((name) => program.key(name)))
    const made = await create(program, keys.media, { webhook_url: `${receiver.url}/hook`, metadata: { order: '7' } }, { 'idempotency-key': 'seven' })
    const undelivered = await create(program, keys.media, { webhook_url: `${receiver.url}/broken` })
    const other = await create(program, String(past), {})
    t.equal((await chat(program, String(asleep))).status, 200)
    t.equal((await chat(program, String(rotated))).status, 200)
    const state = async (id: string, key: string) => String(at((await get(program, key, `${PATHS[0]}/${id}`)).body, 'status'))
    for (const [id, key] of [[made, keys.media], [undelivered, keys.media], [other, past]] as const) await eventually('a task to end', async () => ((await state(id, String(key))) === 'completed' ? true : null))
    await receiver.arrived(2)
    await declare(folder, 'plans', ...LOAD_PLANS, apiKey('rotated', 'coder', { rotationRevision: 1 }), apiKey('revoked', 'coder', { state: 'Revoked' }))
    await declare(folder, 'later', codingPlan('asleep', { state: 'Suspended' }), apiKey('asleep', 'asleep'))
    await eventually('the suspension', async () => ((await chat(program, String(asleep))).status === 403 ? true : null))
    await eventually('the attempts to be recorded', async () => (JSON.stringify(await pastOf(program, keys.media, [made, undelivered])).includes('"status_code":500') ? true : null))
    const before = await pastOf(program, keys.media, [made, undelivered])

    const load = openLoad({ url: program.url }, keys, { clients: 2, again: true, tries: 600 })
    for (const root of [undefined, earlier, undefined]) {
      await program.stop()
      if (root === earlier && !rollsBack.includes(name)) {
        await t.rejects(started(root), /has schema \d+ and this Tollgate supports none newer than \d+: start the newer Tollgate/, 'the changelog says that it refuses')
        continue
      }
      program = await started(root)
      t.same(await pastOf(program, keys.media, [made, undelivered]), before, root === undefined ? 'after an upgrade' : 'after a roll-back')
      const repeated = await answer(await post(program, keys.media, PATHS[0] ?? '', { prompt: 'a lighthouse', kind: 'image', size: '64x64', webhook_url: `${receiver.url}/hook`, metadata: { order: '7' } }, undefined, { 'idempotency-key': 'seven' }))
      t.same([repeated.status, at(repeated.body, 'id')], [200, made], 'the same order is the same task')
      t.equal((await chat(program, String(asleep))).status, 403, 'a suspended plan stays suspended')
      await eventually('tasks of the load to end in this version', async () => (Number(at((await get(program, keys.media, '/api/v1/usage')).body, 'burned')) > 0 ? true : null))
    }
    const { done, failed, ordered } = await load.stop()
    t.comment(`${done} calls meanwhile, ${failed.length} failed, ${ordered} images ordered`)
    t.same(failed, [])
    t.equal(await settled(program, keys.media), ((ordered + 2) * IMAGE_PRICE).toFixed(4), 'every image was made and charged once')
    await withdraw(folder, 'later')
    const verified = await run(process.execPath, [PROGRAM, 'verify'], { cwd: folder, env: program.env })
    t.equal(verified.code, 0, `${verified.stdout}${verified.stderr}`.slice(0, 2000))
  })
}
