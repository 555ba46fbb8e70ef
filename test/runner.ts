/**
 * Test runner of `npm test`: runs each file by Node itself, several in one process (together.ts), and prints a line for each as it ends, failures in full, skipped suites
 * with their reasons, the files that took longest, and last `N passed, N failed`, which counts tests (see tally.ts). With CI=true a skipped test counts as failed. Exit code 1 when a test failed, or none ran.
 * The runner of tap would load each file through a compiler of its own, 0.7 s of processor time a file.
 * A full run starts the shared servers, and stops them at the end; in a partial run, each file starts the servers that it needs.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { constants, getPriority, setPriority } from 'node:os'
import { join } from 'node:path'
import { startOnce } from './servers/once.ts'
import { tally, THE_RUN, type FailedTest, type FileReport, type Wrong } from './tally.ts'

const ROOT = join(import.meta.dirname, '..')
const CI = process.env['CI'] === 'true'
/** Of the files and of the programs that they start, which otherwise take a quarter of their time to compile the same modules. */
const COMPILED = join(ROOT, 'node_modules/.cache/compiled')
/** Processes at a time, on two cores: a file waits about half of its time. */
const JOBS = 3
/** With real servers, of which more at a time would make their commands time out, one of these processes first runs what needs few of them, with what the others leave of the cores. */
const JOBS_WITH_SERVERS = 2
const NICE = 10
const TOGETHER = join(ROOT, 'test/together.ts')
/** How many files share a process, for those whose time is that of the code itself. */
const MOST_TOGETHER = 24
/**
 * Those that take so long that they are run beside the rest, that replace the clock, or that look at what their process has loaded. They come last and the longest of
 * them first, so that all jobs end at about the same time.
 */
const ALONE = [
  'backends/engines/local-trim',
  'image/image',
  'backends/engines/local-merge',
  'backends/store/sqlite',
  'tracing/traces',
  'simulation/simulation',
  'backends/engines/local-image',
  'plugins/docs',
  'plugins/media-event-stream',
  'bootstrap/v8',
  'docs',
  'plugins/worker-sweeps',
  'upstream/connections',
].map(fileOf)
/** Those that are slow with real servers, and mostly skipped without. */
const WITH_SERVERS = /^test\/(?:chart|dashboard|drills|flows|monitoring|pods|servers|simulation)\//
/** Their files share processes, and need servers. */
const BACKENDS = /^test\/backends\//
/** Those that take longest, which begin first: at the end, one would leave the others without work. */
const FIRST = [
  'pods/pods',
  'flows/chaos',
  'flows/versions',
  'dashboard/room',
  'flows/messages-faults',
  'flows/agent-tasks',
  'dashboard/pages',
  'monitoring/drills',
  'monitoring/runbooks',
  'flows/clients',
  'flows/media',
].map(fileOf)
/** How many of the files that took longest are named. */
const SLOWEST = 10
/** After which a process whose files hang or take too long is stopped, and those without an end are counted as failed. */
const TIMEOUT_S = 1200

/** Diagnostics of tap that are redundant or printed verbatim. */
const OBVIOUS = new Set(['diff', 'stack', 'at', 'source', 'stdio', 'cwd', 'externalID', 'command', 'args', 'jobId'])

function fileOf(name: string): string {
  return `test/${name}.test.ts`
}

function indented(text: string, spaces: number): string {
  return text.trimEnd().replace(/^/gm, ' '.repeat(spaces))
}

