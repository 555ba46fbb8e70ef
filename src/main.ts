/** Start: config → ops → backends → app → listen; stop on a signal. `tollgate [role]`, `tollgate config` and `tollgate verify`. */
import closeWithGrace from 'close-with-grace'
import type { FastifyInstance } from 'fastify'
import pino, { type Logger } from 'pino'
import { buildApp, banner, openBackends, openOps, openStartupRetry, publicUrl, verify, type Check, type Backends } from './app.ts'
import { ConfigError, readConfig, ROLES, serves, type Config, type Explained } from './config/config.ts'

const COMMANDS = ['config', 'verify', '--help', '-h'] as const
const USAGE = `tollgate [role]   runs a role: ${ROLES.join(', ')}; all of them without one
tollgate config   prints every setting with its value and where that came from
tollgate verify   reads the whole store and says what is not as it must be
Settings are environment variables: docs/configuration.md
`

/** Nothing of ours logs these; an error of a library might. No wildcards: they cost more than the rest of a line. */
const REDACTED = ['authorization', 'headers.authorization', 'err.headers.authorization', 'apiKey', 'err.apiKey']

/** How long a connection may do nothing once the program stops, from the end of its last answer; Node adds a second. */
const IDLE_MS = 1_000
/** After so many looks, a start that is not ready says so. */
const MANY_LOOKS = 100

const [argument, ...more] = process.argv.slice(2)
try {
  if (more.length > 0) throw new ConfigError('The command line', [argument, ...more].join(' '), `one of ${[...ROLES, ...COMMANDS].join(', ')}`)
  const isCommand = COMMANDS.some((command) => command === argument)
  const { config, explained } = readConfig(process.env, isCommand ? undefined : argument, isCommand ? 'look' : 'run')
  for (const warning of isCommand ? config.warnings : []) process.stderr.write(`${warning}\n`)
  if (argument === '--help' || argument === '-h') process.stdout.write(USAGE)
  else if (argument === 'config') process.stdout.write(explain(explained))
  else if (argument === 'verify') process.exitCode = report(await verify(config, Date.now()))
  else await run(config)
} catch (error) {
  // What is wrong with the surroundings is an Error of one sentence; one of the language's own, such as a TypeError, is a fault of ours, with its stack.
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError) throw error
  process.stderr.write(`${error.message}\n`)
  // A start that failed must end, whatever it had begun: a supervisor waits for it.
  process.exit(1)
}

function explain(explained: Explained[]): string {
  return explained
    .map(({ name, value, default: fallback, source, meaning }) => `${name}=${value}\n  ${source}${source === 'default' ? '' : `, default ${fallback || 'empty'}`}. ${meaning}\n`)
    .join('')
}

/** Prints what was verified. Returns the exit code: 1 when anything is not as it must be. */
function report({ checked, violations }: Awaited<ReturnType<typeof verify>>): number {
  for (const violation of violations) process.stdout.write(`${violation}\n`)
  const counts = Object.entries(checked).map(([what, count]) => `${count} ${what}`)
  process.stdout.write(`${counts.join(', ')} checked: ${violations.length === 0 ? 'all as they must be' : `${violations.length} violations`}\n`)
  return violations.length === 0 ? 0 : 1
}

function openLog(config: Config): Logger {
  const options = { level: config.LOG_LEVEL, base: { role: config.ROLE }, redact: { paths: REDACTED } }
  if (!process.stdout.isTTY) return pino({ ...options, timestamp: pino.stdTimeFunctions.isoTime })
  return pino({ ...options, transport: { target: 'pino-pretty', options: { ignore: 'pid,hostname,role', translateTime: 'HH:MM:ss' } } })
}

