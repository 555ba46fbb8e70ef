/** The program with a standard output that nobody reads. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { PROGRAM, REPOSITORY } from './program.ts'

/** More lines than a pipe of 64 KB holds. */
const REQUESTS = 400

async function start(t: Test) {
  const folder = t.testdir({})
  execFileSync('mkfifo', [join(folder, 'stdout')])
  const reader = openSync(join(folder, 'stdout'), constants.O_RDONLY | constants.O_NONBLOCK)
  const stdout = openSync(join(folder, 'stdout'), 'w')
  const env = { PATH: process.env['PATH'], DATA_DIR: join(folder, 'data'), PORT: '0', OPS_PORT: '0', RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}` }
  const child = spawn(process.execPath, [PROGRAM], { cwd: folder, env, stdio: ['ignore', stdout, 'pipe'] })
  closeSync(stdout)
  t.teardown(() => child.kill('SIGKILL'))
  const buffer = Buffer.alloc(1 << 16)
  let printed = ''
  const read = () => {
    try {
      for (let count = -1; count !== 0; ) printed += buffer.toString('utf8', 0, (count = readSync(reader, buffer)))
    } catch {
      // Nothing is there now.
    }
    return printed.split('\n').slice(0, -1).map((line) => JSON.parse(line) as Record<string, unknown>)
  }
  const ready = await eventually('the start', async () => read().find(({ msg }) => msg === 'ready') ?? null)
  const stderr = text(child.stderr!)
  const stop = async () => {
    child.kill('SIGTERM')
    return once(child, 'close')
  }
  return { url: String(ready['url']), opsUrl: String(ready['opsUrl']), read, stop, exited: once(child, 'close'), child, stderr }
}

async function fill(url: string): Promise<number> {
  let answered = 0
  for (let i = 0; i < REQUESTS; i++) answered += Number((await fetch(`${url}/v1/models`).then(async (response) => (await response.text(), response.status))) === 401)
  return answered
}

t.test('requests are answered while nobody reads the log, and its lines are complete once somebody does', async (t) => {
  const { url, opsUrl, read, child, exited } = await start(t)
  const before = read().length
  t.equal(await fill(url), REQUESTS)
  t.equal((await fetch(`${opsUrl}/livez`)).status, 200)
  const requests = () => read().slice(before).filter(({ status, statusCode }) => status === 401 || statusCode === 401)
  await eventually('all lines', async () => (requests().length === REQUESTS ? true : null))
  child.kill('SIGTERM')
  await eventually('the last line', async () => read().find(({ msg }) => msg === 'stopped') ?? null)
  t.same(await exited, [0, null])
  t.match(read().at(-1), { msg: 'stopped' })
})

t.test('a stop signal ends a program although nobody reads its log', async (t) => {
  const { url, stop, stderr } = await start(t)
  t.equal(await fill(url), REQUESTS)
  t.same(await stop(), [0, null])
  t.match(await stderr, 'The log output is stalled: its last lines are lost.')
})
