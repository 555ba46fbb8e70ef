/** Child processes of runs: results, resource limits, no orphans (of a process that is killed: test/flows/operation-kills.test.ts). Scratch folders: created, removed, swept. */
import { spawn } from 'node:child_process'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { runChild, type ChildResult, type ChildRun } from '../../../src/backends/engines/process/child.ts'
import { scratchFolder, sweepScratch } from '../../../src/backends/engines/process/scratch.ts'
import { folderFor } from '../../temporary-folder.ts'

const limits = { wallMs: 60_000, cpuSeconds: 60, addressSpaceBytes: 1 << 30, fileBytes: 1 << 20 }

async function folder(t: Test): Promise<string> {
  const path = await folderFor(t)
  return path
}

/** A run of a shell script, and the lines that it printed. */
async function shell(cwd: string, script: string, more: Partial<ChildRun> = {}): Promise<ChildResult & { lines: string[] }> {
  const lines: string[] = []
  const ended = await runChild({ command: '/bin/sh', args: ['-c', script], cwd, limits, signal: new AbortController().signal, onLine: (line) => lines.push(line), ...more })
  return { ...ended, lines }
}

/** Whether a process runs. A zombie does not. */
async function runs(pid: number): Promise<boolean> {
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').then((text) => text.slice(text.lastIndexOf(')') + 2)[0], () => null)
  if (state !== null || process.platform === 'linux') return state !== null && state !== 'Z'
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

async function gone(pid: number): Promise<void> {
  while (await runs(pid)) await pause(10)
}

t.test('the code, the lines and the standard error of a child are reported', async (t) => {
  const ended = await shell(await folder(t), 'echo one; printf "two\\nthree"; echo trouble >&2; exit 7')
  t.same(ended, { outcome: 'ended', code: 7, stderr: 'trouble\n', lines: ['one', 'two', 'three'] })
})

t.test('a child gets an empty standard input, its folder, and no environment but what it is given', async (t) => {
  const cwd = await folder(t)
  process.env['GATEWAY_SECRET'] = 'secret'
  t.teardown(() => delete process.env['GATEWAY_SECRET'])
  const { lines } = await shell(cwd, 'cat; pwd; echo "$GIVEN, $GATEWAY_SECRET, $HOME"', { env: { GIVEN: 'yes' } })
  t.same(lines, [cwd, 'yes, , '])
})

t.test('arguments reach the command unchanged, with quotes, spaces and shell syntax', async (t) => {
  const lines: string[] = []
  const hostile = ['$(id)', '`id`', "a 'b' \"c\"", '-x; exit 1', '', 'two\tparts']
  await runChild({ command: '/usr/bin/env', args: ['printf', '[%s]\\n', ...hostile], cwd: await folder(t), limits, signal: new AbortController().signal, onLine: (line) => lines.push(line) })
  t.same(lines, hostile.map((argument) => `[${argument}]`))
})

t.test('the last 8 KiB of standard error are kept, and a line above the limit is dropped', async (t) => {
  const ended = await shell(await folder(t), 'head -c 9000000 /dev/zero; echo end; echo after; head -c 20000 /dev/zero | tr "\\0" x >&2; echo end >&2')
  t.same(ended.lines, ['after'])
  t.equal(ended.stderr.length, 8192)
  t.ok(ended.stderr.endsWith('xend\n'))
})

t.test('a crash is a code above 128, a command that is not there is 127', async (t) => {
  const cwd = await folder(t)
  t.match(await shell(cwd, 'kill -SEGV $$'), { outcome: 'ended', code: 139 })
  t.match(await runChild({ command: '/nowhere/program', args: [], cwd, limits, signal: new AbortController().signal }), { outcome: 'ended', code: 127 })
})

t.test('a working directory that does not exist rejects', async (t) => {
  await t.rejects(shell('/nowhere', 'true'))
})

t.test('a child that exceeds its processor time, file size or wall time is killed', async (t) => {
  const cwd = await folder(t)
  t.match(await shell(cwd, 'while :; do :; done', { limits: { ...limits, cpuSeconds: 1 } }), { outcome: 'killed', by: 'limit' })
  t.match(await shell(cwd, 'exec head -c 3000000 /dev/zero > large'), { outcome: 'killed', by: 'limit' })
  t.equal((await stat(join(cwd, 'large'))).size, 1 << 20)
  t.match(await shell(cwd, 'sleep 600', { limits: { ...limits, wallMs: 50 } }), { outcome: 'killed', by: 'wall' })
})

t.test('allocations beyond the address space limit fail', { skip: process.platform !== 'linux' && 'only Linux bounds address space' }, async (t) => {
  const cwd = await folder(t)
  const take = { args: ['-c', 'x=$(head -c 50000000 /dev/zero | tr "\\0" x); echo ${#x}'], command: '/bin/sh' }
  t.same((await shell(cwd, '', take)).lines, ['50000000'])
  const refused = await shell(cwd, '', { ...take, limits: { ...limits, addressSpaceBytes: 40_000_000 } })
  t.same(refused.lines, [])
  t.not(refused.outcome === 'ended' && refused.code, 0)
})

