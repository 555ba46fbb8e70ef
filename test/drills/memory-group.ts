/** A control group that limits the memory of a program (Linux, version 1 or 2). Needs root. */
import { existsSync } from 'node:fs'
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'

export type MemoryGroup = {
  /** Before the command and arguments of a program, which runs in the group then. */
  enter: [string, ...string[]]
  /** How many of its processes the kernel has killed, because the limit was reached. */
  killed(): Promise<number>
  /** Removes the group, once its processes have exited. */
  close(): Promise<void>
}

const ROOT = '/sys/fs/cgroup'

/** Opens a group with so many bytes of memory, page cache included. Rejects where the machine does not allow that. */
export async function openMemoryGroup(bytes: number): Promise<MemoryGroup> {
  const isV2 = existsSync(join(ROOT, 'cgroup.controllers'))
  const group = join(ROOT, ...(isV2 ? [] : ['memory']), `tollgate-drill-${process.pid}`)
  if (isV2) await writeFile(join(ROOT, 'cgroup.subtree_control'), '+memory')
  await mkdir(group)
  await writeFile(join(group, isV2 ? 'memory.max' : 'memory.limit_in_bytes'), String(bytes))
  return {
    enter: ['sh', '-c', `echo $$ > ${group}/cgroup.procs && exec "$@"`, 'sh'],
    async killed() {
      const events = await readFile(join(group, isV2 ? 'memory.events' : 'memory.oom_control'), 'utf8')
      return Number(/^oom_kill (\d+)$/m.exec(events)?.[1] ?? 0)
    },
    async close() {
      // A moment after its last process.
      for (let tries = 0; tries < 100; tries++) {
        if (await rmdir(group).then(() => true, () => false)) return
        await pause(100)
      }
    },
  }
}
