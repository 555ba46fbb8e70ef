import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

const FOLDER = join(import.meta.dirname, '../../plugins/dashboard')

export const DIST = join(FOLDER, 'dist')

/** Builds the page where `npm ci` was run without scripts. */
export function buildPage(): void {
  if (!existsSync(join(DIST, 'index.html'))) execFileSync(process.execPath, [join(FOLDER, 'build.mjs')])
}
