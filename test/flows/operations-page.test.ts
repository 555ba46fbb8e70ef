/** The commands of docs/operations.md for one machine, as they stand, in a folder like a checkout beside a running program. */
import { execFile } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { commandsOf } from '../page-blocks.ts'
import { chat } from './calls.ts'
import { REPOSITORY, start } from './program.ts'

const PAGE = 'docs/operations.md'
const run = promisify(execFile)

t.test('the commands of docs/operations.md back a running program up, verify it, check the backup, and rotate the sealing key', async (t) => {
  const folder = t.testdir({})
  for (const name of ['package.json', 'bin', 'src', 'plugins', 'crds', 'node_modules']) symlinkSync(join(REPOSITORY, name), join(folder, name))
  cpSync(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  const sh = async (section: string) => (await run('sh', ['-ec', commandsOf(PAGE, section)[0] ?? ''], { cwd: folder })).stdout
  const started = () => start({ folder, namespace: 'demo' })

  const program = await started()
  t.teardown(() => program.kill())
  const key = await program.key('demo-coding-key')
  t.equal((await chat(program, key)).status, 200)
  t.match(await sh('Backup and restore'), /^backup\/\S+ is complete$/m)
  t.match(await sh('Verify'), /2 subscriptions, .* events checked: 0 violations/)
  t.match(await sh('Commands'), /2 encrypted keys, .* checked: 0 faults/)

  const lines = () => readFileSync(join(folder, 'data/sealing.key'), 'utf8').trim().split('\n')
  const [before] = lines()
  await sh('Secrets')
  t.match(lines(), [/^[A-Za-z0-9+/]{43}=$/, before], 'the former line is the second')
  await program.stop()
  const restarted = await started()
  t.teardown(() => restarted.kill())
  t.equal((await chat(restarted, await restarted.key('demo-coding-key'))).status, 200)
  t.equal(await restarted.key('demo-coding-key'), key)
})
