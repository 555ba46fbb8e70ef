import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

/** A server's process and its children, in a separate process group. */
export type Running = {
  /** SIGSTOP; resolves when every thread of the process has stopped. */
  freeze(): Promise<void>
  thaw(): void
  /** SIGKILL; resolves when all processes have exited. */
  kill(): Promise<void>
}

type Program = {
  argv: [string, ...string[]]
  env?: Record<string, string>
  /** Polled with the output so far until it returns true. */
  ready(printed: string): Promise<boolean>
}

/** On Linux the kernel kills the process when ours ends for any reason. */
export const TETHER = existsSync('/usr/bin/setpriv') ? ['setpriv', '--pdeathsig', 'KILL'] : []

/** Starts a program and waits until it is ready. Rejects with the end of its output when it exits before that. It does not keep our process alive. */
export async function start({ argv, env, ready }: Program): Promise<Running> {
  const [program = '', ...args] = [...TETHER, ...argv]
  const child = spawn(program, args, { detached: true, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let printed = ''
  const keep = (chunk: Buffer): void => void (printed = `${printed}${chunk}`.slice(-100_000))
  child.stdout.on('data', keep)
  child.stderr.on('data', keep)
  let gone = false
  // 'close' follows the end of the process and of all children that hold its pipes.
  const closed = once(child, 'close').catch((error: unknown) => keep(Buffer.from(`${error}\n`))).finally(() => (gone = true))

  while (!(await ready(printed))) {
    if (gone) throw new Error(`${argv[0]} ended with ${child.signalCode ?? child.exitCode}:\n${printed.trimEnd().split('\n').slice(-30).join('\n')}`)
    await pause(50)
  }
  const handles = [child, child.stdout as Socket, child.stderr as Socket]
  for (const handle of handles) handle.unref()
  const signal = (name: NodeJS.Signals): void => {
    if (!gone && child.pid !== undefined) process.kill(-child.pid, name)
  }
  return {
    async freeze() {
      signal('SIGSTOP')
      // The kernel stops a thread when it next runs: until then, one that already runs still answers.
      while (!gone && child.pid !== undefined && !(await stopped(child.pid))) await pause(1)
    },
    thaw: () => signal('SIGCONT'),
    async kill() {
      if (gone) return
      for (const handle of handles) handle.ref()
      signal('SIGKILL')
      await closed
    },
  }
}

/** Whether all threads of a process are stopped. True where the system has no `/proc`: there it cannot be seen. */
async function stopped(pid: number): Promise<boolean> {
  const folder = `/proc/${pid}/task`
  if (!existsSync(folder)) return true
  const stats = await Promise.all((await readdir(folder)).map((thread) => readFile(`${folder}/${thread}/stat`, 'utf8').catch(() => '')))
  // The state follows the name, which stands in parentheses and may hold any character.
  return stats.every((stat) => stat === '' || stat.slice(stat.lastIndexOf(')') + 2).startsWith('T'))
}

/** Whether something accepts connections on the loopback port. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true))
    socket.on('error', () => resolve(false)).on('connect', () => socket.destroy())
  })
}

/** Ports that were returned before: their servers may not listen yet. */
const given = new Set<number>()

/**
 * A loopback port that nothing listens on, below those that systems give to outgoing connections: a client that keeps calling a
 * server that is down for a while would at last be given the server's own port, and be connected to itself.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 15_000 + Math.floor(Math.random() * 15_000)
    if (given.has(port)) continue
    given.add(port)
    const listener = createServer()
    const free = await new Promise<boolean>((resolve) => listener.on('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)))
    if (!free) continue
    await new Promise((resolve) => listener.close(resolve))
    return port
  }
}
