import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

/** An entry that is a package of the npm registry, installed with its dependencies and `others`, without running their scripts. */
export function npmPackage(name: string, packageName: string, version: string, program: string, others: Record<string, string> = {}): Entry {
  return {
    name,
    version,
    program,
    lacks: async () => null,
    async install(folder) {
      await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies: { [packageName]: version, ...others } }))
      const downloads = join(folder, 'downloads')
      await command('npm', ['install', '--prefix', folder, '--cache', downloads, '--ignore-scripts', '--no-audit', '--no-fund', '--no-update-notifier'], folder)
      await rm(downloads, { recursive: true, force: true })
    },
  }
}
