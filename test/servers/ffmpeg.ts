import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

const present = (): Promise<boolean> => command('sh', ['-c', 'command -v ffmpeg && command -v ffprobe']).then(() => true, () => false)

/** ffmpeg and ffprobe of the machine, for `trim` and `merge`: installed as Debian's package, as an operator would. The cache holds links, so that a machine without them is noticed. */
export const FFMPEG: Entry = {
  name: 'ffmpeg',
  version: 'debian',
  program: 'ffmpeg',
  async lacks() {
    if (await present()) return null
    const message = 'needs ffmpeg and ffprobe (on Debian, as root: apt-get install ffmpeg)'
    if (process.getuid?.() !== 0) return message
    return command('sh', ['-c', 'command -v apt-get']).then(() => null, () => message)
  },
  async install(folder) {
    if (!(await present())) {
      await command('apt-get', ['update', '-q'])
      await command('sh', ['-c', 'DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ffmpeg'])
    }
    await mkdir(folder, { recursive: true })
    for (const program of ['ffmpeg', 'ffprobe']) await symlink((await command('sh', ['-c', `command -v ${program}`])).trim(), join(folder, program))
  },
}
