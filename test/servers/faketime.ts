import type { Entry } from './cache.ts'
import { command } from './command.ts'
import { lacksPackages, unpackPackages } from './debian.ts'

/** Clock skew by Debian's libfaketime, unpacked without installation: a process that preloads it (`LD_PRELOAD`) has another time. */
export const FAKETIME: Entry = {
  name: 'libfaketime',
  version: '0.9',
  program: 'libfaketime.so.1',
  lacks: lacksPackages,
  async install(folder) {
    await unpackPackages(['libfaketime'], folder)
    await command('sh', ['-c', 'cp "$1"/usr/lib/*/faketime/libfaketime.so.1 "$1"', 'sh', folder])
  },
}

/** The environment of a process whose clock is off by `seconds`; its timers run normally. */
export function skewed(library: string, seconds: number): Record<string, string> {
  return { LD_PRELOAD: library, FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}s`, FAKETIME_DONT_FAKE_MONOTONIC: '1', FAKETIME_NO_CACHE: '1' }
}
