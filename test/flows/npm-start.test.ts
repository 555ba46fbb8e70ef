/** `npm start` under a supervisor or in a terminal: signals, exit codes, and no process left behind. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { launch, REPOSITORY, type Process } from './program.ts'

const run = promisify(execFile)

type Started = Process & { dataDir: string; isGone(): Promise<true> }

/** npm and the program in a process group of their own. `pid` is npm's, and the group's id. */
async function npmStart(t: Test): Promise<Started> {
  const npm = launch({
    folder: t.testdir({ plans: {} }),
    // A second signal arrives while the first one drains.
    env: { DRAIN_DELAY_SECONDS: '1', HOME: t.testdirName, RESOURCES_URL: `files:${t.testdirName}/plans` },
    argv: ['setsid', 'npm', '--prefix', REPOSITORY, 'start', '--'],
  })
  t.teardown(() => npm.kill())
  const running = await npm.ready
  const reaches = (signal: NodeJS.Signals | 0): boolean => {
    try {
      return process.kill(-running.pid, signal)
    } catch {
      return false
    }
  }
  t.teardown(() => reaches('SIGKILL'))
  return { ...running, dataDir: join(t.testdirName, 'data'), isGone: () => eventually('the end of the process group', async () => (reaches(0) ? null : true)) }
}

const lines = ({ log }: Process, text: string): number => log.filter((line) => line.includes(text)).length

t.test('npm start', { skip: existsSync('/usr/bin/setsid') ? false : 'there is no setsid' }, async (t) => {
  t.test('it prints a sign-in link that works once; SIGTERM to npm stops the program gracefully, and npm exits after it with its exit code', async (t) => {
    const npm = await npmStart(t)
    const { signInLink } = JSON.parse(npm.log.find((line) => line.includes('"msg":"ready"')) ?? '{}')
    const [first, again] = [await fetch(signInLink, { redirect: 'manual' }), await fetch(signInLink, { redirect: 'manual' })]
    t.same([first.status, first.headers.get('location'), again.status], [303, '/dashboard/', 403], 'the printed link signs in, once')
    const command = () => run(process.execPath, [join(REPOSITORY, 'bin/tollgate.mjs'), 'sign-in'], { env: { PATH: process.env['PATH'], DATA_DIR: npm.dataDir } })
    const next = (await command()).stdout.trim()
    t.equal((await fetch(next, { redirect: 'manual' })).status, 303, 'tollgate sign-in prints the next one')
    t.equal((await stat(join(npm.dataDir, 'sign-in-link'))).mode & 0o777, 0o600)
    t.same(await npm.stop(), { code: 0, signal: null })
    t.same([lines(npm, '"msg":"stopping"'), lines(npm, '"msg":"stopped"')], [1, 1])
    await npm.isGone()
    await t.rejects(command(), { code: 1, stderr: `No program with local sign-in runs with DATA_DIR=${npm.dataDir}.\n` })
  })

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    t.test(`${signal} to the process group, which npm forwards to the program once more, counts once`, async (t) => {
      const npm = await npmStart(t)
      process.kill(-npm.pid, signal)
      await npm.isGone()
      t.same(await npm.stop(), { code: 0, signal: null }, npm.log.slice(-5).join('\n'))
      t.same([lines(npm, '"msg":"stopping"'), lines(npm, '"msg":"stopped"')], [1, 1])
    })
  }

  t.test('the program stops after SIGKILL to npm', async (t) => {
    const npm = await npmStart(t)
    process.kill(npm.pid, 'SIGKILL')
    await npm.isGone()
    t.equal(lines(npm, '"msg":"stopped"'), 1)
  })

  t.test('npm exits with the exit code of a start that fails', async (t) => {
    const refused = launch({ folder: t.testdir(), env: { HOME: t.testdirName, PORT: 'x' }, argv: ['npm', '--prefix', REPOSITORY, 'start', '--'] })
    await t.rejects(refused.ready)
    t.same(await refused.stop(), { code: 1, signal: null })
  })
})
