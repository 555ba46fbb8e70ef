/** The operator's commands over both stores, and their command line. */
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { readCommandLine } from '../../src/bootstrap/command-line.ts'
import { runCommand } from '../../src/bootstrap/commands.ts'
import { lock } from '../../src/bootstrap/process-lock.ts'
import { readConfig } from '../../src/config/config.ts'
import { mint, open, seal } from '../../src/domain/api-keys.ts'
import { holdOf } from '../../src/domain/subscription/holds.ts'
import { openFiles } from '../../src/backends/files/files.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { emptyDatabase } from '../backends/store/empty-store.ts'
import { keyVersion, logged, task } from '../contracts/store/acme.ts'
import { run } from '../flows/run.ts'
import { PROGRAM } from '../flows/program.ts'
import { mongodb } from '../servers/mongodb.ts'
import { fill, HOUR_MS, NOW, STUDIO, taskId } from '../verify/filled-store.ts'

const DAY_MS = 24 * 3_600_000
const [OLD, NEW, LOST] = [1, 2, 3].map((n) => Buffer.alloc(32, n)) as [Buffer, Buffer, Buffer]
const fileOf = (...keys: Buffer[]) => keys.map((key) => `${key.toString('base64')}\n`).join('')

type World = { env: Record<string, string>; store(): Promise<Store> }
type Place = { name: string; open(t: Test): Promise<{ url: string; files: string } | null> }

const PLACES: Place[] = [
  { name: 'SQLite', open: async (t) => ({ url: `sqlite:${join(t.testdir({}), 'tollgate.db')}`, files: `disk:${t.testdirName}/files` }) },
  {
    name: 'MongoDB',
    async open(t) {
      const server = await mongodb(t)
      return server === null ? null : { url: (await emptyDatabase(t, server)).url, files: 'gridfs:' }
    },
  },
]

/** A filled store with its settings. It is closed, since a command on SQLite with `--yes` has to be alone. */
async function openWorld(t: Test, place: Place): Promise<World | null> {
  const at = await place.open(t)
  if (at === null) return null
  const folder = join(t.testdirName, 'settings')
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'sealing.key'), fileOf(NEW, OLD))
  const store = () => openStore(at.url)
  const first = await store()
  await fill(first)
  await first.close()
  return { env: { STORE_URL: at.url, FILES_URL: at.files, SEALING_KEY_FILE: join(folder, 'sealing.key'), DATA_DIR: folder }, store }
}

async function commanded({ env }: World, ...args: string[]): Promise<{ said: unknown; exitCode: number }> {
  const { config } = readConfig(env, undefined, 'inspect')
  const { output, exitCode } = await runCommand(config, [...args, '--json'], Date.now, async () => {})
  const text = (await runCommand(config, args.filter((arg) => arg !== '--yes'), Date.now, async () => {})).output
  if (!text.endsWith('\n') || text.startsWith('{') || text.startsWith('[')) throw new Error(`no text: ${text}`)
  return { said: JSON.parse(output), exitCode }
}

async function within<T>(world: World, work: (store: Store) => Promise<T>): Promise<T> {
  const store = await world.store()
  return work(store).finally(() => store.close())
}

