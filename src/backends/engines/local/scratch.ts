/** Scratch folders: one for each run, under the name of the process that made it, so that a later one knows which were left behind. */
import { readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'

export type Scratch = {
  /** Absolute, empty at first, readable by this user alone (0700). */
  path: string
  /** Removes it with all it holds. Twice is harmless. */
  remove(): Promise<void>
}

const PREFIX = 'run'

/**
 * When a process began, in ticks since the machine did (proc_pid_stat(5), field 22); null when it is no more. Ids are given again, in a container soon: there the
 * first process has the same id in every life. Without /proc the id alone has to do.
 */
function startOf(pid: number): string | null {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return null
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' ? null : (fields[19] ?? '0')
  } catch {
    return '0'
  }
}

const host = hostname().replaceAll('_', '-')

/** Makes a folder for one run under `base`, which is made when it is not there. */
export async function scratchFolder(base: string): Promise<Scratch> {
  await mkdir(base, { recursive: true, mode: 0o700 })
  const path = await mkdtemp(join(base, `${[PREFIX, host, process.pid, startOf(process.pid)].join('_')}_`))
  return { path, remove: () => rm(path, { recursive: true, force: true, maxRetries: 3 }) }
}

/** Removes the folders of processes of this machine that are no more. Those of other machines that share `base`, and all other files, stay. */
export async function sweepScratch(base: string): Promise<void> {
  const names = await readdir(base).catch(() => [])
  const left = names.filter((name) => {
    const [prefix, machine, pid, start] = name.split('_')
    if (prefix !== PREFIX || machine !== host || start === undefined) return false
    return startOf(Number(pid)) !== start
  })
  await Promise.all(left.map((name) => rm(join(base, name), { recursive: true, force: true, maxRetries: 3 })))
}
