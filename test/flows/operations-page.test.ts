/** The commands of docs/operations.md for one machine, as they stand, in a folder like a checkout beside a running program. */
import { execFile } from 'node:child_process'
import { cpSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { chmod, open } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { commandsOf } from '../page-blocks.ts'
import { chat } from './calls.ts'
import { REPOSITORY, start } from './program.ts'

const PAGE = 'docs/operations.md'
const run = promisify(execFile)

/** A folder with data and these results, and the page's command for its backup, by a `cp` whose copy of a folder begins with `script`. */
async function backup(t: Test, files: Record<string, string>, script: string): Promise<{ folder: string; made: () => Promise<string> }> {
  const cp = `#!/bin/sh\n[ "$1" = -r ] && ${script}\nexec /bin/cp "$@"\n`
  const folder = t.testdir({ bin: { cp }, data: { 'sealing.key': '', files } })
  await chmod(join(folder, 'bin/cp'), 0o755)
  for (const name of ['package.json', 'node_modules']) symlinkSync(join(REPOSITORY, name), join(folder, name))
  new DatabaseSync(join(folder, 'data/tollgate.db')).close()
  const env = { ...process.env, PATH: `${join(folder, 'bin')}:${process.env['PATH']}` }
  return { folder, made: async () => (await run('sh', ['-ec', commandsOf(PAGE, 'Backup and restore')[0] ?? ''], { cwd: folder, env })).stdout }
}

t.test('a backup is complete although results are removed while they are copied', async (t) => {
  const names = Array.from({ length: 3000 }, (_, n) => `result-${n}`)
  // It has listed them all, and stops after some hundred while nobody reads their names.
  const { folder, made } = await backup(t, Object.fromEntries(names.map((name) => [name, ''])), 'exec /bin/cp -v "$@" > copied')
  await run('mkfifo', [join(folder, 'copied')])
  const making = made()
  const copied = await open(join(folder, 'copied'))
  await copied.read(Buffer.alloc(1))
  for (const name of names) rmSync(join(folder, 'data/files', name))
  await copied.readFile()
  await copied.close()
  const [, to = ''] = /^(backup\/\S+) is complete\n$/.exec(await making) ?? []
  t.ok(readdirSync(join(folder, to, 'files')).length < names.length)
})

t.test('a backup is not complete if a result could not be written, or the copy was killed', async (t) => {
  for (const script of ["trap '' XFSZ && ulimit -f 1", 'ulimit -f 1']) {
    const { made } = await backup(t, { result: 'x'.repeat(4096) }, script)
    t.match(await made().catch((error: unknown) => error), { code: 1, stdout: '', stderr: /File (too large|size limit exceeded)/ })
  }
})

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
