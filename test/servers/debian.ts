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
