/** `npm start` as a supervisor or a terminal sees it: npm and what it runs end together, whoever of them gets the signal. */
import { existsSync } from 'node:fs'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { launch, REPOSITORY, type Process } from './program.ts'

type Started = Process & { isGone(): Promise<true> }

/** npm with the program, in a process group of their own. `pid` is that of npm and of the group. */
async function npmStart(t: Test): Promise<Started> {
  const npm = launch({
    folder: t.testdir({ plans: {} }),
    // It takes a second to stop, in which more signals may come.
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
  return { ...running, isGone: () => eventually('the end of the process group', async () => (reaches(0) ? null : true)) }
}

const said = ({ log }: Process, text: string): number => log.filter((line) => line.includes(text)).length

t.test('npm start', { skip: existsSync('/usr/bin/setsid') ? false : 'there is no setsid' }, async (t) => {
  t.test('SIGTERM to npm stops the program cleanly, and npm ends after it, with its exit code', async (t) => {
    const npm = await npmStart(t)
    t.same(await npm.stop(), { code: 0, signal: null })
    t.same([said(npm, '"msg":"stopping"'), said(npm, '"msg":"stopped"')], [1, 1])
    await npm.isGone()
  })

  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    t.test(`${signal} to the whole process group, which npm passes on to the program once more, is one signal`, async (t) => {
      const npm = await npmStart(t)
      process.kill(-npm.pid, signal)
      await npm.isGone()
      t.same(await npm.stop(), { code: 0, signal: null }, npm.log.slice(-5).join('\n'))
      t.same([said(npm, '"msg":"stopping"'), said(npm, '"msg":"stopped"')], [1, 1])
    })
  }

  t.test('the program stops when npm is killed', async (t) => {
    const npm = await npmStart(t)
    process.kill(npm.pid, 'SIGKILL')
    await npm.isGone()
    t.equal(said(npm, '"msg":"stopped"'), 1)
  })

  t.test('npm gives the exit code of a start that was refused', async (t) => {
    const refused = launch({ folder: t.testdir(), env: { HOME: t.testdirName, PORT: 'x' }, argv: ['npm', '--prefix', REPOSITORY, 'start', '--'] })
    await t.rejects(refused.ready)
    t.same(await refused.stop(), { code: 1, signal: null })
  })
})