for (const place of PLACES) {
  t.test(`${place.name}: usage shows the windows and the allowance of every plan, or of a tenant`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const { said, exitCode } = await commanded(world, 'usage')
    t.equal(exitCode, 0)
    t.match(said, [
      { plan: 'acme/code', product: 'Coding', state: 'Active', weekly: { limit: 5000, resetsAt: Number } },
      { plan: 'acme/studio', product: 'Media', state: 'Active', media: { allowance: 1000, openTasks: 2 } },
    ])
    t.same((await commanded(world, 'usage', '--tenant', 'globex')).said, [])
    t.equal((await runCommand(readConfig(world.env, undefined, 'inspect').config, ['usage', '--tenant', 'globex'], Date.now, async () => {})).output, 'There are no plans of globex.\n')
    t.equal(((await commanded(world, 'usage', '--tenant', 'acme')).said as unknown[]).length, 2)
  })

  t.test(`${place.name}: trace tells the story of a task by its id or by that of its request, and of a request in flight by its reservation`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const failed = { id: taskId(2), subscription: STUDIO, state: 'failed', error: 'provider_rejected', isHeld: false, actualCost: 0, refundAmount: 100 }
    t.match(await commanded(world, 'trace', taskId(2)), { said: { tasks: [failed], reservation: null }, exitCode: 0 })
    t.match((await commanded(world, 'trace', taskId(4))).said, { tasks: [{ id: taskId(4), state: 'queued', isHeld: true, readyAt: Number, deliveries: [] }] })
    t.match((await commanded(world, 'trace', 'request-1')).said, { tasks: [], reservation: { subscription: 'acme/code', keyId: 'key-2', at: NOW } })
    t.match(await commanded(world, 'trace', 'request-2'), { said: { tasks: [], reservation: null, request: null }, exitCode: 1 }, 'a settled one is in no record')
    const ended = { id: 'request-2', subscription: 'acme/code', keyId: 'key-2', at: NOW, durationMs: 80, status: 502, code: 'upstream_error', isComplete: true, usage: null, charged: 0 }
    const other = { ...ended, id: taskId(0x71), requestId: taskId(0x70), at: 0x019b8e1a0070, status: 200, code: null }
    await within(world, (store) => store.logRequests([ended, other, ...Array.from({ length: 600 }, (_, n) => ({ ...ended, id: `later-${n}`, at: NOW + 1 }))]))
    t.match(await commanded(world, 'trace', 'request-2'), { said: { tasks: [], reservation: null, request: ended }, exitCode: 0 }, 'but in the list of its plan')
    for (const id of [other.id, other.requestId]) t.match((await commanded(world, 'trace', id)).said, { request: other })
    t.match(await commanded(world, 'trace', other.requestId, '--days', '0'), { said: { request: null }, exitCode: 1 })
    t.match(await commanded(world, 'trace', taskId(9)), { said: { tasks: [], reservation: null }, exitCode: 1 })
    // Made by requests of which one has an id of ours, by whose time its task is sought, and the other one of its client's.
    const ours = taskId(1).replace('-8000-', '-9000-')
    await within(world, async (store) => {
      const [task] = (await store.scan('tasks', null, 1)).found
      if (!task) throw new Error('there is no task')
      for (const [n, requestId] of [[20, ours], [21, 'build-7']] as const) await store.createTask({ ...task, id: taskId(n), idempotency: null, requestId })
    })
    const found = async (...args: string[]) => ((await commanded(world, 'trace', ...args)).said as { tasks: { id: string }[] }).tasks.map(({ id }) => id)
    t.same(await found(ours), [taskId(20)])
    t.same(await found('build-7'), [])
    t.same(await found('build-7', '--days', '100000'), [taskId(21)])
    t.same(await found('build-7', '--days', '0'), [])
  })

  t.test(`${place.name}: stuck tasks are the old open ones, with what they wait for; a running one is taken from its worker and queued again`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const { said } = await commanded(world, 'tasks', 'stuck')
    t.match(said, [
      { id: taskId(3), tenant: 'acme', state: 'processing', waitsFor: 'the sweep, its lease has expired' },
      { id: taskId(4), tenant: 'acme', state: 'queued', waitsFor: 'a worker that takes its kind' },
    ])
    const minutes = String(Math.ceil((Date.now() - NOW) / 60_000) + 5)
    t.same((await commanded(world, 'tasks', 'stuck', '--older-than', minutes)).said, [])

    t.same(await commanded(world, 'tasks', 'requeue', 'acme', taskId(3)), { said: { outcome: 'not_changed', state: 'processing' }, exitCode: 0 })
    const before = await within(world, (store) => store.task('acme', taskId(3)))
    t.same(await commanded(world, 'tasks', 'requeue', 'acme', taskId(3), '--yes'), { said: { outcome: 'queued' }, exitCode: 0 })
    await within(world, async (store) => {
      t.match(await store.task('acme', taskId(3)), { state: 'queued', attempts: 0 })
      t.equal(await store.renewTask(taskId(3), before?.epoch ?? 0, 50, Date.now()), 'lost', 'its worker is refused')
      t.match(holdOf((await store.subscription(STUDIO))?.media?.holds, taskId(3)), { run: null, amount: 100 })
    })
    t.same(await commanded(world, 'tasks', 'requeue', 'acme', taskId(3), '--yes'), { said: { outcome: 'not_running', state: 'queued' }, exitCode: 1 })
    t.same(await commanded(world, 'tasks', 'requeue', 'globex', taskId(3), '--yes'), { said: { outcome: 'not_found' }, exitCode: 1 })
  })

  t.test(`${place.name}: keys of an older sealing key are encrypted anew by the first, and those that no line opens are named`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const raw = mint('svc', randomBytes(32))
    const iv = () => randomBytes(12)
    await within(world, async (store) => {
      for (const [uid, sealing] of [['old', OLD], ['new', NEW], ['lost', LOST]] as const) await store.mintKey(keyVersion(uid, 0, { hash: uid, sealed: seal(raw, `${uid}-0`, [sealing], iv()) }))
      await store.mintKey(keyVersion('erased', 0, { sealed: null, state: 'deleted' }))
      // That of the filled store is no key at all.
      await store.setKey('key-1-1', { sealed: null }, [])
    })
    t.same(await commanded(world, 'reseal'), { said: { current: 1, older: 1, resealed: 0, unopened: ['lost-0'] }, exitCode: 1 })
    t.same(await commanded(world, 'reseal', '--yes'), { said: { current: 1, older: 1, resealed: 1, unopened: ['lost-0'] }, exitCode: 1 })
    const [version] = await within(world, (store) => store.keyVersions('old'))
    t.equal(open(version?.sealed ?? null, 'old-0', [NEW]), raw, 'the old line can go')
    t.same((await commanded(world, 'reseal')).said, { current: 2, older: 0, resealed: 0, unopened: ['lost-0'] })
  })

  t.test(`${place.name}: a purge removes finished tasks and events of before, and nothing else`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const events = (await within(world, (store) => store.scan('events', null, 100))).found.length
    t.ok(events > 0)
    const violations = async (kept: string) => {
      const env = { ...world.env, TASK_DAYS: kept, EVENT_DAYS: kept }
      return ((await commanded({ ...world, env }, 'backup', 'check')).said as { violations: string[] }).violations
    }
    t.same(await violations('3650'), [])
    const days = String(Math.floor((Date.now() - NOW) / DAY_MS))
    const request = { keyId: 'k', durationMs: 1, status: 200, code: null, isComplete: true, usage: null, charged: null }
    await within(world, (store) => store.logRequests([{ id: 'old', subscription: 'gone/coder', at: NOW, ...request }, { id: 'new', subscription: 'gone/coder', at: Date.now(), ...request }]))
    t.same((await commanded(world, 'purge', '--tasks-days', String(Number(days) + 2))).said, { tasks: 0, requests: 0, events: 0, removed: false })
    t.same((await commanded(world, 'purge', '--tasks-days', '1', '--events-days', '1')).said, { tasks: 2, requests: 1, events, removed: false })
    t.same((await commanded(world, 'purge', '--tasks-days', '1', '--yes')).said, { tasks: 2, requests: 1, events: 0, removed: true })
    await within(world, async (store) => {
      t.same(await Promise.all([1, 2, 3, 4].map(async (n) => (await store.task('acme', taskId(n)))?.state ?? null)), [null, null, 'processing', 'queued'])
      t.same((await store.requests('gone/coder', null, 10)).map(({ id }) => id), ['new'])
    })
    t.same((await commanded(world, 'purge', '--events-days', '1', '--yes')).said, { tasks: 0, requests: 0, events, removed: true })
    t.same(await violations('1'), [], 'with the retention of the purge nothing is missing')
    t.not((await violations('3650')).length, 0, 'with a longer one it is')
  })

  t.test(`${place.name}: a backup without its results or with another sealing key is found`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    await within(world, (store) => store.mintKey(keyVersion('lost', 0, { tenant: 'acme', subscription: STUDIO, state: 'active', hash: 'h', sealed: seal(mint('svc', randomBytes(32)), 'lost-0', [LOST], randomBytes(12)) })))
    const { said, exitCode } = await commanded(world, 'backup', 'check')
    t.equal(exitCode, 1)
    // The result of the filled store has expired.
    t.match(said, { checked: { subscriptions: 2, tasks: 4 }, keys: { unopened: ['key-1-1', 'lost-0'] }, results: { present: 0, missing: [] } })
    if (place.name === 'SQLite') t.notOk((await readdir(t.testdirName)).includes('files'), 'nothing is created')

    const result = { file: 'result-1', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: Date.now() + DAY_MS }
    await within(world, (store) => store.moveTask(taskId(1), { from: ['completed'] }, 'completed', { outcome: { outcome: 'completed', cost: 60, result } }))
    t.match((await commanded(world, 'backup', 'check')).said, { results: { present: 0, missing: [taskId(1)] } })
    const files = await openFiles(world.env['FILES_URL'] ?? '', { storeUrl: world.env['STORE_URL'] ?? '' })
    await files.put(result.file, Buffer.from('x'), result)
    await files.close()
    t.match((await commanded(world, 'backup', 'check')).said, { results: { present: 1, missing: [] } })
  })

  t.test(`${place.name}: events that are logged after a restore come after every cursor of before`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    t.same(await commanded(world, 'backup', 'restored'), { said: { eventsAfter: null }, exitCode: 0 })
    const { eventsAfter } = (await commanded(world, 'backup', 'restored', '--yes')).said as { eventsAfter: number }
    t.ok(eventsAfter > NOW)
    await within(world, async (store) => {
      await store.createTask(task(9, { state: 'completed' }))
      await store.relay(logged(9).taskId, [], [logged(9)])
      t.match(await store.events('acme', 1_000_000, 0, 10), [{ id: logged(9).id, position: eventsAfter + 1 }])
    })
  })

  t.test(`${place.name}: a backup is judged as of its newest change, which may be the attempt of a delivery`, async (t) => {
    const world = await openWorld(t, place)
    if (world === null) return
    const violations = async () => ((await commanded(world, 'backup', 'check')).said as { violations: string[] }).violations
    t.same(await violations(), [])
    await within(world, async (store) => {
      const [{ id, epoch } = { id: '', epoch: 0 }] = await store.claimDeliveries(NOW, NOW + 1, { limit: 1, perHost: 1, perTenant: 1, perQueue: 1 })
      const attempt = { number: 1, at: NOW + 2 * HOUR_MS, durationMs: 1, statusCode: 200, error: null, responsePrefix: '' }
      t.equal(await store.recordAttempt(id, epoch, attempt, { state: 'delivered', nextAttemptAt: null }, null), 'recorded')
    })
    t.match(await violations(), [/is processing, and no process has picked it up for 60 minutes/, /is queued, and no process/])
  })
}

