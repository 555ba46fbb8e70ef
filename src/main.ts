/** Start: config → ops → backends → app → listen; stop on a signal. `tollgate [role]`, and the commands of `tollgate --help`. */
import closeWithGrace from 'close-with-grace'
import type { FastifyInstance } from 'fastify'
import pino, { type Logger } from 'pino'
import about from '../package.json' with { type: 'json' }
import { buildApp, publicUrl, verify } from './app.ts'
import { banner } from './bootstrap/banner.ts'
import { COMMAND_WORDS, COMMANDS_USAGE } from './bootstrap/command-line.ts'
import { engineReport } from './bootstrap/engine-report.ts'
import { openLogOutput, type LogOutput } from './bootstrap/log-output.ts'
import { openBackends, type Backends } from './bootstrap/open-backends.ts'
import { logProcessWarnings } from './bootstrap/process-warnings.ts'
import { signInLink } from './bootstrap/sign-in-link.ts'
import { openStartupRetry } from './bootstrap/startup-retry.ts'
import { openTracing } from './bootstrap/tracing.ts'
import { openOps, type Check } from '../plugins/ops/ops-listener.ts'
import { logFields } from './telemetry/tracing.ts'
import { readConfig, type Config, type Explained } from './config/config.ts'
import { ConfigError } from './config/setting-types.ts'
import { readTraceSettings } from './config/trace-settings.ts'
import { ROLES, serves } from './config/needed-backends.ts'

const COMMANDS = ['config', 'verify', 'sign-in', ...COMMAND_WORDS, 'help', '--help', '-h', '--version'] as const
const USAGE = `tollgate [role]   runs a role: ${ROLES.join(', ')} (the default)
tollgate config   prints every setting, its value and the source of the value, and what the engines can run on this machine
tollgate verify   reads the whole store and reports violated invariants
tollgate sign-in  prints the current sign-in link to the dashboard of a running program (DASHBOARD=local)
${COMMANDS_USAGE}Settings are environment variables: docs/configuration.md
`

/** Tollgate logs none of these; an error of a library might. Wildcards cost more than the rest of a log line. */
const REDACTED = ['authorization', 'headers.authorization', 'err.headers.authorization', 'apiKey', 'err.apiKey']

/** Keep-alive timeout of idle connections during shutdown; Node adds a second. */
const SHUTDOWN_IDLE_MS = 1_000
/** The signals that stop the program. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const
/** What a stop does that does not end by itself. */
const LEAVING = {
  onTimeout: (ms: number) => leave(`Shutdown timed out after ${ms / 1000} s.`),
  onSecondError: (error: unknown) => leave(`Exiting at once: second error: ${error instanceof Error ? error.stack : String(error)}`),
}
/** The same signal within this time is not a second one: npm forwards to the program what a terminal or a supervisor has sent to the whole process group. */
const REPEATED_SIGNAL_MS = 500
/** How long a stopping process waits for a reader of its log that does not read. */
const LOG_FLUSH_MS = 2_000
/** Readiness checks before a start that is still not ready logs a warning. */
const CHECKS_BEFORE_WARNING = 100

/** Null while there is none, and on a terminal. */
let logOutput: LogOutput | null = null

const [argument, ...more] = process.argv.slice(2)
try {
  const runsCommand = COMMAND_WORDS.some((word) => word === argument)
  const known: readonly (string | undefined)[] = [undefined, ...ROLES, ...COMMANDS]
  const refuse = (mayBe: string) => new ConfigError('The command line', [argument, ...more].join(' '), mayBe)
  if (!known.includes(argument)) throw refuse(`one of ${[...ROLES, ...COMMANDS].join(', ')}`)
  if (more.length > 0 && !runsCommand) throw refuse(`${argument} without ${more.join(' ')}`)
  const isCommand = COMMANDS.some((command) => command === argument)
  const { config, explained } = readConfig(process.env, isCommand ? undefined : argument, isCommand ? 'inspect' : 'run')
  for (const warning of isCommand ? config.warnings : []) process.stderr.write(`${warning}\n`)
  if (argument === 'help' || argument === '--help' || argument === '-h') process.stdout.write(USAGE)
  else if (argument === '--version') process.stdout.write(`${about.version}\n`)
  else if (argument === 'config')
    process.stdout.write(
      `${explain(explained)}\nEngines of this machine:\n${(await engineReport(config, Date.now)).map((line) => `  ${line}\n`).join('')}`,
    )
  else if (argument === 'verify') process.exitCode = report(await verify(config))
  else if (argument === 'sign-in') process.stdout.write(await signInLink(config))
  else if (runsCommand) {
    endWithReader()
    const { runCommand } = await import('./bootstrap/commands.ts')
    const { output, note, exitCode } = await runCommand(config, process.argv.slice(2), Date.now, print)
    if (note) process.stderr.write(note)
    process.stdout.write(output)
    process.exitCode = exitCode
  } else await run(config)
} catch (error) {
  // Wrong settings and surroundings are Errors of one sentence. A TypeError and the like is a bug and keeps its stack.
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError) throw error
  process.stderr.write(`${error.message}\n`)
  // A failed start must end whatever is still open, so that a supervisor can restart it.
  await flushLog(1)
  process.exit(1)
}

