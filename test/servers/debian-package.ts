import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

/**
 * An entry that is programs of the machine, installed as a package of its Debian where they are missing, as an operator would. For each program the first of its `names` on the PATH counts.
 * The cache holds links, so that a machine without them is noticed.
 */
export function debianPackage(name: string, packageName: string, programs: readonly [string, ...string[]][]): Entry {
  const found = (names: readonly string[]): Promise<string | null> =>
    command('sh', ['-c', names.map((each) => `command -v ${each}`).join(' || ')]).then((path) => path.trim(), () => null)
  const present = async (): Promise<boolean> => (await Promise.all(programs.map(found))).every((path) => path !== null)
  return {
    name,
    version: 'debian',
    program: programs[0]?.[0] ?? name,
    async lacks() {
      if (await present()) return null
      const message = `needs ${programs.map(([first]) => first).join(' and ')} (on Debian, as root: apt-get install ${packageName})`
      if (process.getuid?.() !== 0) return message
      return command('sh', ['-c', 'command -v apt-get']).then(() => null, () => message)
    },
    async install(folder) {
      if (!(await present())) {
        await command('apt-get', ['update', '-q'])
        await command('sh', ['-c', `DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ${packageName}`])
      }
      await mkdir(folder, { recursive: true })
      for (const names of programs) await symlink((await found(names)) ?? '', join(folder, names[0]))
    },
  }
}