t.test('a command with --yes is refused beside a running program on SQLite', async (t) => {
  const world = await openWorld(t, PLACES[0] as Place)
  if (world === null) return
  const path = world.env['STORE_URL']?.slice('sqlite:'.length)
  const held = await lock(`${path}.lock`, 'STORE_URL', '')
  t.teardown(() => held.close())
  await t.rejects(commanded(world, 'reseal', '--yes'), { message: /it must be one that no other running program uses/ })
  t.equal((await commanded(world, 'usage')).exitCode, 0)
})

t.test('a command with --yes changes nothing while the clock of this machine is wrong', async (t) => {
  const world = await openWorld(t, PLACES[0] as Place)
  if (world === null) return
  const { config } = readConfig(world.env, undefined, 'inspect')
  await t.rejects(runCommand(config, ['purge', '--tasks-days', '0', '--yes'], () => Date.now() + 10_000, async () => {}), { message: /differs from the store's by more than 5 s, so that nothing was changed/ })
  t.match(await within(world, (store) => store.task('acme', taskId(1))), { state: 'completed' })
})

t.test('a wrong command line is refused with what it may be', async (t) => {
  const cases: [string, RegExp][] = [
    ['tasks', /it must be one of usage, usage export, tasks stuck, tasks requeue, trace, reseal, purge, backup check, backup restored/],
    ['tasks list', /one of usage/],
    ['usage acme', /usage without acme/],
    ['usage --yes', /usage without --yes/],
    ['usage --all', /a command with the options of tollgate --help \(Unknown option '--all'\)/],
    ['usage --tenant', /--tenant/],
    ['tasks requeue acme', /tasks requeue <namespace> <task>/],
    ['tasks stuck --older-than soon', /--older-than with a number from 0/],
    ['purge', /purge with --tasks-days, --events-days or both/],
    ['purge --events-days 0.5', /--events-days with a number from 1/],
    ['backup', /one of usage/],
    ['usage export --since 2026-02-01 --until 2026-01-01', /--since before its --until/],
  ]
  for (const [line, sentence] of cases) t.throws(() => readCommandLine(line.split(' ')), { name: 'ConfigError', message: sentence }, line)
})

t.test('--help lists every command, and the program runs them', async (t) => {
  const folder = t.testdir({})
  const env = { STORE_URL: `sqlite:${join(folder, 'none.db')}` }
  const { stdout, code } = await run(process.execPath, [PROGRAM, '--help'], { cwd: folder, env: {} })
  t.equal(code, 0)
  for (const command of ['config', 'verify', 'usage', 'tasks stuck', 'tasks requeue', 'reseal', 'purge', 'backup check', 'backup restored']) t.match(stdout, `tollgate ${command}`)
  const missing = await run(process.execPath, [PROGRAM, 'usage'], { cwd: folder, env })
  t.match(missing, { code: 1, stdout: '', stderr: /^There is no store at / })
  const wrong = await run(process.execPath, [PROGRAM, 'backup', 'restore'], { cwd: folder, env })
  t.match(wrong, { code: 1, stdout: '', stderr: /^The command line was "backup restore"; it must be one of usage/ })
  const said = (...args: string[]) => run(process.execPath, [PROGRAM, ...args], { cwd: folder, env })
  t.same(await said('help'), { stdout, stderr: '', code })
  t.match(await said('--version'), { stdout: /^\d+\.\d+\.\d+\n$/, code: 0 })
  t.match(await said('usag'), { code: 1, stderr: /^The command line was "usag"; it must be one of gateway, .*usage/ })
  t.match(await said('verify', '--foo'), { code: 1, stderr: /it must be verify without --foo\./ })
})