/** Prints a part of a long output, and resolves once it was taken. */
function print(part: string): Promise<void> {
  return new Promise((resolve, reject) => process.stdout.write(part, (error) => (error ? reject(error) : resolve())))
}

/** A reader that has enough, such as `head`, ends the program. */
function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    process.exit(0)
  })
}

function explain(explained: Explained[]): string {
  return explained
    .map(
      ({ name, value, default: fallback, source, meaning }) =>
        `${name}=${value}\n  ${source}${source === 'default' ? '' : `, default ${fallback || 'empty'}`}. ${meaning}\n`,
    )
    .join('')
}

/** Prints the violations and what was checked. Returns the exit code: 1 when there is a violation. */
function report({ checked, violations }: Awaited<ReturnType<typeof verify>>): number {
  for (const violation of violations) process.stdout.write(`${violation}\n`)
  const counts = Object.entries(checked).map(([what, count]) => `${count} ${what}`)
  process.stdout.write(`${counts.join(', ')} checked: ${violations.length} violations\n`)
  return violations.length === 0 ? 0 : 1
}

/** Opens the log, and its output where that is not a terminal. */
function openLog(config: Config): Logger {
  const isTracing = readTraceSettings(config.environment) !== null
  const options = {
    level: config.LOG_LEVEL,
    base: { role: config.ROLE },
    redact: { paths: REDACTED },
    ...(isTracing ? { mixin: () => logFields() } : {}),
  }
  if (process.stdout.isTTY)
    return pino({ ...options, transport: { target: 'pino-pretty', options: { ignore: 'pid,hostname,role', translateTime: 'HH:MM:ss' } } })
  logOutput = openLogOutput(1, (lines) => log.warn({ event: 'log_lines_dropped', lines }, 'log output was stalled, lines were dropped'))
  const log: Logger = pino({ ...options, timestamp: pino.stdTimeFunctions.isoTime }, logOutput)
  return log
}

/** Runs a role until a signal. A start that fails prints one sentence and exits with 1. */
async function run(config: Config): Promise<void> {
  const log = openLog(config)
  logProcessWarnings(log)
  log.info({ version: about.version }, 'starting')
  const tracing = await openTracing(config, log)
  let app: FastifyInstance | null = null
  let backends: Backends | null = null
  let phase: 'starting' | 'serving' | 'stopping' = 'starting'
  const stopping = new AbortController()
  const startupRetry = openStartupRetry(log, stopping.signal)
  for (const warning of config.warnings) log.warn({ event: 'setting_misspelled', reason: warning }, 'variable is not a setting')

  const checks = async (): Promise<Check[]> => {
    const pending = startupRetry.pending()
    if (phase !== 'serving' || !app) return [{ name: 'program', ok: false, detail: phase }, ...(pending ? [{ ...pending, ok: false }] : [])]
    return Promise.all(app.checks.map((check) => check()))
  }
  const { OPS_HOST: host, OPS_PORT: port, ROLE: role } = config
  const ops = await openOps({ host, port, role, log, checks }).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('OPS_PORT', String(port), `a port that is free on ${host} (${error.code})`)
  })

  logOutput?.register(ops.registry)
  let signal: NodeJS.Signals | null = null
  let leaseError: Error | null = null
  const grace = closeWithGrace(
    {
      ...LEAVING,
      skip: [...STOP_SIGNALS],
      delay: config.DRAIN_DELAY_MS + config.SHUTDOWN_MS + 10_000,
      logger: { error: (m: unknown) => log.error(m) },
    },
    async ({ err }) => {
      if (err && err === leaseError) log.error({ event: 'controller_lease_lost', err }, 'controller lease lost, stopping')
      else if (err) log.fatal({ event: 'unhandled_error', err }, 'unhandled error, stopping')
      else log.info({ signal }, 'stopping')
      phase = 'stopping'
      stopping.abort()
      // After an unhandled error or a lost lease there is no drain delay.
      await stop(app, serves(config.ROLE) && !err ? config.DRAIN_DELAY_MS : 0, config.SHUTDOWN_MS)
      await backends?.close()
      await tracing.close()
      await ops.close()
      log.info('stopped')
      await flushLog(err ? 1 : 0)
    },
  )

  const stopListening = onStopSignal((received) => {
    if (phase === 'stopping') leave(`Exiting at once: second ${received}.`)
    signal = received
    grace.close()
  })
  // When the exit itself hangs, a signal must reach the kernel's default handler.
  process.once('exit', stopListening)

  // Thrown outside of any caller: the process stops as after any unhandled error, and its supervisor restarts it.
  const lost = (error: Error): void => {
    leaseError = error
    setImmediate(() => {
      throw error
    })
  }
  try {
    const surroundings = { config, log, wall: Date.now, registry: ops.registry, lost }
    backends = await openBackends(surroundings, startupRetry.open)
    app = buildApp(surroundings, backends)
    await app.ready()
    const url = serves(config.ROLE) ? await listen(app, config) : null
    phase = 'serving'
    await waitUntilReady(checks, log, stopping.signal)
    if (stopping.signal.aborted) return
    const hello = banner(
      { url, publicUrl: publicUrl(app), opsUrl: ops.url, signInLink: url === null ? null : app.signInLink() },
      backends.resources,
      config.DATA_DIR,
    )
    if (process.stdout.isTTY) process.stdout.write(`\n${hello.text}\n`)
    else log.info(hello.facts, 'ready')
  } catch (error) {
    if (stopping.signal.aborted) return
    // A signal from now on must not turn the failed start into a clean exit.
    grace.uninstall()
    stopListening()
    await app?.close()
    await backends?.close()
    await ops.close()
    throw error
  }
}

