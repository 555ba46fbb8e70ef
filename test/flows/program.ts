/** Starts and stops the program as a child process: `bin/tollgate.mjs` in a separate folder. */
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Role } from '../../src/config/needed-backends.ts'
import { TETHER } from '../servers/process.ts'
import { eventually } from './eventually.ts'

export type Exit = { code: number | null; signal: NodeJS.Signals | null }

/** One process of the program. */
export type Process = {
  role: Role
  /** URL of the public listener, such as http://127.0.0.1:41234, '' in a role without one; and of the operations listener. */
  url: string
  opsUrl: string
  pid: number
  /** All log lines so far. */
  log: string[]
  /** Its environment. */
  env: Record<string, string>
  /** Sends SIGTERM, on each call. Resolves when the process has exited. */
  stop(): Promise<Exit>
  /** Sends SIGKILL. Resolves when the process has exited. */
  kill(): Promise<Exit>
}

/** A running program: one process, or several over shared servers. */
export type Program = Omit<Process, 'role' | 'pid'> & {
  /** Its processes. */
  processes: Process[]
  /** The API key in the Secret file, once the file exists and the gateway accepts the key. */
  key(secretName: string): Promise<string>
  /** The API key in the Secret file, or null without such a file. */
  keyNow(secretName: string): Promise<string | null>
}

export const NAMESPACE = 'acme'

export const REPOSITORY = join(import.meta.dirname, '../..')
export const PROGRAM = join(REPOSITORY, 'bin/tollgate.mjs')

export type ProcessOptions = {
  /** The working folder, with the manifests in `plans` and the data in `data`. */
  folder: string
  role?: Role
  /** Settings in addition to the defaults. */
  env?: Record<string, string>
  /** Root of the program; this checkout if absent. */
  root?: string
  /** Command before its arguments; this Node and the program of `root` if absent. */
  argv?: [string, ...string[]]
}

/** A started process, ready or not. */
export type Starting = Pick<Process, 'log' | 'stop' | 'kill'> & {
  /** URL of the operations listener, which starts first. */
  opsUrl: Promise<string>
  /** Rejects with the log when it exits before that. */
  ready: Promise<Process>
}

/** Starts a process without waiting for readiness. */
export function launch({ folder, role = 'all', env: given = {}, root = REPOSITORY, argv }: ProcessOptions): Starting {
  const env = { PATH: process.env['PATH'] ?? '', DATA_DIR: join(folder, 'data'), PORT: '0', OPS_PORT: '0', ...given }
  const [program = '', ...args] = [...TETHER, ...(argv ?? [process.execPath, join(root, 'bin/tollgate.mjs')])]
  const child = spawn(program, [...args, role], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const log: string[] = []
  const exited = new Promise<Exit>((resolve) => child.once('close', (code, signal) => resolve({ code, signal })))
  const operations = Promise.withResolvers<string>()
  const readyLine = Promise.withResolvers<{ url: string; opsUrl: string }>()
  createInterface({ input: child.stdout }).on('line', (line) => {
    log.push(line)
    const { msg, url = '', opsUrl } = parsed(line) ?? {}
    const listening = /^operations listen on (\S+)$/.exec(String(msg))?.[1]
    if (listening !== undefined) operations.resolve(listening)
    if (msg === 'ready') readyLine.resolve({ url: String(url), opsUrl: String(opsUrl) })
  })
  createInterface({ input: child.stderr }).on('line', (line) => log.push(line))
  const early = exited.then(({ code, signal }) => {
    throw new Error(`the program (${role}) ended with ${signal ?? code} before it was ready:\n${log.slice(-30).join('\n')}`)
  })
  early.catch(operations.reject)
  early.catch(readyLine.reject)
  const end = (signal: NodeJS.Signals) => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    return exited
  }
  const ending = { log, stop: () => end('SIGTERM'), kill: () => end('SIGKILL') }
  const ready = readyLine.promise.then((addresses) => ({ ...addresses, ...ending, role, env, pid: child.pid ?? 0 }))
  // Callers that are interested await it.
  for (const promise of [operations.promise, ready]) promise.catch(() => {})
  return { ...ending, opsUrl: operations.promise, ready }
}

/** Resolves once the process is ready; rejects with its log when it exits before that. */
export function startProcess(options: ProcessOptions): Promise<Process> {
  return launch(options).ready
}

/** The whole program in one process on the embedded side. */
export async function start(options: ProcessOptions & { namespace?: string }): Promise<Program> {
  const all = await startProcess(options)
  return { ...all, ...whole([all], join(options.folder, 'data'), options.namespace) }
}

/** A program of these processes. `dataDir` is the folder in which its controller writes Secrets. */
export function whole(processes: Process[], dataDir: string, namespace = NAMESPACE): Pick<Program, 'processes' | 'key' | 'keyNow'> {
  const url = processes.find((one) => one.url !== '')?.url ?? ''
  const keyNow = (secretName: string) => readFile(join(dataDir, 'secrets', namespace, secretName, 'api-key'), 'utf8').catch(() => null)
  return {
    processes,
    keyNow,
    key: (secretName) =>
      eventually(`the Secret ${secretName}`, async () => {
        const key = await keyNow(secretName)
        const known = key !== null && (await fetch(`${url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })).status !== 401
        return known ? key : null
      }),
  }
}

function parsed(line: string): Record<string, unknown> | null {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}
