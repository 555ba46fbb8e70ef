import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

/** An entry that is a root folder of Debian unstable with packages of it installed, for `chroot`. The program is relative to that root. Unstable has no versions to pin: `version` says what is meant, debian.sh prints what was had. */
export function debianRoot(name: string, version: string, packages: string[], program: string): Entry {
  return {
    name,
    version,
    program: join('root', program),
    async lacks() {
      if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'needs root on Linux, for debootstrap'
      const message = 'needs debootstrap and unshare (on Debian: apt-get install debootstrap util-linux)'
      return command('sh', ['-c', 'command -v unshare && { command -v debootstrap || command -v apt-get; }']).then(() => null, () => message)
    },
    async install(folder) {
      console.log((await command('sh', [join(import.meta.dirname, 'debian.sh'), join(folder, 'root'), ...packages])).trimEnd().split('\n').at(-1))
    },
  }
}

/** The missing prerequisite of `unpackPackages`, like `Entry.lacks`. */
export function lacksPackages(): Promise<string | null> {
  const message = 'needs Debian, for apt-get download and dpkg-deb'
  return command('sh', ['-c', 'command -v apt-get && command -v dpkg-deb']).then(() => null, () => message)
}

/** Unpacks packages of the machine's Debian into a folder without installing them: needs no root and runs no scripts. */
export async function unpackPackages(packages: string[], folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  const fetched = () => command('apt-get', ['download', '-q', ...packages], folder)
  // The machine's package lists may be empty or old.
  await fetched().catch(() => command('apt-get', ['update', '-q']).then(fetched))
  for (const file of await readdir(folder)) if (file.endsWith('.deb')) await command('dpkg-deb', ['-x', join(folder, file), folder])
}