/** Calls `listener` with each stop signal, once for one that repeats. Returns a function that restores the default handlers. */
function onStopSignal(listener: (signal: NodeJS.Signals) => void): () => void {
  let last: { signal: NodeJS.Signals; at: number } | null = null
  // One listener throughout: without any, for a moment, a signal would kill the process.
  const receive = (signal: NodeJS.Signals) => {
    const at = performance.now()
    if (last?.signal === signal && at - last.at < REPEATED_SIGNAL_MS) return
    last = { signal, at }
    listener(signal)
  }
  for (const signal of STOP_SIGNALS) process.on(signal, receive)
  return () => STOP_SIGNALS.forEach((signal) => process.off(signal, receive))
}

/**
 * Ends the process with an exit code, whatever hangs. `process.exit` waits for system calls in other threads, and one that opens a pipe or
 * asks a file server may never return; replacing the process image abandons them. A signal to itself would be ignored by the first process
 * of a container.
 */
function leave(why: string, code = 1): void {
  logOutput?.flushNow()
  // Not through the log, which writes in such a thread too.
  process.stderr.write(`${why}\n`)
  process.execve?.(process.execPath, [process.execPath, '-e', `process.exit(${code})`])
  process.exit(code)
}

/** Writes the last lines of the log. Where nobody reads them, the process ends without them. */
async function flushLog(code: number): Promise<void> {
  if (logOutput && !(await logOutput.flush(LOG_FLUSH_MS))) leave('The log output is stalled: its last lines are lost.', code)
}

function listen(app: FastifyInstance, { HOST: host, PORT: port }: Config): Promise<string> {
  return app.listen({ host, port, listenTextResolver: (address) => `listening on ${address}` }).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('PORT', String(port), `a port that is free on ${host} (${error.code})`)
  })
}

/**
 * Graceful shutdown: not ready (the caller's phase) → normal service for the delay → listener closed → requests in flight finish → the rest
 * is cut. Times in ms.
 */
async function stop(app: FastifyInstance | null, delayMs: number, patienceMs: number): Promise<void> {
  if (!app) return
  // Clients close keep-alive connections after their next answer. Closing one under a request in transit would fail that request.
  app.server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  await new Promise((resolve) => setTimeout(resolve, delayMs))
  app.server.keepAliveTimeout = SHUTDOWN_IDLE_MS
  const cut = setTimeout(() => app.server.closeAllConnections(), patienceMs)
  await app.close()
  clearTimeout(cut)
}

/**
 * Waits until /readyz answers 200: by then all declared resources were reconciled once, so the keys of the banner exist. Logs what is
 * missing after a few seconds.
 */
async function waitUntilReady(checks: () => Promise<Check[]>, log: Logger, stopping: AbortSignal): Promise<void> {
  for (let count = 0; !stopping.aborted; count++) {
    const missing = (await checks()).filter(({ ok }) => !ok).map(({ name, detail }) => `${name}: ${detail}`)
    if (missing.length === 0) return
    if (count === CHECKS_BEFORE_WARNING) log.warn({ event: 'not_ready', missing }, 'not ready yet')
    await new Promise((resolve) => setTimeout(resolve, count < CHECKS_BEFORE_WARNING ? 50 : 1_000))
  }
}
