/** Scratch folders, one per run. Their names identify the process that made them, so that those of dead processes can be swept. */
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
 * The start time of a process in clock ticks since boot (proc_pid_stat(5), field 22); null when it is dead. The id alone is ambiguous: the first process of a
 * container has the same id after every restart. Without /proc, the id has to suffice.
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

/** Makes a folder for one run under `base`, which is created when it does not exist. */
export async function scratchFolder(base: string): Promise<Scratch> {
  await mkdir(base, { recursive: true, mode: 0o700 })
  const path = await mkdtemp(join(base, `${[PREFIX, host, process.pid, startOf(process.pid)].join('_')}_`))
  return { path, remove: () => rm(path, { recursive: true, force: true, maxRetries: 3 }) }
}

/** Removes the folders of dead processes of this host. Folders of other hosts that share `base`, and all other files, stay. */
export async function sweepScratch(base: string): Promise<void> {
  const names = await readdir(base).catch(() => [])
  const left = names.filter((name) => {
    const [prefix, machine, pid, start] = name.split('_')
    if (prefix !== PREFIX || machine !== host || start === undefined) return false
    return startOf(Number(pid)) !== start
  })
  await Promise.all(left.map((name) => rm(join(base, name), { recursive: true, force: true, maxRetries: 3 })))
}