function describe({ what, diag }: Wrong): string {
  const { diff, stack } = diag
  const facts = Object.entries(diag)
    .filter(([key]) => !OBVIOUS.has(key))
    .map(([key, value]) => `${key}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
  return [`- ${what}`, ...[diff, ...facts, stack].filter((part) => typeof part === 'string').map((part) => indented(part, 2))].join('\n')
}

function printFailure({ name, wrong }: FailedTest): void {
  console.log(`  FAILED ${name.join(' > ')}`)
  for (const one of wrong) console.log(indented(describe(one), 4))
}

const durations: { file: string; seconds: number }[] = []

function printFile({ file, durationMs, printed, passed, failed, skipped }: FileReport): void {
  const counts = [`${passed} passed`, failed.length > 0 && `${failed.length} failed`, skipped.length > 0 && `${skipped.length} skipped`]
    .filter(Boolean)
    .join(', ')
  console.log(`${failed.length > 0 ? 'not ok' : 'ok'} ${file}: ${counts} in ${(durationMs / 1000).toFixed(1)} s`)
  durations.push({ file, seconds: durationMs / 1000 })
  if (failed.length === 0) return
  if (printed.trim() !== '') console.log(`  It printed:\n${indented(printed, 4)}`)
  for (const failure of failed) printFailure(failure)
}

const { parser, sum } = tally(printFile)
const start = performance.now()

function conclude(trouble: string | null): void {
  for (const { name, reason } of sum.skipped) {
    console.log(`skipped ${name.join(' > ')}: ${reason}`)
    if (CI) sum.failed.push({ name, wrong: [{ what: `skipped, which CI=true does not allow: ${reason}`, diag: {} }] })
  }
  if (sum.failed.length === 0 && trouble !== null) sum.failed.push({ name: [trouble], wrong: [] })
  if (sum.failed.length === 0 && sum.passed === 0 && sum.skipped.length === 0) sum.failed.push({ name: ['no test ran'], wrong: [] })
  // What belongs to no file that ended, as a process that died.
  for (const failure of sum.failed) if (failure.name[0] === THE_RUN) printFailure(failure)
  if (sum.failed.length > 0) console.log('\nFailed, in short:')
  for (const { name, wrong } of sum.failed) console.log(`  ${[name.join(' > '), ...wrong.map(({ what }) => what)].join(': ')}`)
  const slowest = durations.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST)
  if (durations.length > SLOWEST)
    console.log(`slowest: ${slowest.map(({ file, seconds }) => `${file} ${seconds.toFixed(0)} s`).join(', ')}`)
  console.log(
    `in ${((performance.now() - start) / 1000).toFixed(1)} s${CI || sum.skipped.length === 0 ? '' : `, ${sum.skipped.length} skipped`}`,
  )
  console.log(`${sum.passed} passed, ${sum.failed.length} failed`)
  if (sum.failed.length > 0) process.exitCode = 1
}

/** The test files of a run: those named, those in the folders named, or all. */
function filesOf(named: string[]): string[] {
  const paths = named.length > 0 ? named : ['test']
  const missing = paths.filter((path) => path.startsWith('-') || !existsSync(join(ROOT, path)))
  if (missing.length > 0) throw new Error(`${missing.join(', ')}: not a file or folder of this checkout`)
  const found = paths.flatMap((path) =>
    statSync(join(ROOT, path)).isDirectory()
      ? readdirSync(join(ROOT, path), { recursive: true, encoding: 'utf8' }).map((name) => join(path, name))
      : [path],
  )
  return [...new Set(found.filter((file) => file.endsWith('.test.ts')))].sort()
}

/** The files by process, in the order of their begin. */
function batchesOf(files: string[], hasServers: boolean): string[][] {
  const batches: string[][] = []
  const isAlone = (file: string) => ALONE.includes(file) || (hasServers && WITH_SERVERS.test(file))
  let shared: string[] = []
  for (const file of files) {
    if (isAlone(file)) batches.push([file])
    else if (shared.push(file) === 1) batches.push(shared)
    if (shared.length === MOST_TOGETHER) shared = []
  }
  const order = [...FIRST, '', ...ALONE]
  const rankOf = (file: string) => order.indexOf(order.includes(file) ? file : '')
  const rank = (batch: string[]) => (hasServers && isLight(batch) ? order.length : Math.min(...batch.map(rankOf)))
  return batches.sort((a, b) => rank(a) - rank(b))
}

/** Whether these files need few servers. */
function isLight(batch: string[]): boolean {
  return batch.length > 1 && batch.every((file) => !BACKENDS.test(file))
}

/** Runs files in one process, so much below the priority of this one, and returns its TAP as subtests of the run. */
async function runTogether(files: string[], env: Record<string, string>, nice: number, stopped: AbortSignal): Promise<string> {
  const child = spawn(process.execPath, ['--no-warnings', TOGETHER], {
    cwd: ROOT,
    env: { NODE_COMPILE_CACHE: COMPILED, ...process.env, ...env, TAP: '1', TAP_TIMEOUT: String(TIMEOUT_S) },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  if (child.pid !== undefined) setPriority(child.pid, Math.min(getPriority() + nice, constants.priority.PRIORITY_LOW))
  // A child that is gone before it has read them has run none.
  child.stdin.on('error', () => {})
  child.stdin.end(files.join('\n'))
  // tap ends a file that takes too long; this ends one whose tap hangs.
  const hung = setTimeout(() => child.kill('SIGKILL'), (TIMEOUT_S + 30) * 1000)
  const stop = () => child.kill('SIGTERM')
  stopped.addEventListener('abort', stop)
  let printed = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  const [exitCode, signal] = (await once(child, 'close')) as [number | null, string | null]
  clearTimeout(hung)
  stopped.removeEventListener('abort', stop)
  // Header, plan and comments are those of the process; so are the numbers. A file without tests fails. What follows begins a line, also after a process that was killed.
  const tap = `${printed}\n`
    .replaceAll(/^(?:TAP version 14|1\.\.\d.*|# (?!Subtest: ).*)\n/gm, '')
    .replaceAll(/^((?:not )?ok) \d+/gm, '$1')
    .replaceAll(/^( {4}1\.\.0.*\n)ok/gm, '$1not ok')
  const missing = files.filter((file) => !tap.includes(`\nok - ${file} #`) && !tap.includes(`\nnot ok - ${file} #`))
  // A process that fails after its files has left something behind in one of them.
  const broken = missing.length === 0 && exitCode !== 0 && !/^not ok/m.test(tap) ? [files.join(', ')] : missing
  return tap + broken.map((file) => `not ok - ${file}\n  ---\n  exitCode: ${exitCode}\n  signal: ${signal}\n  ...\n`).join('')
}

/** Runs the files, some at a time, and writes the TAP of each as it ends. */
async function runAll(batches: string[][], env: Record<string, string>, stopped: AbortSignal): Promise<void> {
  parser.write('TAP version 14\n')
  const waiting = [...batches]
  let told = 0
  const one = async (_: undefined, job: number): Promise<void> => {
    const isAside = CI && job >= JOBS_WITH_SERVERS
    while (!stopped.aborted) {
      const light = isAside ? waiting.findIndex(isLight) : -1
      const [batch] = waiting.splice(Math.max(light, 0), 1)
      if (batch === undefined) return
      const tap = await runTogether(batch, env, light < 0 ? 0 : NICE, stopped)
      told += tap.match(/^(?:not )?ok /gm)?.length ?? 0
      parser.write(tap)
    }
  }
  await Promise.all(Array.from({ length: JOBS }, one))
  parser.end(`1..${told}\n`)
}

const interrupt = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => interrupt.abort())
const named = process.argv.slice(2)
let trouble: string | null = null
try {
  const files = filesOf(named)
  const servers = named.length === 0 ? await startOnce((line) => console.log(line)) : null
  const addresses = servers?.addresses ?? {}
  // In a part of the run, each file starts the servers that it needs.
  const hasServers = named.length > 0 || Object.keys(addresses).length > 0
  await runAll(batchesOf(files, hasServers), addresses, interrupt.signal).finally(() => servers?.stop())
  if (interrupt.signal.aborted) trouble = 'it was interrupted'
} catch (error) {
  trouble = error instanceof Error ? error.message : String(error)
}
conclude(trouble)
