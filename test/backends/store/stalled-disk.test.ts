/** A disk that is full, then stalls, under the SQLite store: an ext4 file system in a file, frozen as a stuck device freezes it. */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Seen, Step } from './stalled-disk-process.ts'

/** The freeze ends by itself, whatever the test does: a process in a frozen file system cannot be killed. */
const LONGEST_FREEZE_S = 60
const MAX_GROWTH_MB = 200

/** Why such a disk cannot be had here, or false. */
function unavailable(): string | false {
  if (process.getuid?.() !== 0) return 'a disk that stalls needs root (mount, fsfreeze)'
  const probe = spawnSync('unshare', ['-m', 'sh', '-c', 'command -v mkfs.ext4 fsfreeze nsenter mount && test -e /dev/loop-control && mount -t tmpfs none /mnt'])
  return probe.status === 0 ? false : 'a disk that stalls needs unshare, mount, mkfs.ext4, fsfreeze and loop devices'
}

async function openDisk(t: Test) {
  const folder = t.testdir({ disk: {} })
  const [image, disk] = [join(folder, 'image'), join(folder, 'disk')]
  writeFileSync(image, '')
  truncateSync(image, 64 * 1024 * 1024)
  execFileSync('mkfs.ext4', ['-q', '-F', image])
  const script = 'mount -o loop "$0" "$1" && shift && exec "$@"'
  const program = [process.execPath, join(import.meta.dirname, 'stalled-disk-process.ts'), join(disk, 'tollgate.db')]
  // In a mount namespace of its own: the mount ends with the process.
  const child: ChildProcess = spawn('unshare', ['-m', 'sh', '-c', script, image, disk, ...program], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], env: { PATH: process.env['PATH'] } })
  const inside = (command: string) => ['nsenter', `--mount=/proc/${child.pid}/ns/mnt`, 'sh', '-c', command]
  const run = ([command = '', ...args]: string[]) => void execFileSync(command, args)
  t.teardown(() => child.kill('SIGKILL'))
  const [opened] = await once(child, 'message')
  t.match(opened, { step: 'opened' })
  let guard: ChildProcess | null = null
  return {
    freeze() {
      const [command = '', ...args] = inside(`sleep ${LONGEST_FREEZE_S}; fsfreeze -u "${disk}"`)
      guard = spawn(command, args, { stdio: 'ignore' })
      t.teardown(() => guard?.kill())
      run(inside(`fsfreeze -f "${disk}"`))
    },
    isFrozen: () => guard?.exitCode === null,
    thaw: () => run(inside(`fsfreeze -u "${disk}"`)),
    async step(step: Step): Promise<Seen> {
      child.send(step)
      const [seen] = await once(child, 'message')
      return seen as Seen
    },
  }
}

t.test('a full disk takes no writes until it has room; while it stalls, reads are answered, writes fail in time and memory is bounded; what was acknowledged is kept', { skip: unavailable(), timeout: 120_000 }, async (t) => {
  const disk = await openDisk(t)
  t.match(await disk.step('prepare'), { acknowledged: 20 })
  t.match(await disk.step('full'), { isUnwritable: true, cause: /full/, outcome: 'admitted' })
  disk.freeze()
  const stood: unknown[] = []
  const step = async (name: Step) => {
    const seen = await disk.step(name)
    stood.push(seen['standstillMs'])
    return seen
  }
  const read = { subscription: 'acme/code-0', key: 'k1-0', listed: 1, subscriptions: 20 }
  t.match(await step('read'), read)
  const flood = await step('flood')
  t.match(flood, { fulfilled: 0, rejected: 20_021, reasons: ['Unavailable'] })
  t.match(await step('read'), read, 'reads go on')
  t.ok(Number(flood['grownMb']) < MAX_GROWTH_MB)
  t.ok(disk.isFrozen(), 'all of it while the disk stood still')
  disk.thaw()
  await step('resume')
  const stopped = await disk.step('stop')
  t.match(stopped, { missing: [] })
  t.ok(Number(stopped['acknowledged']) >= 21)
  t.comment(`longest stand-still of the event loop in each step: ${stood.map((ms) => Math.round(Number(ms))).join(', ')} ms`)
})
