/** How the program ends when something in it hangs for good: a pipe that nobody writes to holds a thread, as a server of files that is gone does. */
import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { launch, type Exit } from './program.ts'

/** A folder with a pipe, and a plugin that reads the pipe: once, and never to the end; or when the program closes, which waits for it. */
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
  const says = (message: string) => eventually(message, async () => (program.log.some((line) => line.includes(`"msg":"${message}"`)) ? true : null))
  let exit: Exit | null = null
  return { ...program, says, signal: () => void program.stop().then((seen) => (exit = seen)), exit: () => eventually('the exit', async () => exit) }
}

t.test('a second SIGTERM ends the program though its end hangs, with exit code 1', async (t) => {
  const program = start(t, await openFolder(t), { PLUGINS: 'hang-at-close.js' })
  await program.ready
  program.signal()
  await program.says('stopping')
  program.signal()
  t.same(await program.exit(), { code: 1, signal: null })
  await program.says('stopping at once')
})

t.test('an end that hangs is left after its time, with exit code 1', async (t) => {
  const program = start(t, await openFolder(t), { PLUGINS: 'hang-at-close.js', SHUTDOWN_SECONDS: '0' })
  await program.ready
  program.signal()
  t.same(await program.exit(), { code: 1, signal: null })
  await program.says('what hangs is left behind')
})

t.test('a second SIGTERM ends the program when all is closed and only a thread hangs, also while it starts', async (t) => {
  const folder = await openFolder(t)
  for (const env of [{ PLUGINS: 'hang.js' }, { PLAN_LIMITS: join(folder, 'pipe') }]) {
    const program = start(t, folder, env)
    if ('PLUGINS' in env) await program.ready
    // Opens once somebody reads there, who then waits for what is never written.
    const held = await eventually('a thread to hang', () => open(join(folder, 'pipe'), constants.O_WRONLY | constants.O_NONBLOCK).catch(() => null))
    program.signal()
    await program.says('stopped')
    program.signal()
    t.same(await program.exit(), { code: null, signal: 'SIGTERM' })
    await held.close()
  }
})
