/**
 * A child process for one run, with resource limits. It leads a process group that is killed on abort, on time-out, when the child itself
 * ends and when this process exits. After a SIGKILL of this process, Linux's parent death signal (prctl(2), PR_SET_PDEATHSIG) kills the
 * child.
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
 * `limit` means a kill by the kernel: processor time, file size, or the out-of-memory killer. A refused allocation is the program's own failure.
 */
export type ChildResult =
  { outcome: 'ended'; code: number; stderr: string } | { outcome: 'killed'; by: 'signal' | 'wall' | 'limit'; stderr: string }

const STDERR_BYTES = 8192
/** Longer lines are dropped: a child must not exhaust our memory. */
const LINE_CHARACTERS = 1 << 20

/**
 * Sets the limits in the child and executes the command. The death signal does not cover a parent that died before it was set; the
 * comparison of the parent's id does. A limit that the system does not support, or that is lower already, stays as it is.
 */
const BOUNDED = `[ "$PPID" = "$1" ] || exit 125
ulimit -c 0 2>/dev/null
ulimit -t "$2" 2>/dev/null
ulimit -v "$3" 2>/dev/null
ulimit -f "$4" 2>/dev/null
shift 4
exec "$@"`

const FATAL_LIMITS: ReadonlySet<string> = new Set(['SIGKILL', 'SIGXCPU', 'SIGXFSZ'])
const SIGNAL_NUMBERS: Record<string, number> = {
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGSEGV: 11,
  SIGTERM: 15,
  SIGSYS: 31,
}

/** Out of descriptors, processes or memory, nothing was tried. */
const EXHAUSTED = ['EMFILE', 'ENFILE', 'EAGAIN', 'ENOMEM']

/** Leaders of the process groups that are running. */
const groups = new Set<number>()
let prefix: readonly string[] | null = null

/**
 * The command prefix that sets the death signal: util-linux's setpriv. Without it, or where it is not permitted, the child of a killed
 * parent runs until its limits end it.
 */
function deathSignal(): readonly string[] {
  if (prefix) return prefix
  const setpriv = ['/usr/bin/setpriv', '--no-new-privs', '--pdeathsig', 'KILL', '--']
  const tried =
    process.platform === 'linux'
      ? spawnSync(setpriv[0] ?? '', [...setpriv.slice(1), '/bin/sh', '-c', ':'], { env: {}, stdio: 'ignore' })
      : null
  if (EXHAUSTED.includes((tried?.error as NodeJS.ErrnoException | undefined)?.code ?? '')) return []
  process.once('exit', () => groups.forEach(killGroup))
  return (prefix = tried?.status === 0 ? setpriv : [])
}

function killGroup(leader: number): void {
  try {
    process.kill(-leader, 'SIGKILL')
  } catch {
    // The group is empty.
  }
}

const bound = (amount: number, unit: number): string =>
  Number.isFinite(amount) ? String(Math.max(1, Math.ceil(amount / unit))) : 'unlimited'

/** Runs it to its end. Standard input is empty. An aborted `signal` is an outcome, also before the start. Rejects when no process can be started at all. */
export async function runChild({ command, args, cwd, env = {}, limits, signal, onLine }: ChildRun): Promise<ChildResult> {
  if (signal.aborted) return { outcome: 'killed', by: 'signal', stderr: '' }
  const bounds = [bound(limits.cpuSeconds, 1), bound(limits.addressSpaceBytes, 1024), bound(limits.fileBytes, 512)]
  const [file = '', ...rest] = [...deathSignal(), '/bin/sh', '-c', BOUNDED, 'sh', String(process.pid), ...bounds, command, ...args]
  const child = spawn(file, rest, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const { promise, resolve, reject } = Promise.withResolvers<ChildResult>()
  child.on('error', reject)
  // Out of file descriptors, `spawn` returns a child without streams.
  if (!child.stdout) return promise
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
  // Processes that the leader left behind are in its group and would keep our pipes open.
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
