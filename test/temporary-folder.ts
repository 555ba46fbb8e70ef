import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** A folder for the duration of the test. */
export async function folderFor(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return folder
}
