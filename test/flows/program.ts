/** Starts the program as a user does, `bin/tollgate.mjs` in a folder of its own, and ends it. */
import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { eventually } from './eventually.ts'

export type Exit = { code: number | null; signal: NodeJS.Signals | null }

export type Program = {
  /** The public listener, such as http://127.0.0.1:41234, and the operations listener. */
  url: string
  opsUrl: string
  pid: number
  /** Every line that it logged so far. */
  log: string[]
  /** The API key in the Secret file, once it is there and known to the gateway, which is a moment later. */
  key(secretName: string): Promise<string>
  /** The API key in the Secret file, or null when there is no such file now. */
  keyNow(secretName: string): Promise<string | null>
  /** Sends SIGTERM, again if it is called again. Resolves when the process is gone. */
  stop(): Promise<Exit>
  /** Sends SIGKILL. Resolves when the process is gone, at once if it is. */
  kill(): Promise<Exit>
}

export const NAMESPACE = 'acme'

export const REPOSITORY = join(import.meta.dirname, '../..')
export const PROGRAM = join(REPOSITORY, 'bin/tollgate.mjs')

type Options = {
  /** The working folder; `plans` in it are the manifests, `data` in it is written. */
  folder: string
  /** Settings beside the defaults. */
  env?: Record<string, string>
  /** Where the program is; this checkout if absent. */
  root?: string
  namespace?: string
}

/** Resolves once the program says that it is ready; rejects with its log when it ends before that. */
export async function start({ folder, env = {}, root = REPOSITORY, namespace = NAMESPACE }: Options): Promise<Program> {
  const dataDir = join(folder, 'data')
  const child = spawn(process.execPath, [join(root, 'bin/tollgate.mjs')], {
    cwd: folder,
    env: { PATH: process.env['PATH'], DATA_DIR: dataDir, PORT: '0', OPS_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const log: string[] = []
  const exited = new Promise<Exit>((resolve) => child.once('close', (code, signal) => resolve({ code, signal })))
  const ready = new Promise<{ url: string; opsUrl: string }>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      log.push(line)
      const said = parsed(line)
      if (said?.['msg'] === 'ready') resolve({ url: String(said['url']), opsUrl: String(said['opsUrl']) })
    })
  })
  createInterface({ input: child.stderr }).on('line', (line) => log.push(line))
  const addresses = await Promise.race([
    ready,
    exited.then(({ code, signal }) => {
      throw new Error(`the program ended with ${signal ?? code} before it was ready:\n${log.slice(-30).join('\n')}`)
    }),
  ])
  const end = (signal: NodeJS.Signals) => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    return exited
  }
  const keyNow = (secretName: string) => readFile(join(dataDir, 'secrets', namespace, secretName, 'api-key'), 'utf8').catch(() => null)
  return {
    ...addresses,
    pid: child.pid ?? 0,
    log,
    key: (secretName) =>
      eventually(`the Secret ${secretName}`, async () => {
        const key = await keyNow(secretName)
        const known = key !== null && (await fetch(`${addresses.url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })).status !== 401
        return known ? key : null
      }),
    keyNow,
    stop: () => end('SIGTERM'),
    kill: () => end('SIGKILL'),
  }
}

function parsed(line: string): Record<string, unknown> | null {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}