/** Runs a role until a signal. Whatever stops the start is one sentence, and the exit code is 1. */
async function run(config: Config): Promise<void> {
  const log = openLog(config)
  const clock = Date.now
  let app: FastifyInstance | null = null
  let backends: Backends | null = null
  let phase: 'starting' | 'serving' | 'stopping' = 'starting'
  const stopping = new AbortController()
  const waiting = openStartupRetry(log, stopping.signal)
  for (const warning of config.warnings) log.warn(warning)

  const checks = async (): Promise<Check[]> => {
    const waited = waiting.pending()
    if (phase !== 'serving' || !app) return [{ name: 'program', ok: false, detail: phase }, ...(waited ? [{ ...waited, ok: false }] : [])]
    return Promise.all(app.checks.map((check) => check()))
  }
  const ops = await openOps({ host: config.OPS_HOST, port: config.OPS_PORT, log, checks }).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('OPS_PORT', String(config.OPS_PORT), `a port that is free on ${config.OPS_HOST} (${error.code})`)
  })

  const leaving = {
    onTimeout: (ms: number) => leave(`Not stopped after ${ms / 1000} s: what hangs is left behind.`),
    onSecondSignal: (signal: string) => leave(`Stopping at once, by a second ${signal}.`),
    onSecondError: (error: unknown) => leave(`Stopping at once, because of a second error: ${error instanceof Error ? error.stack : String(error)}`),
  }
  // Where the end itself hangs, only the kernel can still hear a signal.
  process.once('exit', () => (['SIGTERM', 'SIGINT'] as const).forEach((signal) => process.removeAllListeners(signal)))
  const grace = closeWithGrace({ ...leaving, delay: config.DRAIN_DELAY_SECONDS + config.SHUTDOWN_SECONDS + 10_000, logger: { error: (m: unknown) => log.error(m) } }, async ({ signal, err }) => {
    if (err) log.fatal({ err }, 'stopping because of an error that nobody handled')
    else log.info({ signal }, 'stopping')
    phase = 'stopping'
    stopping.abort()
    // What nobody handled, or what this process may no longer do, is no normal service.
    await stop(app, serves(config.ROLE) && !err ? config.DRAIN_DELAY_SECONDS : 0, config.SHUTDOWN_SECONDS)
    await backends?.close()
    await ops.close()
    log.info('stopped')
  })

  // Thrown where nobody catches it, so that the program stops as after any other error that nobody handled, and its supervisor starts it again.
  const lost = (error: Error): void => void setImmediate(() => {
    throw error
  })
  try {
    const surroundings = { config, log, clock, registry: ops.registry, lost }
    backends = await openBackends(surroundings, waiting.open)
    app = buildApp(surroundings, backends)
    await app.ready()
    const url = serves(config.ROLE) ? await listen(app, config) : null
    phase = 'serving'
    await settledStart(checks, log, stopping.signal)
    if (stopping.signal.aborted) return
    const hello = banner({ url, publicUrl: publicUrl(app), opsUrl: ops.url }, backends.resources, config.DATA_DIR)
    if (process.stdout.isTTY) process.stdout.write(`\n${hello.text}\n`)
    else log.info(hello.facts, 'ready')
  } catch (error) {
    if (stopping.signal.aborted) return
    // Whoever ends the process now must not make a clean stop of it.
    grace.uninstall()
    await app?.close()
    await backends?.close()
    await ops.close()
    throw error
  }
}

/**
 * Ends the process with exit code 1, whatever hangs. `process.exit` waits for calls of the operating system in other threads, and one that opens a pipe or asks a
 * server of files may never return; a process that becomes another program leaves them behind. A signal to itself would do nothing where it is the first process of a container.
 */
function leave(why: string): void {
  // Not by the log, which writes in such a thread too.
  process.stderr.write(`${why}\n`)
  process.execve?.(process.execPath, [process.execPath, '-e', 'process.exit(1)'])
  process.exit(1)
}

function listen(app: FastifyInstance, { HOST: host, PORT: port }: Config): Promise<string> {
  return app.listen({ host, port, listenTextResolver: (address) => `listening on ${address}` }).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('PORT', String(port), `a port that is free on ${host} (${error.code})`)
  })
}

/** Not ready (the caller's phase) → normal service for the delay → no more connections → what is in flight gets its time → the rest is cut. Times in ms. */
async function stop(app: FastifyInstance | null, delayMs: number, patienceMs: number): Promise<void> {
  if (!app) return
  // A client that keeps its connections leaves with its next answer. One closed beneath a request that is on its way would fail that request.
  app.server.prependListener('request', (_request, response) => response.setHeader('connection', 'close'))
  await new Promise((resolve) => setTimeout(resolve, delayMs))
  app.server.keepAliveTimeout = IDLE_MS
  const cut = setTimeout(() => app.server.closeAllConnections(), patienceMs)
  await app.close()
  clearTimeout(cut)
}

/** The banner waits until /readyz would say so too: everything declared was seen once then, so that the keys it names exist. Says after a few seconds what is missing. */
async function settledStart(checks: () => Promise<Check[]>, log: Logger, stopping: AbortSignal): Promise<void> {
  for (let looks = 0; !stopping.aborted; looks++) {
    const missing = (await checks()).filter(({ ok }) => !ok).map(({ name, detail }) => `${name}: ${detail}`)
    if (missing.length === 0) return
    if (looks === MANY_LOOKS) log.warn({ missing }, 'not ready yet')
    await new Promise((resolve) => setTimeout(resolve, looks < MANY_LOOKS ? 50 : 1_000))
  }
}