t.test('an aborted run ends, with every process of its group', async (t) => {
  const controller = new AbortController()
  const pids: number[] = []
  const ended = await shell(await folder(t), 'echo $$; sleep 600 & echo $!; sleep 600', {
    signal: controller.signal,
    onLine: (line) => pids.push(Number(line)) === 2 && controller.abort(),
  })
  t.match(ended, { outcome: 'killed', by: 'signal' })
  t.equal(pids.length, 2)
  await Promise.all(pids.map(gone))
})

t.test('a run whose signal is aborted already starts nothing', async (t) => {
  const cwd = await folder(t)
  t.match(await shell(cwd, 'touch started', { signal: AbortSignal.abort() }), { outcome: 'killed', by: 'signal' })
  t.same(await readdir(cwd), [])
})

t.test('background processes of a child are killed with it and do not delay its result', async (t) => {
  const ended = await shell(await folder(t), 'sleep 600 & echo $!; exit 0')
  t.match(ended, { outcome: 'ended', code: 0 })
  await gone(Number(ended.lines[0]))
})

t.test('exit of the process amid a run leaves no child', async (t) => {
  const cwd = await folder(t)
  const file = join(cwd, 'parent.ts')
  await writeFile(file, `import { runChild } from '${join(import.meta.dirname, '../../../src/backends/engines/process/child.ts')}'
    runChild({ command: '/bin/sh', args: ['-c', 'echo $$; exec sleep 600'], cwd: '${cwd}', limits: ${JSON.stringify(limits)}, signal: new AbortController().signal,
      onLine: (line) => { console.log(line); process.exit() } })`)
  const parent = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [pid] = await Array.fromAsync(createInterface(parent.stdout))
  await gone(Number(pid))
})

t.test('out of file descriptors a run fails alone; once there are some, runs are tied to this process as ever', { skip: process.platform !== 'linux' && 'the death signal is of Linux' }, async (t) => {
  const cwd = await folder(t)
  const file = join(cwd, 'starved.ts')
  await writeFile(file, `import { closeSync, openSync } from 'node:fs'
    import { runChild } from '${join(import.meta.dirname, '../../../src/backends/engines/process/child.ts')}'
    const run = () => runChild({ command: '/bin/grep', args: ['NoNewPrivs', '/proc/self/status'], cwd: '${cwd}', limits: ${JSON.stringify(limits)}, signal: new AbortController().signal, onLine: console.log })
      .then(({ outcome }) => outcome, ({ code }) => code)
    const taken: number[] = []
    try { for (;;) taken.push(openSync('/dev/null')) } catch {}
    const starved = await run()
    taken.forEach((descriptor) => closeSync(descriptor))
    console.log(starved, await run())`)
  const starved = spawn('/bin/sh', ['-c', 'ulimit -n 128; exec "$0" "$1"', process.execPath, file], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.same(await Array.fromAsync(createInterface(starved.stdout)), ['NoNewPrivs:\t1', 'EMFILE ended'])
})

t.test('where setpriv is not permitted, the end of the process still ends its children', async (t) => {
  const cwd = await folder(t)
  const file = join(cwd, 'refused.ts')
  await writeFile(file, `import children from 'node:child_process'
    import { syncBuiltinESMExports } from 'node:module'
    children.spawnSync = () => ({ error: Object.assign(new Error('refused'), { code: 'EACCES' }), status: null })
    syncBuiltinESMExports()
    const { runChild } = await import('${join(import.meta.dirname, '../../../src/backends/engines/process/child.ts')}')
    const onLine = (line: string) => { console.log(line); process.exit() }
    void runChild({ command: '/bin/sh', args: ['-c', 'echo $$; exec sleep 600'], cwd: '${cwd}', limits: ${JSON.stringify(limits)}, signal: new AbortController().signal, onLine })`)
  const refused = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [pid] = await Array.fromAsync(createInterface(refused.stdout))
  await gone(Number(pid))
})

t.test('a scratch folder is empty, accessible to its owner alone, and removed with its content', async (t) => {
  const base = join(await folder(t), 'deep', 'scratch')
  const [one, other] = await Promise.all([scratchFolder(base), scratchFolder(base)])
  t.same(await readdir(one.path), [])
  t.equal((await stat(one.path)).mode & 0o777, 0o700)
  await mkdir(join(one.path, 'more'))
  await writeFile(join(one.path, 'more', 'file'), 'x')
  await one.remove()
  await one.remove()
  t.same((await readdir(base)).map((name) => join(base, name)), [other.path])
})

t.test('the sweep removes the scratch folders of dead processes, and nothing else', async (t) => {
  const base = await folder(t)
  const mine = await scratchFolder(base)
  const host = hostname().replaceAll('_', '-')
  const dead = [`run_${host}_${process.pid}_12_aaaaaa`, `run_${host}_4194305_77_bbbbbb`]
  const kept = ['run_another-machine_4194305_77_cccccc', 'notes', 'run_']
  await Promise.all([...dead, ...kept].map((name) => mkdir(join(base, name))))
  await sweepScratch(base)
  t.same((await readdir(base)).sort(), [mine.path.slice(base.length + 1), ...kept].sort())
  await t.resolves(sweepScratch(join(base, 'not', 'there')))
})
