/** Child processes of a benchmark: start on free loopback ports, readiness, CPU and memory from /proc, stop. */
import { spawn } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { get } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { freePort } from '../test/servers/process.ts'

export type Process = {
  url: string
  /** URL of the operations listener, if the program has one. */
  opsUrl: string
  /** From the start of the process to its first 200. */
  readyMs: number
  /** Processor time so far. */
  cpuMs(): number
  /** Resident memory. */
  rssBytes(): number
  /** Peak resident memory. */
  peakRssBytes(): number
  /** Number of its threads. */
  threads(): number
  /** SIGKILL. */
  kill(): Promise<void>
  /** SIGTERM, and SIGKILL when it takes too long. */
  stop(): Promise<void>
}

export type Program = {
  /** The script, relative to the root of the repository. `flags` are Node's, `args` the script's. */
  script: string
  /** Another root of a checkout. */
  root?: string | null
  flags?: string[]
  args?: string[]
  env: Record<string, string>
  /** The file of its standard output and standard error. */
  output: string
  folder: string
  /** URL that is polled until it answers 200. */
  ready: (port: number, opsPort: number) => string
  /** The core that it is bound to, by taskset. */
  core?: number | undefined
}

const ROOT = join(import.meta.dirname, '..')
const LONGEST_START_MS = 120_000
const LONGEST_STOP_MS = 20_000
/** /proc counts in hundredths of a second. */
const TICK_MS = 10

/** Starts a program with its ports in PORT and OPS_PORT, and waits until it is ready. Rejects when it is not ready in two minutes. */
export async function start({ script, root, flags = [], args = [], env, output, folder, ready, core }: Program): Promise<Process> {
  const [port, opsPort] = [await freePort(), await freePort()]
  const file = openSync(output, 'a')
  const command = [...(core === undefined ? [] : ['taskset', '-c', String(core)]), process.execPath, ...flags, join(root ?? ROOT, script), ...args]
  const startedMs = performance.now()
  const child = spawn(command[0] ?? '', command.slice(1), {
    cwd: folder,
    env: { PATH: process.env['PATH'], ...env, PORT: String(port), OPS_PORT: String(opsPort) },
    stdio: ['ignore', file, file],
  })
  closeSync(file)
  const exited = new Promise<void>((resolve) => child.once('close', () => resolve()))
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM')
    const late = setTimeout(() => child.kill('SIGKILL'), LONGEST_STOP_MS)
    await exited
    clearTimeout(late)
  }
  while (!(await answers(ready(port, opsPort)))) {
    if (child.exitCode === null && child.signalCode === null && performance.now() - startedMs < LONGEST_START_MS) await pause(2)
    else throw await stop().then(() => new Error(`${script} was not ready:\n${readFileSync(output, 'utf8').slice(-2000)}`))
  }
  return {
    url: `http://127.0.0.1:${port}`,
    opsUrl: `http://127.0.0.1:${opsPort}`,
    readyMs: performance.now() - startedMs,
    cpuMs: () => cpuTicks(child.pid ?? 0) * TICK_MS,
    rssBytes: () => status(child.pid ?? 0, 'VmRSS') * 1024,
    peakRssBytes: () => status(child.pid ?? 0, 'VmHWM') * 1024,
    threads: () => status(child.pid ?? 0, 'Threads'),
    async kill() {
      child.kill('SIGKILL')
      await exited
    },
    stop,
  }
}

/** Processor time so far, by name, of all processes that this one started, or those started: also that of the servers. */
export function cpuMsByName(): Map<string, number> {
  const all = new Map(readdirSync('/proc').flatMap((name) => (/^[0-9]+$/.test(name) ? [[Number(name), statOf(Number(name))] as const] : [])))
  const isOurs = (pid: number): boolean => pid > 1 && (pid === process.pid || isOurs(Number(all.get(pid)?.fields[1] ?? 0)))
  const sums = new Map<string, number>()
  for (const [pid, stat] of all)
    // With those of its processes that have ended.
    if (stat && pid !== process.pid && isOurs(pid)) sums.set(stat.name, (sums.get(stat.name) ?? 0) + stat.fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_MS)
  return sums
}

/** Null when the process has ended. `fields` are those after its name. */
function statOf(pid: number): { name: string; fields: string[] } | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const end = stat.lastIndexOf(')')
    return { name: stat.slice(stat.indexOf('(') + 1, end), fields: stat.slice(end + 2).split(' ') }
  } catch {
    return null
  }
}

function cpuTicks(pid: number): number {
  const { fields = [] } = statOf(pid) ?? {}
  return Number(fields[11]) + Number(fields[12])
}

/** A number of /proc/<pid>/status; memory is in KiB there. */
function status(pid: number, of: 'VmRSS' | 'VmHWM' | 'Threads'): number {
  return Number(new RegExp(`^${of}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1])
}

function answers(url: string): Promise<boolean> {
  return new Promise((resolve) => {
    get(url, { agent: false }, (response) => {
      response.resume()
      resolve(response.statusCode === 200)
    }).once('error', () => resolve(false))
  })
}
