/** The version of the program from which upgrades are tested, as the changelog names it. */
import { execFile } from 'node:child_process'
import { mkdir, readFile, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { REPOSITORY } from './program.ts'

/** The commit in the changelog's section "Upgrading", and the stores with which a roll-back to it is possible. Throws if there is none. */
export async function earlierVersion(): Promise<{ commit: string; rollsBack: string }> {
  const [, section = ''] = (await readFile(join(REPOSITORY, 'CHANGELOG.md'), 'utf8')).split(/^### Upgrading$/m)
  const [, commit, rollsBack] = /tested from the commit `([0-9a-f]{12})` of \S+ A roll-back to it is possible with ([^,.]+)/.exec(section.split(/^#/m)[0] ?? '') ?? []
  if (commit === undefined || rollsBack === undefined) throw new Error('CHANGELOG.md names no commit from which upgrades are tested')
  return { commit, rollsBack }
}

/** Unpacks the program of a commit into `folder`, with the packages of this checkout. Rejects where the repository's history lacks it. */
export async function unpack(commit: string, folder: string): Promise<void> {
  await mkdir(folder)
  await promisify(execFile)('sh', ['-euc', 'git -C "$1" archive "$2" | tar --extract --directory "$3"', 'sh', REPOSITORY, commit, folder])
  await symlink(join(REPOSITORY, 'node_modules'), join(folder, 'node_modules'))
}
