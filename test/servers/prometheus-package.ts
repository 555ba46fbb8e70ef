import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { lacksPackages, unpackPackages } from './debian.ts'

/** Prometheus and promtool of the machine's Debian, unpacked from its package, so that no service is started. */
export const PROMETHEUS: Entry = {
  name: 'prometheus',
  version: 'debian',
  program: 'prometheus',
  lacks: lacksPackages,
  async install(folder) {
    const scratch = await mkdtemp(join(tmpdir(), 'tollgate-prometheus-'))
    try {
      await unpackPackages(['prometheus'], scratch)
      await mkdir(folder, { recursive: true })
      for (const program of ['prometheus', 'promtool']) await copyFile(join(scratch, 'usr/bin', program), join(folder, program))
    } finally {
      await rm(scratch, { recursive: true, force: true })
    }
  },
}
