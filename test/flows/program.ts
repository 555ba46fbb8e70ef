/** Starts the program as a user does, `bin/tollgate.mjs` in a folder of its own, and ends it. */
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Role } from '../../src/config/config.ts'
import { TETHER } from '../servers/process.ts'
import { eventually } from './eventually.ts'

export type Exit = { code: number | null; signal: NodeJS.Signals | null }

/** One process of the program. */
export type Process = {
  role: Role
  /** The public listener, such as http://127.0.0.1:41234, '' in a role that has none; and the operations listener. */
  url: string
  opsUrl: string
  pid: number
  /** Every line that it logged so far. */
  log: string[]
  /** Its environment. */
  env: Record<string, string>
  /** Sends SIGTERM, again if it is called again. Resolves when the process is gone. */
  stop(): Promise<Exit>
  /** Sends SIGKILL. Resolves when the process is gone, at once if it is. */
  kill(): Promise<Exit>
}

/** The program as its users meet it: one process, or several that share their servers. */
export type Program = Omit<Process, 'role' | 'pid'> & {
  /** The processes that it is made of. */
  processes: Process[]
  /** The API key in the Secret file, once it is there and known to the gateway, which is a moment later. */
  key(secretName: string): Promise<string>
  /** The API key in the Secret file, or null when there is no such file now. */
  keyNow(secretName: string): Promise<string | null>
}

export const NAMESPACE = 'acme'

export const REPOSITORY = join(import.meta.dirname, '../..')
export const PROGRAM = join(REPOSITORY, 'bin/tollgate.mjs')

export type ProcessOptions = {
  /** The working folder; `plans` in it are the manifests, `data` in it is written. */
  folder: string
  role?: Role
  /** Settings beside the defaults. */
  env?: Record<string, string>
  /** Where the program is; this checkout if absent. */
  root?: string
  /** What runs it, before its own arguments; this Node and the program of `root` if absent. */
  argv?: [string, ...string[]]
}

/** A process that may not be ready yet, or never will be. */
export type Starting = Pick<Process, 'log' | 'stop' | 'kill'> & {
  /** The operations listener, which comes first. */
  opsUrl: Promise<string>
  /** Rejects with the log when it ends before that. */
  ready: Promise<Process>
}

/** Starts a process and waits for nothing. */
export function launch({ folder, role = 'all', env: given = {}, root = REPOSITORY, argv }: ProcessOptions): Starting {
  const env = { PATH: process.env['PATH'] ?? '', DATA_DIR: join(folder, 'data'), PORT: '0', OPS_PORT: '0', ...given }
  // The test runner has every child load what it watches tests with; users have none of it.
  const [program = '', ...args] = [...TETHER, 'env', '-u', 'NODE_OPTIONS', ...(argv ?? [process.execPath, join(root, 'bin/tollgate.mjs')])]
  const child = spawn(program, [...args, role], { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const log: string[] = []
  const exited = new Promise<Exit>((resolve) => child.once('close', (code, signal) => resolve({ code, signal })))
  const operations = Promise.withResolvers<string>()
  const said = Promise.withResolvers<{ url: string; opsUrl: string }>()
  createInterface({ input: child.stdout }).on('line', (line) => {
    log.push(line)
    const { msg, url = '', opsUrl } = parsed(line) ?? {}
    const listening = /^operations listen on (\S+)$/.exec(String(msg))?.[1]
    if (listening !== undefined) operations.resolve(listening)
    if (msg === 'ready') said.resolve({ url: String(url), opsUrl: String(opsUrl) })
  })
  createInterface({ input: child.stderr }).on('line', (line) => log.push(line))
  const early = exited.then(({ code, signal }) => {
    throw new Error(`the program (${role}) ended with ${signal ?? code} before it was ready:\n${log.slice(-30).join('\n')}`)
  })
  early.catch(operations.reject)
  early.catch(said.reject)
  const end = (signal: NodeJS.Signals) => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    return exited
  }
  const ending = { log, stop: () => end('SIGTERM'), kill: () => end('SIGKILL') }
  const ready = said.promise.then((addresses) => ({ ...addresses, ...ending, role, env, pid: child.pid ?? 0 }))
  // Whoever is interested looks by itself.
  for (const promise of [operations.promise, ready]) promise.catch(() => {})
  return { ...ending, opsUrl: operations.promise, ready }
}

/** Resolves once the process says that it is ready; rejects with its log when it ends before that. */
export function startProcess(options: ProcessOptions): Promise<Process> {
  return launch(options).ready
}

/** The whole program in one process on the embedded side. */
export async function start(options: ProcessOptions & { namespace?: string }): Promise<Program> {
  const all = await startProcess(options)
  return { ...all, ...whole([all], join(options.folder, 'data'), options.namespace) }
}

/** What a program of these processes is to its users. `dataDir` is where its controller writes Secrets. */
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
