import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'

/** Debian's libfaketime, unpacked without being installed: a process that loads it first (`LD_PRELOAD`) has another time. */
export const FAKETIME: Entry = {
  name: 'libfaketime',
  version: '0.9',
  program: 'libfaketime.so.1',
  async lacks() {
    const message = 'needs Debian, for apt-get download and dpkg-deb'
    return command('sh', ['-c', 'command -v apt-get && command -v dpkg-deb']).then(() => null, () => message)
  },
  async install(folder) {
    const fetched = () => command('sh', ['-c', 'cd "$1" && apt-get download -q libfaketime', 'sh', folder])
    // A machine whose lists of packages are empty or old needs them first.
    await fetched().catch(() => command('apt-get', ['update', '-q']).then(fetched))
    const name = (await readdir(folder)).find((file) => file.endsWith('.deb')) ?? ''
    await command('dpkg-deb', ['-x', join(folder, name), folder])
    await command('sh', ['-c', 'cp "$1"/usr/lib/*/faketime/libfaketime.so.1 "$1"', 'sh', folder])
  },
}

/** What a process is started with whose clock is `seconds` away from everybody's; its timers run as they do. */
export function skewed(library: string, seconds: number): Record<string, string> {
  return { LD_PRELOAD: library, FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}s`, FAKETIME_DONT_FAKE_MONOTONIC: '1', FAKETIME_NO_CACHE: '1' }
}
