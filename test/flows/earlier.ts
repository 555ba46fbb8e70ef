/** The earlier version of the program from which upgrades are tested, as the changelog names it. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rename, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { skip } from '../servers/client.ts'
import { REPOSITORY } from './program.ts'

const run = promisify(execFile)

/** An ENGINES file of what both versions have. */
export const COMMON_ENGINES = 'engines:\n  - { name: preview, type: preview }\nroutes:\n  - { kind: image, engine: preview, price: { amount: "0.04", per: Job } }\n'

/** `rollsBack`: the stores with which a roll-back to it is possible. `root`: its program. */
export type Earlier = { commit: string; rollsBack: string; root: string }

/**
 * The commit in the changelog's section "Upgrading". Null, with the suite skipped, in a checkout whose history lacks it. Throws if the changelog names none.
 * It runs with the packages of this checkout (the devDependency `tokenx` is needed by it alone), from a folder that stays, so that its code is compiled once; to be built (`isBuilt`) it gets its own, for the duration of the test.
 */
export async function earlierVersion(t: Test, { isBuilt = false } = {}): Promise<Earlier | null> {
  const [, section = ''] = (await readFile(join(REPOSITORY, 'CHANGELOG.md'), 'utf8')).split(/^### Upgrading$/m)
  const [, commit, rollsBack] = /tested from the commit `([0-9a-f]{12})` of \S+ A roll-back to it is possible with ([^,.]+)/.exec(section.split(/^#/m)[0] ?? '') ?? []
  if (commit === undefined || rollsBack === undefined) throw new Error('CHANGELOG.md names no commit from which upgrades are tested')
  const isThere = await run('git', ['-C', REPOSITORY, 'cat-file', '-e', `${commit}^{tree}`]).then(() => true, () => false)
  if (!isThere) {
    skip(t, `the version of ${commit}`, 'not in the history of this checkout, git fetch --unshallow has it')
    return null
  }
  const folder = isBuilt ? tmpdir() : join(REPOSITORY, '.tap/earlier')
  const kept = join(folder, commit)
  if (!isBuilt && existsSync(kept)) return { commit, rollsBack, root: kept }
  await mkdir(folder, { recursive: true })
  const root = await mkdtemp(join(folder, 'tollgate-'))
  t.teardown(() => rm(root, { recursive: true, force: true }))
  await run('sh', ['-euc', 'git -C "$1" archive "$2" | tar --extract --directory "$3"', 'sh', REPOSITORY, commit, root])
  if (isBuilt) {
    await run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: root })
    return { commit, rollsBack, root }
  }
  await symlink(join(REPOSITORY, 'node_modules'), join(root, 'node_modules'))
  // Another test may have been faster.
  await rename(root, kept).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTEMPTY') throw error
  })
  return { commit, rollsBack, root: kept }
}
