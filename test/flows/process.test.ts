/** Start and stop of the process: readiness, startup errors, and exits when a thread hangs, as one does that opens a pipe or uses a network file system that is gone. */
import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { readFileSync } from 'node:fs'
import { chmod, mkdir, open, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { launch, PROGRAM, REPOSITORY, type Exit } from './program.ts'
import { run } from './run.ts'

// They wait for a limit, a warning or a thread most of the time.
t.jobs = 3

/** A folder with a pipe, and a plugin that reads the pipe: once, without end; or when the program closes, which waits for it. */
async function openFolder(t: Test): Promise<string> {
  const plugin = (body: string) => `
    import fp from 'fastify-plugin'
    import { readFile } from 'node:fs/promises'
    const hang = () => readFile('pipe')
    export default fp(async (app) => { ${body} }, { name: 'hanging' })`
  const folder = t.testdir({ plans: {}, 'hang.js': plugin('void hang()'), 'hang-at-close.js': plugin("app.addHook('onClose', hang)") })
  await promisify(execFile)('mkfifo', [join(folder, 'pipe')])
  return folder
}

function start(t: Test, folder: string, env: Record<string, string>) {
  const program = launch({ folder, env })
  t.teardown(() => program.kill())
  const prints = (text: string) => eventually(text, async () => (program.log.some((line) => line.includes(text)) ? true : null))
  const says = (message: string) => prints(`"msg":"${message}"`)
  let exit: Exit | null = null
  return { ...program, prints, says, signal: () => void program.stop().then((seen) => (exit = seen)), exit: () => eventually('the exit', async () => exit) }
}

t.test('a program without its folder of manifests is not ready, reports it, and becomes ready once the folder is readable', { buffered: true }, async (t) => {
  const folder = t.testdir()
  const program = start(t, folder, {})
  await program.says('not ready yet')
  t.match(program.log.join('\n'), /"missing":\["resources: the folder of manifests cannot be read \(ENOENT\)"\]/)
  t.notMatch(program.log.join('\n'), /"msg":"ready"|controller_caches_synced/)
  t.equal((await fetch(`${await program.opsUrl}/readyz`)).status, 503)
  await mkdir(join(folder, 'plans'))
  const { opsUrl } = await program.ready
  t.equal((await fetch(`${opsUrl}/readyz`)).status, 200)
})

t.test('a second SIGTERM ends a program whose shutdown hangs, with exit code 1', { buffered: true }, async (t) => {
  const program = start(t, await openFolder(t), { PLUGINS: 'hang-at-close.js' })
  await program.ready
  program.signal()
  await program.says('stopping')
  // Within half a second it would be the first one, repeated.
  await pause(600)
  program.signal()
  t.same(await program.exit(), { code: 1, signal: null })
  await program.prints('Exiting at once: second SIGTERM.')
})

t.test('a shutdown that hangs ends after its limit, with exit code 1', { buffered: true }, async (t) => {
  const program = start(t, await openFolder(t), { PLUGINS: 'hang-at-close.js', SHUTDOWN_SECONDS: '0' })
  await program.ready
  program.signal()
  t.same(await program.exit(), { code: 1, signal: null })
  await program.prints('Shutdown timed out after 10 s.')
})

t.test('a data folder that cannot be created is refused with an error', async (t) => {
  const folder = t.testdir({ plans: {}, file: '' })
  for (const [path, code] of [['/proc/x/y', 'ENOENT'], [join(folder, 'file'), 'EEXIST']] as const) {
    const refused = await run(process.execPath, [PROGRAM], { cwd: folder, env: { PORT: '0', OPS_PORT: '0', DATA_DIR: path } })
    t.equal(refused.code, 1)
    t.equal(refused.stderr, `DATA_DIR was "${path}"; it must be a folder that can be made and written (${code}).\n`)
  }
})

t.test('the start removes access for others from the data folder, says the version first, and prints the existing keys and no example request for a missing one', async (t) => {
  const folder = t.testdir({ data: {}, 'limits.yaml': 'limits: [{ namespaces: ["*"], products: [Coding] }]' })
  await chmod(join(folder, 'data'), 0o755)
  const program = start(t, folder, { PLAN_LIMITS: 'limits.yaml', RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}` })
  const { opsUrl } = await program.ready
  t.equal((await stat(join(folder, 'data'))).mode & 0o7777, 0o700)
  const { version } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8'))
  t.match(JSON.parse(program.log[0] ?? ''), { msg: 'starting', version, role: 'all' })
  t.match(await (await fetch(`${opsUrl}/metrics`)).text(), `tollgate_build_info{role="all",version="${version}"} 1`)
  const ready = program.log.filter((line) => line.includes('"msg":"ready"')).map((line) => JSON.parse(line))
  t.match(ready, [{ keys: [{ name: 'demo/coding' }], try: [/chat.completions/] }])
  t.same([ready[0].keys.length, ready[0].try.length], [1, 1])
})

t.test('a second SIGTERM ends the program when only a thread hangs, also during the start', async (t) => {
  const folder = await openFolder(t)
  for (const env of [{ PLUGINS: 'hang.js' }, { PLAN_LIMITS: join(folder, 'pipe') }]) {
    const program = start(t, folder, env)
    if ('PLUGINS' in env) await program.ready
    // Opens once the other side reads, which then waits for ever.
    const held = await eventually('a thread to hang', () => open(join(folder, 'pipe'), constants.O_WRONLY | constants.O_NONBLOCK).catch(() => null))
    program.signal()
    await program.says('stopped')
    // A signal that arrives while the program restores the default handlers is lost.
    const again = setInterval(program.signal, 100)
    t.teardown(() => clearInterval(again))
    t.same(await program.exit(), { code: null, signal: 'SIGTERM' })
    clearInterval(again)
    await held.close()
  }
})
