import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Running } from './process.ts'

/** A server that a test may kill and freeze. Data and address survive `kill` and `start`; `stop` removes everything. */
export type Server = {
  /** Its data. A copy that is made while it is killed is of one point in time. */
  folder: string
  /** SIGKILL of all its processes; resolves when they have exited. */
  kill(): Promise<void>
  /** Restarts it on the same data and address; resolves when it is ready. */
  start(): Promise<void>
  /** SIGSTOP: connections stay open, and nothing answers. */
  freeze(): Promise<void>
  thaw(): void
  stop(): Promise<void>
}

/** Removes folders of killed test processes: the name of a folder has the process id. */
async function sweep(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const [, pid] = name.match(/^tollgate-server-(\d+)-/) ?? []
    if (pid !== undefined && !alive(Number(pid))) await rm(join(tmpdir(), name), { recursive: true, force: true })
  }
}

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // A process of another user cannot be signaled.
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

/** Starts a server of one or more processes over a temporary folder. `prepare` is called once, `launch` at each start. */
export async function serve(prepare: (folder: string) => Promise<void>, launch: (folder: string, running: Running[]) => Promise<void>): Promise<Server> {
  await sweep()
  const folder = await mkdtemp(join(tmpdir(), `tollgate-server-${process.pid}-`))
  // Processes that `launch` has started so far, to stop them when a later one fails.
  let running: Running[] = []
  const server: Server = {
    folder,
    async kill() {
      const ended = running
      running = []
      await Promise.all(ended.map((one) => one.kill()))
    },
    start: () => launch(folder, running),
    freeze: async () => void (await Promise.all(running.map((one) => one.freeze()))),
    thaw: () => running.forEach((one) => one.thaw()),
    async stop() {
      await server.kill()
      await rm(folder, { recursive: true, force: true })
    },
  }
  try {
    await prepare(folder)
    await server.start()
    return server
  } catch (error) {
    await server.stop()
    throw error
  }
}
