/** What the engines of providers use of this process: keys, guarded fetches, time, and a scratch folder. */
import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { EnginesConfig } from '../backends/engines/engine.ts'
import type { Config } from '../config/config.ts'
import { openEgress } from '../egress/egress.ts'

/** Paths of key files are relative to the ENGINES file. */
export function providerAccess(
  { ENGINES, environment }: Pick<Config, 'ENGINES' | 'environment'>,
  clock: () => number,
): NonNullable<EnginesConfig['providers']> {
  return {
    keys: { env: (name) => environment[name], readFile: (path) => readFileSync(resolve(dirname(ENGINES ?? '.'), path), 'utf8') },
    openGuard: (allow) => openEgress({ allow, clock }),
    clock,
    pause: (ms, signal) => pause(ms, undefined, { signal }).catch(() => undefined),
    random: Math.random,
    scratchFolder: tmpdir(),
  }
}
