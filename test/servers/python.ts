import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

/** An entry that is a package of the Python Package Index, in a separate virtual environment; the program is that environment's Python. */
export function pythonPackage(name: string, packageName: string, version: string): Entry {
  return {
    name,
    version,
    program: 'bin/python',
    async lacks() {
      const message = 'needs python3 with its venv module (on Debian: apt-get install python3-venv)'
      return command('python3', ['-c', 'import venv, ensurepip']).then(() => null, () => message)
    },
    async install(folder) {
      await command('python3', ['-m', 'venv', folder])
      await command(join(folder, 'bin/python'), ['-m', 'pip', 'install', '--no-cache-dir', '--disable-pip-version-check', `${packageName}==${version}`], folder)
    },
  }
}
