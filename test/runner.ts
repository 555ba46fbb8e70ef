/**
 * Test runner of `npm test`: runs tap (see .taprc) and prints a line for each file as it ends, failures in full, skipped suites with their reasons,
 * and last `N passed, N failed`, which counts tests (see tally.ts). With CI=true a skipped test counts as failed. Exit code 1 when a test or tap failed, or no test ran.
 * A full run starts the shared servers, and stops them at the end; in a partial run, each file starts the servers that it needs.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { startOnce } from './servers/once.ts'
import { tally, type FailedTest, type FileReport, type Wrong } from './tally.ts'

const ROOT = join(import.meta.dirname, '..')
const CI = process.env['CI'] === 'true'

/** Diagnostics of tap that are redundant or printed verbatim. */
const OBVIOUS = new Set(['diff', 'stack', 'at', 'source', 'stdio', 'cwd', 'externalID', 'command', 'args', 'jobId'])

function indented(text: string, spaces: number): string {
  return text.trimEnd().replace(/^/gm, ' '.repeat(spaces))
}

function describe({ what, diag }: Wrong): string {
  const { diff, stack } = diag
  const facts = Object.entries(diag).filter(([key]) => !OBVIOUS.has(key)).map(([key, value]) => `${key}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
  return [`- ${what}`, ...[diff, ...facts, stack].filter((part) => typeof part === 'string').map((part) => indented(part, 2))].join('\n')
}

function printFailure({ name, wrong }: FailedTest): void {
  console.log(`  FAILED ${name.join(' > ')}`)
  for (const one of wrong) console.log(indented(describe(one), 4))
}

function printFile({ file, durationMs, printed, passed, failed, skipped }: FileReport): void {
  const counts = [`${passed} passed`, failed.length > 0 && `${failed.length} failed`, skipped.length > 0 && `${skipped.length} skipped`].filter(Boolean).join(', ')
  console.log(`${failed.length > 0 ? 'not ok' : 'ok'} ${file}: ${counts} in ${(durationMs / 1000).toFixed(1)} s`)
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
  if (sum.failed.length > 0) console.log('\nFailed, in short:')
  for (const { name, wrong } of sum.failed) console.log(`  ${[name.join(' > '), ...wrong.map(({ what }) => what)].join(': ')}`)
  console.log(`in ${((performance.now() - start) / 1000).toFixed(1)} s${CI || sum.skipped.length === 0 ? '' : `, ${sum.skipped.length} skipped`}`)
  console.log(`${sum.passed} passed, ${sum.failed.length} failed`)
  if (sum.failed.length > 0) process.exitCode = 1
}

/** A failure of tap itself, as a sentence; null if there is none. */
async function runTap(args: string[], env: Record<string, string>, stopped: AbortSignal): Promise<string | null> {
  if (stopped.aborted) return 'it was interrupted'
  const tap = spawn(process.execPath, [join(ROOT, 'node_modules/tap/dist/esm/run.mjs'), 'run', '--reporter=tap', ...args], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  stopped.addEventListener('abort', () => tap.kill('SIGTERM'))
  tap.stdout.setEncoding('utf8')
  tap.stdout.on('data', (text: string) => parser.write(text))
  return new Promise((resolve) => {
    tap.on('error', (error) => resolve(`tap did not start: ${error.message}`))
    tap.on('close', (code, signal) => resolve(code === 0 ? null : `tap ended with ${signal ?? code}`))
  })
}

const interrupt = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => interrupt.abort())
const args = process.argv.slice(2)
const whole = args.every((arg) => arg.startsWith('-'))
const servers = whole ? await startOnce((line) => console.log(line)) : null
const trouble = await runTap(args, servers?.addresses ?? {}, interrupt.signal)
await servers?.stop()
parser.end()
conclude(trouble)
