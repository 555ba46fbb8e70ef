/**
 * One child process for one run, with bounds of its own. It leads a process group, and the group is killed on every way out: abort, time-out, the end of the
 * child itself, our exit, and also when we are killed with SIGKILL, where Linux's parent death signal (prctl(2), PR_SET_PDEATHSIG) ends it.
 */
import { spawn, spawnSync } from 'node:child_process'
import type { Readable } from 'node:stream'

export type ChildLimits = {
  wallMs: number
  /** Processor time of all threads together. Infinity for none. */
  cpuSeconds: number
  /** Virtual memory, for programs that do not reserve far more than they use. Infinity for none. */
  addressSpaceBytes: number
  /** The largest file that it may write. */
  fileBytes: number
}

export type ChildRun = {
  /** An absolute path. */
  command: string
  args: readonly string[]
  cwd: string
  /** All of its environment; nothing of ours is inherited. */
  env?: Record<string, string>
  limits: ChildLimits
  signal: AbortSignal
  /** Gets each line of its standard output. Must not throw. */
  onLine?: (line: string) => void
}

/**
 * `stderr` holds the last 8 KiB. A code above 128 is a crash by that signal, as a shell reports it; 126 and 127 mean that the command could not be executed.
 * `limit` covers whatever the kernel ended: processor time, file size, or memory of the machine. A refused allocation is a failure of the program's own.
 */
export type ChildResult =
  | { outcome: 'ended'; code: number; stderr: string }
  | { outcome: 'killed'; by: 'signal' | 'wall' | 'limit'; stderr: string }

const STDERR_BYTES = 8192
/** A line that is longer is dropped: a child must not fill our memory. */
const LINE_CHARACTERS = 1 << 20

/**
 * Sets the bounds in the child itself and becomes the command. The death signal covers only parents that die after it was set; the comparison of the parent's id
 * covers those that died before. A bound that the system does not know, or that is lower already, stays as it is.
 */
const BOUNDED = `[ "$PPID" = "$1" ] || exit 125
ulimit -c 0 2>/dev/null
ulimit -t "$2" 2>/dev/null
ulimit -v "$3" 2>/dev/null
ulimit -f "$4" 2>/dev/null
shift 4
exec "$@"`

const FATAL_LIMITS: ReadonlySet<string> = new Set(['SIGKILL', 'SIGXCPU', 'SIGXFSZ'])
const SIGNAL_NUMBERS: Record<string, number> = { SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGBUS: 7, SIGFPE: 8, SIGSEGV: 11, SIGTERM: 15, SIGSYS: 31 }

/** Leaders of the groups that run now. */
const groups = new Set<number>()
let prefix: readonly string[] | null = null

/** The program before the shell: util-linux's setpriv, where it is installed and knows the death signal. Elsewhere a child of a killed parent runs on to its bounds. */
function deathSignal(): readonly string[] {
  if (prefix) return prefix
  const setpriv = ['/usr/bin/setpriv', '--no-new-privs', '--pdeathsig', 'KILL', '--']
  const works = process.platform === 'linux' && spawnSync(setpriv[0] ?? '', [...setpriv.slice(1), '/bin/sh', '-c', ':'], { env: {}, stdio: 'ignore' }).status === 0
  process.once('exit', () => groups.forEach(killGroup))
  return (prefix = works ? setpriv : [])
}

function killGroup(leader: number): void {
  try {
    process.kill(-leader, 'SIGKILL')
  } catch {
    // Nothing of the group is left.
  }
}

const bound = (amount: number, unit: number): string => (Number.isFinite(amount) ? String(Math.max(1, Math.ceil(amount / unit))) : 'unlimited')

/** Runs it to its end. Standard input is empty. An aborted `signal` is an outcome, also before the start. Rejects when no process can be started at all. */
export async function runChild({ command, args, cwd, env = {}, limits, signal, onLine }: ChildRun): Promise<ChildResult> {
  if (signal.aborted) return { outcome: 'killed', by: 'signal', stderr: '' }
  const bounds = [bound(limits.cpuSeconds, 1), bound(limits.addressSpaceBytes, 1024), bound(limits.fileBytes, 512)]
  const [file = '', ...rest] = [...deathSignal(), '/bin/sh', '-c', BOUNDED, 'sh', String(process.pid), ...bounds, command, ...args]
  const child = spawn(file, rest, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const { promise, resolve, reject } = Promise.withResolvers<ChildResult>()
  const { pid } = child
  let killedBy: 'signal' | 'wall' | null = null
  let stderr = ''
  const kill = (by: 'signal' | 'wall'): void => {
    if (pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    killedBy ??= by
    killGroup(pid)
  }
  const abort = (): void => kill('signal')
  signal.addEventListener('abort', abort, { once: true })
  const timer = setTimeout(kill, limits.wallMs, 'wall')
  if (pid !== undefined) groups.add(pid)
  lines(child.stdout, onLine)
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr = (stderr + text).slice(-STDERR_BYTES)))
  child.on('error', reject)
  // What the leader left behind is of its group, and would hold our pipes open.
  child.on('exit', () => pid !== undefined && killGroup(pid))
  child.on('close', (code, ended) => {
    if (killedBy) resolve({ outcome: 'killed', by: killedBy, stderr })
    else if (ended !== null && FATAL_LIMITS.has(ended)) resolve({ outcome: 'killed', by: 'limit', stderr })
    else resolve({ outcome: 'ended', code: code ?? 128 + (SIGNAL_NUMBERS[ended ?? ''] ?? 0), stderr })
  })
  try {
    return await promise
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', abort)
    if (pid !== undefined) groups.delete(pid)
  }
}

function lines(stream: Readable, onLine: ((line: string) => void) | undefined): void {
  if (!onLine) return void stream.resume()
  let rest = ''
  let tooLong = false
  const emit = (line: string): void => {
    if (!tooLong) onLine(line)
    tooLong = false
  }
  stream.setEncoding('utf8').on('data', (text: string) => {
    const parts = (rest + text).split('\n')
    rest = parts.pop() ?? ''
    parts.forEach(emit)
    tooLong ||= rest.length > LINE_CHARACTERS
    if (tooLong) rest = ''
  })
  stream.on('end', () => rest !== '' && emit(rest))
}
